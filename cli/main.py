"""The ``veen`` command: its table of commands, global options, errors and exit codes.

The module of a command is imported when the command is called. A parameter of a command that is a
dataclass stands for options, one for each field.
"""

from __future__ import annotations

import inspect
import os
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import MISSING, fields, is_dataclass
from functools import cache, update_wrapper
from importlib import import_module
from typing import Any, Final, TypeVar, get_type_hints

import typer
from typer.core import TyperGroup

import cli.quick_start  # noqa: F401 - before anything that imports httpx
from cli.console import GlobalOptions, apply_global_options, broken_pipe_ignored
from cli.errors import INTERRUPTED, OK, UsageError, fail, fail_usage
from cli.extras import MissingExtra, checked
from veen.errors import VeenError
from veen.system.signals import handle_interrupts

Group = TypeVar("Group")
Command = Callable[..., None]

_EXAMPLE: Final = "\n\n\b\nExample: "
"""The prefix of the example in a help text, with click's mark that prevents wrapping."""

_CONTEXT: Final = inspect.Parameter("ctx", inspect.Parameter.KEYWORD_ONLY, annotation=typer.Context)
_FILES: Final = {
    "hub": "cli.hub_checkpoint:app",
    "keygen": "cli.identity:keygen",
    "id": "cli.identity:app",
    "send": "cli.messages:send",
    "outbox": "cli.messages:outbox_app",
    "stream": "cli.messages:stream",
    "attachment": "cli.messages:attachment_app",
    "cap": "cli.cap:app",
    "resync": "cli.state:resync",
    "verify-state": "cli.state:verify_state",
    "verify-receipt": "cli.state:verify_receipt",
    "export": "cli.messages:export",
    "import": "cli.messages:import_",
    "recorder": "cli.recorder:app",
    "anchor": "cli.anchor:app",
    "query": "cli.query:app",
    "bridge": "cli.bridge:app",
    "zone": "cli.zone:app",
    "demo": "cli.demo.command:demo",
    "archive": "cli.archive:app",
    "audit": "cli.audit:app",
    "fold": "cli.fold:fold",
    "snapshot": "cli.fold:app",
    "bench": "cli.bench:app",
    "selftest": "cli.selftest.command:app",
    "explain-error": "cli.info:explain_error",
    "version": "cli.info:version",
}
"""Commands in the order of the help."""


def adopt(app: typer.Typer) -> None:
    """Apply the conventions to every command and group of ``app``."""
    for command in app.registered_commands:
        if command.callback is not None:
            command.help = _help(command.callback)
            command.callback = with_options(command.callback)
    for group in app.registered_groups:
        if group.typer_instance is not None:
            adopt(group.typer_instance)
            lead(group.typer_instance)


def lead(app: typer.Typer, example: str | None = None) -> None:
    """Give a group the global options, and the example of its first command."""
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
        item.name: item.annotation for item in own if is_dataclass(item.annotation)
    }

    def command(ctx: typer.Context, **given: Any) -> None:
        apply_global_options(_taken(GlobalOptions, given))
        shared = {name: _taken(group, given) for name, group in groups.items()}
        with broken_pipe_ignored(), checked(ctx.command_path):
            function(**given, **shared)

    options = [
        option
        for item in own
        for option in (_parameters(groups[item.name]) if item.name in groups else [_keyword(item)])
    ]
    signature = inspect.Signature([_CONTEXT, *options, *_parameters(GlobalOptions)])
    update_wrapper(command, function)
    del command.__wrapped__  # type: ignore[attr-defined]  # it would be asked for its signature
    command.__signature__ = signature  # type: ignore[attr-defined]
    command.__annotations__ = {
        parameter.name: parameter.annotation for parameter in signature.parameters.values()
    }
    return command


def _taken(group: type[Group], given: dict[str, Any]) -> Group:
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


def _keyword(parameter: inspect.Parameter) -> inspect.Parameter:
    return parameter.replace(kind=inspect.Parameter.KEYWORD_ONLY)


class Commands(TyperGroup):
    def __init__(self, **attributes: Any) -> None:
        super().__init__(**attributes)
        self.commands = _Loading()  # type: ignore[assignment]  # it is only ever read


class _Loading(Mapping[str, Any]):
    def __getitem__(self, name: str) -> Any:
        return _loaded(name)

    def __iter__(self) -> Iterator[str]:
        return iter(_FILES)

    def __len__(self) -> int:
        return len(_FILES)


@cache
def _loaded(name: str) -> Any:
    """A command or group with the conventions applied."""
    file, _, attribute = _FILES[name].partition(":")
    try:
        with checked(f"veen {name}"):
            loaded = getattr(import_module(file), attribute)
    except MissingExtra as error:
        return _missing(name, error)
    around = typer.Typer(rich_markup_mode=None)
    if isinstance(loaded, typer.Typer):
        around.add_typer(loaded, name=name)
    else:
        around.command(name)(loaded)
    adopt(around)
    return typer.main.get_group(around).commands[name]


def _missing(name: str, error: MissingExtra) -> Any:
    """A placeholder for a command whose extra is not installed, which accepts any arguments."""

    def fail(ctx: typer.Context) -> None:
        if "--json" in ctx.args:
            apply_global_options(GlobalOptions(json=True))
        raise error

    around = typer.Typer(rich_markup_mode=None)
    around.command(
        name,
        help=f"{str(error).partition(': ')[2].capitalize()} to have this command.",
        add_help_option=False,
        context_settings={"allow_extra_args": True, "ignore_unknown_options": True},
    )(fail)
    return typer.main.get_group(around).commands[name]


app = typer.Typer(
    name="veen",
    cls=Commands,
    help="Record events so that nobody can change, drop or reorder them unnoticed.",
    no_args_is_help=True,
    context_settings={"max_content_width": 100},
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
)
lead(app, 'veen send --hub ./hub --client ./me --stream core/main --body \'{"text": "hello"}\'')


def main() -> None:
    """The entry point: an expected error is one line and an exit code, never a traceback."""
    os.umask(0o077)
    handle_interrupts()
    code = _run()
    with broken_pipe_ignored():
        sys.stdout.flush()
    sys.exit(code)


def _run() -> int:
    try:
        return app(standalone_mode=False) or OK
    except UsageError as error:
        # The options may not be parsed yet.
        apply_global_options(GlobalOptions(json="--json" in sys.argv))
        return fail_usage(error)
    except typer.Abort:
        return INTERRUPTED
    except (VeenError, OSError) as error:
        return fail(error)


if __name__ == "__main__":
    main()
