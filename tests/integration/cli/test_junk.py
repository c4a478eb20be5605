"""Whatever is put behind an option, a command ends with a code and a line, never with a trace."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import typer

from cli.main import app
from support.long_form import LONG

JUNK: tuple[str, ...] = ("ü\udcff\x1b[31m", "9" * 25)
if LONG:
    JUNK = (*JUNK, "", "-1", "/dev/null", ".", "nowhere/at/all", "ab" * 32)
START_HUBS = ("hub start", "selftest", "demo")


def commands(group: Any, *words: str) -> Iterator[tuple[tuple[str, ...], Any]]:
    for name, command in group.commands.items():
        if hasattr(command, "commands"):
            yield from commands(command, *words, name)
        else:
            yield (*words, name), command


ALL = {
    words: item
    for words, item in commands(typer.main.get_command(app))
    if not " ".join(words).startswith(START_HUBS)
}


def value(option: Any, given: str) -> list[str]:
    """The option as it is given; an argument has no name."""
    name = [option.opts[0]] if option.opts[0].startswith("--") else []
    return [*name, given]


def lines(command: Any) -> Iterator[list[str]]:
    """Every option in turn with every piece of junk, and all that are required with the same."""
    options = [param for param in command.params if not getattr(param, "is_flag", False)]
    for junk in JUNK:
        required = [word for option in options if option.required for word in value(option, junk)]
        yield required
        for option in options:
            if not option.required:
                yield [*required, *value(option, junk)]


@pytest.fixture(scope="module")
def ready(call_in_home: Callable[..., Any], cli_home: Path) -> Path:
    assert call_in_home("keygen", "--out", "me", "--insecure-plain").code == 0
    (cli_home / "msg").write_bytes(b"\x80")
    return cli_home


@pytest.mark.parametrize("words", ALL, ids=" ".join)
def test_ends_with_a_code_and_a_line(
    words: tuple[str, ...], ready: Path, call_in_home: Callable[..., Any]
) -> None:
    for line in lines(ALL[words]):
        done = call_in_home(*words, *line, VEEN_HUB="nowhere", VEEN_CLIENT="me")
        assert done.code in range(5), (line, done)
        assert "Traceback" not in done.err
        if done.code:
            messages = [line for line in done.err.splitlines() if line.startswith("veen: ")]
            assert len(messages) == 1, (line, done)
            assert messages[0].isprintable()
