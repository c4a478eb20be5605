"""Values of options: what is coerced here is what Typer makes of it, and refused in its words."""

from __future__ import annotations

from enum import Enum
from pathlib import Path
from typing import Annotated, Any

import pytest
import typer
from typer.core import TyperCommand

from cli.coercion import PlainCommand


class Level(Enum):
    LOW = "low"
    HIGH = "high"


def declared(
    *,
    text: Annotated[str, typer.Option("--text")] = "",
    count: Annotated[int, typer.Option("--count", min=1, max=5)] = 3,
    free: Annotated[int | None, typer.Option("--free")] = None,
    rate: Annotated[float | None, typer.Option("--rate", min=0)] = None,
    file: Annotated[Path | None, typer.Option("--file", envvar="TEST_FILE")] = None,
    level: Annotated[Level, typer.Option("--level")] = Level.LOW,
    names: Annotated[list[str] | None, typer.Option("--name")] = None,
    numbers: Annotated[list[int] | None, typer.Option("--number", min=0)] = None,
    files: Annotated[list[Path] | None, typer.Argument()] = None,
    flag: Annotated[bool, typer.Option("--flag", envvar="TEST_FLAG")] = False,
) -> None:
    """Nothing: the test looks at the parsed values."""


def parsed(kind: type[TyperCommand], words: tuple[str, ...]) -> Any:
    app = typer.Typer()
    app.command("x", cls=kind)(declared)
    command = typer.main.get_group(app).commands["x"]
    try:
        return command.make_context("x", list(words)).params
    except typer.BadParameter as error:
        return error.format_message()


CASES = [
    (),
    ("--text", "a b"),
    ("--text", ""),
    ("--text", "\udcff"),
    *(
        ("--count", value)
        for value in ("1", "5", "0", "6", "+2", "02", " 2", "2.0", "x", "", "1_0")
    ),
    *(("--free", value) for value in ("-7", "9" * 18, "9" * 30, "٣", "1e3")),
    *(("--rate", value) for value in ("0", "1.5", "-1", "1e3", "nan", "inf", ".5", "x")),
    *(("--file", value) for value in ("/nonexistent/x", "/", ".", "-", "", "\udcff")),
    *(("--level", value) for value in ("low", "HIGH", "high", "x", "")),
    ("--name", "a", "--name", "b"),
    ("--number", "1", "--number", "2"),
    ("--number", "1", "--number", "-2"),
    ("a", "b"),
    ("--flag",),
]


@pytest.mark.parametrize("words", CASES, ids=ascii)
def test_a_value_is_what_typer_makes_of_it(words: tuple[str, ...]) -> None:
    assert parsed(PlainCommand, words) == parsed(TyperCommand, words)


@pytest.mark.parametrize("value", ["1", "no", "", "x"])
def test_so_is_a_value_of_the_environment(value: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TEST_FLAG", value)
    monkeypatch.setenv("TEST_FILE", value)
    assert parsed(PlainCommand, ()) == parsed(TyperCommand, ())


def test_a_value_that_typer_refused_is_no_hindrance_for_the_next() -> None:
    app = typer.Typer()
    app.command("x", cls=PlainCommand)(declared)
    command = typer.main.get_group(app).commands["x"]
    for _ in range(2):
        with pytest.raises(typer.BadParameter):
            command.make_context("x", ["--count", "x"])
        assert command.make_context("x", ["--count", "2"]).params["count"] == 2
