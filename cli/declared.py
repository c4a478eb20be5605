"""The rows of the table of commands, as the modules of the commands declare them.

python -m cli.declared            writes cli/commands.json
python -m cli.declared --check    compares it, for make check
"""

from __future__ import annotations

import inspect
import json
import sys
from collections.abc import Iterator, Mapping
from enum import Enum
from importlib import import_module
from pathlib import Path
from typing import Any, Final, get_args, get_origin

import typer
from typer.models import ArgumentInfo

from cli.conventions import EXAMPLE, Command, help_text, own_parameters
from cli.table import FILE, CommandRow, GroupRow, ParameterRow
from veen.system import durable

PLACES: Final = {
    "hub": "cli.hub_group:app",
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
"""Commands and groups in the order of the help."""

_UNSUPPORTED: Final = ("callback", "default_factory", "hidden", "is_eager", "prompt", "exists")
_DEFAULTS: Final = ParameterRow(name="", type="")._asdict()


def rows() -> Mapping[str, GroupRow | CommandRow]:
    return {name: _row(place) for name, place in PLACES.items()}


def _row(place: str) -> GroupRow | CommandRow:
    module, _, attribute = place.partition(":")
    declared = getattr(import_module(module), attribute)
    return _group(declared) if isinstance(declared, typer.Typer) else _command(declared)


def _group(app: typer.Typer) -> GroupRow:
    """A group: its commands, then its groups. Its example is that of its first command."""
    inner: dict[str, GroupRow | CommandRow] = {}
    for command in app.registered_commands:
        if command.callback is not None:
            name = command.name or command.callback.__name__.replace("_", "-")
            inner[name] = _command(command.callback)
    first = next(iter(inner.values())).help if inner else ""
    for group in app.registered_groups:
        if group.typer_instance is not None:
            inner[str(group.name)] = _group(group.typer_instance)
    return GroupRow(f"{app.info.help}{EXAMPLE}{first.partition(EXAMPLE)[2]}", inner)


def _command(function: Command) -> CommandRow:
    place = f"{function.__module__}:{function.__name__}"
    if getattr(import_module(function.__module__), function.__name__, None) is not function:
        raise TypeError(f"{place} is not the function of a command: expected a module's own name")
    parameters = tuple(_parameter(place, item) for item in own_parameters(function))
    return CommandRow(place, help_text(function), parameters)


def _parameter(place: str, parameter: inspect.Parameter) -> ParameterRow:
    shape, info = get_args(parameter.annotation)
    for name in _UNSUPPORTED:
        if getattr(info, name, None):
            raise TypeError(f"{place}: {parameter.name} has {name}, which the table does not hold")
    kinds = [item for item in get_args(shape) if item is not type(None)]
    whole = kinds[0] if get_origin(shape) is not list and kinds else shape
    is_list = get_origin(whole) is list
    kind = get_args(whole)[0] if is_list else whole
    is_required = parameter.default is inspect.Parameter.empty
    return ParameterRow(
        name=parameter.name,
        type=kind.__name__,
        is_argument=isinstance(info, ArgumentInfo),
        is_list=is_list,
        is_required=is_required,
        flags=tuple(_flags(info)),
        choices={item.name: item.value for item in kind} if issubclass(kind, Enum) else None,
        default=None if is_required else _plain(parameter.default),
        metavar=info.metavar,
        help=info.help,
        envvar=info.envvar,
        min=info.min,
        max=info.max,
    )


def _flags(info: Any) -> Iterator[str]:
    # In an annotation, Typer takes the first name of an option for its default.
    if isinstance(info.default, str):
        yield info.default
    yield from info.param_decls or ()


def _plain(default: Any) -> Any:
    if isinstance(default, Enum):
        return default.value
    return str(default) if isinstance(default, Path) else default


def encode(table: Mapping[str, GroupRow | CommandRow]) -> bytes:
    """The table as JSON with one line for each help text and parameter."""
    return ("{\n" + ",\n".join(_lines(table, " ")) + "\n}\n").encode()


def _lines(table: Mapping[str, GroupRow | CommandRow], indent: str) -> Iterator[str]:
    for name, row in table.items():
        head = f'{indent}{_json(name)}: {{\n{indent} "help": {_json(row.help)},\n{indent} '
        if isinstance(row, GroupRow):
            inner = ",\n".join(_lines(row.rows, f"{indent}  "))
            yield f'{head}"commands": {{\n{inner}\n{indent} }}\n{indent}}}'
        else:
            items = ",\n".join(f"{indent}  {_json(_given(item))}" for item in row.parameters)
            listed = f"[\n{items}\n{indent} ]" if items else "[]"
            function = f'"function": {_json(row.function)}'
            yield f'{head}{function},\n{indent} "parameters": {listed}\n{indent}}}'


def _given(row: ParameterRow) -> dict[str, Any]:
    return {name: value for name, value in row._asdict().items() if value != _DEFAULTS[name]}


def _json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False)


def main(arguments: list[str]) -> str | None:
    expected = encode(rows())
    if "--check" not in arguments:
        durable.write(FILE, expected)
    elif FILE.read_bytes() != expected:
        return f"{FILE} is not what the commands declare: run make commands"
    return None


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
