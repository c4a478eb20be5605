"""The table of commands, ``cli/commands.json``: the help and parser of every command.

It is read instead of the modules that declare the commands, so that a help text, a completion or
a usage error imports none of them. The module of a command is imported when the command runs.
``python -m cli.declared`` writes the table; a test compares it with the modules.
"""

from __future__ import annotations

import inspect
import json
from collections.abc import Iterator, Mapping
from enum import Enum
from functools import cache
from pathlib import Path
from typing import Annotated, Any, Final, NamedTuple

import typer

from cli.coercion import PlainCommand, PlainGroup
from cli.console import GlobalOptions, apply_global_options
from cli.conventions import load_command, take_options, with_options
from cli.extras import MissingExtra, checked, needs_of, require

FILE: Final = Path(__file__).with_name("commands.json")
_TYPES: Final[Mapping[str, type]] = {
    "bool": bool,
    "float": float,
    "int": int,
    "Path": Path,
    "str": str,
}


class ParameterRow(NamedTuple):
    """An option or argument of a command; ``type`` is that of one value."""

    name: str
    type: str
    is_argument: bool = False
    is_list: bool = False
    is_required: bool = False
    flags: tuple[str, ...] = ()
    choices: Mapping[str, str] | None = None
    default: str | float | bool | None = None
    metavar: str | None = None
    help: str | None = None
    envvar: str | None = None
    min: float | None = None
    max: float | None = None

    def parameter(self) -> inspect.Parameter:
        """The parameter of a function that Typer makes this option or argument of."""
        kind: Any = Enum(self.type, self.choices) if self.choices else _TYPES[self.type]
        default: Any = self.default
        if default is not None:
            default = kind(default)
        shape: Any = list[kind] if self.is_list else kind
        return inspect.Parameter(
            self.name,
            inspect.Parameter.KEYWORD_ONLY,
            default=inspect.Parameter.empty if self.is_required else default,
            annotation=Annotated[shape if self._has_value() else shape | None, self._info()],
        )

    def _has_value(self) -> bool:
        return self.is_required or self.default is not None

    def _info(self) -> Any:
        given: dict[str, Any] = {
            "metavar": self.metavar,
            "help": self.help,
            "envvar": self.envvar,
            "min": self.min,
            "max": self.max,
        }
        return typer.Argument(**given) if self.is_argument else typer.Option(*self.flags, **given)


class CommandRow(NamedTuple):
    """A command, and the function that runs it as ``module:name``."""

    function: str
    help: str
    parameters: tuple[ParameterRow, ...]

    def command(self, name: str) -> Any:
        app = typer.Typer(rich_markup_mode=None)
        app.command(name, cls=TableCommand, help=self.help)(with_options(self._declaration()))
        command = typer.main.get_group(app).commands[name]
        command.function = self.function  # type: ignore[attr-defined]
        return command

    def _declaration(self) -> Any:
        def declaration(**_: Any) -> None:
            raise AssertionError("the function of the table's row runs in place of this one")

        declaration.__signature__ = inspect.Signature(  # type: ignore[attr-defined]
            [row.parameter() for row in self.parameters]
        )
        return declaration


class GroupRow(NamedTuple):
    """A group with its commands and groups, in the order of its help."""

    help: str
    rows: Mapping[str, GroupRow | CommandRow]

    def command(self, name: str) -> Any:
        app, group = typer.Typer(rich_markup_mode=None), typer.Typer(cls=PlainGroup)
        app.add_typer(group, name=name, help=self.help, no_args_is_help=True)
        group.callback()(with_options(_no_action))
        command = typer.main.get_group(app).commands[name]
        command.commands = Rows(self.rows)  # type: ignore[attr-defined]
        return command


def _no_action() -> None:
    """A group does nothing itself."""


class TableCommand(PlainCommand):
    """A command with the parser of the table; to run, it loads the one that its module declares."""

    function: str

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        ctx.obj = tuple(args)
        return super().parse_args(ctx, args)

    def invoke(self, ctx: Any) -> Any:
        # An extra that is not installed is an error in the form that they ask for.
        apply_global_options(take_options(GlobalOptions, dict(ctx.params)))
        with checked(ctx.command_path):
            command = load_command(self.function, ctx.info_name)
        with command.make_context(ctx.info_name, list(ctx.obj), parent=ctx.parent) as inner:
            return command.invoke(inner)


class Rows(Mapping[str, Any]):
    """The commands of rows, each made when it is asked for."""

    def __init__(self, rows: Mapping[str, GroupRow | CommandRow]) -> None:
        self._rows = rows
        self._made: dict[str, Any] = {}

    def __getitem__(self, name: str) -> Any:
        if name not in self._made:
            self._made[name] = self._rows[name].command(name)
        return self._made[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._rows)

    def __len__(self) -> int:
        return len(self._rows)


class TopRows(Rows):
    """The commands of ``veen``: one whose extra is not installed says what to install."""

    def __getitem__(self, name: str) -> Any:
        try:
            require(f"veen {name}", *needs_of(f"veen {name}"))
        except MissingExtra as error:
            return _missing(name, error)
        return super().__getitem__(name)


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


@cache
def read() -> Mapping[str, GroupRow | CommandRow]:
    return {name: _row(row) for name, row in json.loads(FILE.read_bytes()).items()}


def functions() -> Iterator[str]:
    """The functions of all commands."""
    yield from _functions(read())


def _functions(rows: Mapping[str, GroupRow | CommandRow]) -> Iterator[str]:
    for row in rows.values():
        if isinstance(row, CommandRow):
            yield row.function
        else:
            yield from _functions(row.rows)


def _row(row: Mapping[str, Any]) -> GroupRow | CommandRow:
    if "commands" in row:
        return GroupRow(row["help"], {name: _row(inner) for name, inner in row["commands"].items()})
    return CommandRow(row["function"], row["help"], tuple(map(_parameter, row["parameters"])))


def _parameter(row: Mapping[str, Any]) -> ParameterRow:
    return ParameterRow(**{**row, "flags": tuple(row.get("flags", ()))})
