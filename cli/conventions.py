"""The conventions of every command: its global options, help with an example, and extras.

A parameter of a command that is a dataclass stands for options, one for each field.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Mapping
from dataclasses import MISSING, fields, is_dataclass
from functools import cache, update_wrapper
from importlib import import_module
from typing import Any, Final, TypeVar, get_type_hints

import typer

from cli.coercion import PlainCommand
from cli.console import GlobalOptions, apply_global_options, broken_pipe_ignored
from cli.extras import checked

Group = TypeVar("Group")
Command = Callable[..., None]

EXAMPLE: Final = "\n\n\b\nExample: "
"""The prefix of the example in a help text, with click's mark that prevents wrapping."""

_CONTEXT: Final = inspect.Parameter("ctx", inspect.Parameter.KEYWORD_ONLY, annotation=typer.Context)


@cache
def load_command(place: str, name: str) -> Any:
    """The command that the function ``module:name`` declares."""
    module, _, attribute = place.partition(":")
    function = getattr(import_module(module), attribute)
    app = typer.Typer(rich_markup_mode=None)
    app.command(name, cls=PlainCommand, help=help_text(function))(with_options(function))
    return typer.main.get_group(app).commands[name]


def group_of(text: str, places: Mapping[str, str]) -> typer.Typer:
    """A group of the commands and groups at ``places``, in the order of its help."""
    app = typer.Typer(help=text, no_args_is_help=True)
    for name, place in places.items():
        module, _, attribute = place.partition(":")
        declared = getattr(import_module(module), attribute)
        if isinstance(declared, typer.Typer):
            app.add_typer(declared, name=name)
        else:
            app.command(name)(declared)
    return app


def help_text(function: Command) -> str:
    """The docstring of a command, with its example in a paragraph that is not wrapped."""
    text, _, example = (inspect.getdoc(function) or "").partition("\n\nExample: ")
    return f"{text}{EXAMPLE}{example}"


def with_options(function: Command) -> Command:
    """A function with an option for each field of a dataclass, and the global options."""
    own = inspect.signature(function, eval_str=True).parameters.values()
    groups: dict[str, Any] = {
        item.name: item.annotation for item in own if is_dataclass(item.annotation)
    }

    def command(ctx: typer.Context, **given: Any) -> None:
        apply_global_options(take_options(GlobalOptions, given))
        shared = {name: take_options(group, given) for name, group in groups.items()}
        with broken_pipe_ignored(), checked(ctx.command_path):
            function(**given, **shared)

    signature = inspect.Signature(
        [_CONTEXT, *own_parameters(function), *_parameters(GlobalOptions)]
    )
    update_wrapper(command, function)
    del command.__wrapped__  # type: ignore[attr-defined]  # it would be asked for its signature
    command.__signature__ = signature  # type: ignore[attr-defined]
    command.__annotations__ = {
        parameter.name: parameter.annotation for parameter in signature.parameters.values()
    }
    return command


def own_parameters(function: Command) -> Iterator[inspect.Parameter]:
    """The options and arguments that a command adds to the global ones."""
    for item in inspect.signature(function, eval_str=True).parameters.values():
        if is_dataclass(item.annotation):
            yield from _parameters(item.annotation)  # type: ignore[arg-type]
        else:
            yield item.replace(kind=inspect.Parameter.KEYWORD_ONLY)


def take_options(group: type[Group], given: dict[str, Any]) -> Group:
    """Remove the options of a dataclass from those given, and make it of them."""
    return group(**{field.name: given.pop(field.name) for field in fields(group)})  # type: ignore[arg-type]


def _parameters(group: type) -> Iterator[inspect.Parameter]:
    hints = get_type_hints(group, include_extras=True)
    for field in fields(group):
        default = inspect.Parameter.empty if field.default is MISSING else field.default
        yield inspect.Parameter(
            field.name,
            inspect.Parameter.KEYWORD_ONLY,
            default=default,
            annotation=hints[field.name],
        )
