"""What holds for every command: its global options, and groups of options it shares with others.

A parameter of a command that is a dataclass stands for the options that are its fields.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from dataclasses import MISSING, fields, is_dataclass
from functools import update_wrapper
from typing import Any, Final, TypeVar, get_type_hints

import typer

from cli.console import Manner, behave, hanging_up
from cli.extras import checked

Group = TypeVar("Group")
Command = Callable[..., None]

_EXAMPLE: Final = "\n\n\b\nExample: "
"""The mark is click's, and lets the line stand as it is."""

_CONTEXT: Final = inspect.Parameter("ctx", inspect.Parameter.KEYWORD_ONLY, annotation=typer.Context)


def adopt(app: typer.Typer) -> None:
    """Let every command and every group of ``app`` keep to the conventions."""
    for command in app.registered_commands:
        if command.callback is not None:
            command.help = _help(command.callback)
            command.callback = with_options(command.callback)
    for group in app.registered_groups:
        if group.typer_instance is not None:
            adopt(group.typer_instance)
            lead(group.typer_instance)


def lead(app: typer.Typer, example: str | None = None) -> None:
    """Give a group itself the global options, and the example of its first command."""
    first = app.registered_commands[0].help if app.registered_commands else None
    shown = example or (first or "").partition(_EXAMPLE)[2]
    app.info.help = f"{app.info.help}{_EXAMPLE}{shown}"
    app.callback()(with_options(_nothing))


def _nothing() -> None:
    """A group does nothing itself."""


def _help(function: Command) -> str:
    text, _, example = (inspect.getdoc(function) or "").partition("\n\nExample: ")
    return f"{text}{_EXAMPLE}{example}"


def with_options(function: Command) -> Command:
    own = inspect.signature(function, eval_str=True).parameters.values()
    groups: dict[str, Any] = {
        one.name: one.annotation for one in own if is_dataclass(one.annotation)
    }

    def command(ctx: typer.Context, **given: Any) -> None:
        behave(_taken(Manner, given))
        shared = {name: _taken(group, given) for name, group in groups.items()}
        with hanging_up(), checked(ctx.command_path):
            function(**given, **shared)

    options = [
        option
        for one in own
        for option in (_parameters(groups[one.name]) if one.name in groups else [_keyword(one)])
    ]
    signature = inspect.Signature([_CONTEXT, *options, *_parameters(Manner)])
    update_wrapper(command, function)
    del command.__wrapped__  # type: ignore[attr-defined]  # it would be asked for its signature
    command.__signature__ = signature  # type: ignore[attr-defined]
    command.__annotations__ = {one.name: one.annotation for one in signature.parameters.values()}
    return command


def _taken(group: type[Group], given: dict[str, Any]) -> Group:
    return group(**{one.name: given.pop(one.name) for one in fields(group)})  # type: ignore[arg-type]


def _parameters(group: type) -> Iterator[inspect.Parameter]:
    hints = get_type_hints(group, include_extras=True)
    for one in fields(group):
        default = inspect.Parameter.empty if one.default is MISSING else one.default
        yield inspect.Parameter(
            one.name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=hints[one.name]
        )


def _keyword(parameter: inspect.Parameter) -> inspect.Parameter:
    return parameter.replace(kind=inspect.Parameter.KEYWORD_ONLY)
