"""The table of commands: what it says of a command is what the command's module declares."""

from __future__ import annotations

from collections.abc import Iterator
from importlib import import_module
from typing import Any

import pytest
import typer

from cli import declared, errors, table
from cli.conventions import load_command
from cli.main import app


def leaves(commands: Any, *words: str) -> Iterator[tuple[tuple[str, ...], Any]]:
    for name, command in commands.items():
        if hasattr(command, "commands"):
            yield from leaves(command.commands, *words, name)
        else:
            yield (*words, name), command


LEAVES = dict(leaves(typer.main.get_command(app).commands))  # type: ignore[attr-defined]


def rendered(command: Any, name: str) -> str:
    return str(command.get_help(typer.Context(command, info_name=name, max_content_width=100)))


def test_the_table_is_what_the_modules_declare() -> None:
    """Run make commands after a change of a command, an option or a help text."""
    assert table.FILE.read_bytes() == declared.encode(declared.rows())


def test_a_table_that_is_read_is_the_one_that_was_written() -> None:
    assert table.read() == declared.rows()


@pytest.mark.parametrize("words", LEAVES, ids=" ".join)
def test_the_help_of_the_table_is_that_of_the_module(words: tuple[str, ...]) -> None:
    command = LEAVES[words]
    own = load_command(command.function, words[-1])
    assert rendered(command, words[-1]) == rendered(own, words[-1])


@pytest.mark.parametrize("words", LEAVES, ids=" ".join)
def test_the_parser_of_the_table_is_that_of_the_module(words: tuple[str, ...]) -> None:
    command = LEAVES[words]
    own = load_command(command.function, words[-1])
    assert [parser_of(item) for item in command.params] == [parser_of(item) for item in own.params]


def parser_of(parameter: Any) -> tuple[Any, ...]:
    default = getattr(parameter.default, "value", parameter.default)
    number = (parameter.nargs, getattr(parameter, "multiple", False), parameter.required)
    names = (parameter.name, parameter.opts, parameter.secondary_opts, parameter.envvar)
    return (type(parameter), *names, *number, default)


def test_every_command_is_in_the_table_once() -> None:
    functions = list(table.functions())
    assert len(functions) == len(set(functions)) == len(LEAVES)


@pytest.mark.parametrize("name", [*(name for name, _ in errors.EXIT_CODES), errors.HUB_REFUSED])
def test_an_exit_code_belongs_to_an_error_that_exists(name: str) -> None:
    module, _, attribute = name.rpartition(".")
    assert issubclass(getattr(import_module(module), attribute), Exception)
