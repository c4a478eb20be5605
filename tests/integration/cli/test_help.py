"""Help, completion and the options that every command takes."""

from __future__ import annotations

import subprocess
from collections.abc import Callable, Iterator
from contextvars import Context
from pathlib import Path
from typing import Any

import pytest
import typer
from typer.testing import CliRunner

from cli.info import CODES, FAILURES, FORMER
from cli.main import app
from support.cli import cli_binary
from support.paths import ROOT
from veen.errors import Code, Failure

WIDTH, MOST_LINES = 100, 42
GLOBAL = {"--json", "--quiet", "--timeout-ms"}


def everything(command: Any, *words: str) -> Iterator[tuple[tuple[str, ...], Any]]:
    """The program, its groups and its commands."""
    yield words, command
    for name, inner in getattr(command, "commands", {}).items():
        yield from everything(inner, *words, name)


ALL = dict(everything(typer.main.get_command(app)))


def named(words: tuple[str, ...]) -> str:
    return " ".join(("veen", *words))


@pytest.mark.parametrize("words", ALL, ids=named)
def test_help_fits_a_screen_and_shows_an_example(words: tuple[str, ...]) -> None:
    done = Context().run(
        CliRunner().invoke, app, [*words, "--help"], prog_name="veen", terminal_width=WIDTH
    )
    assert done.exit_code == 0
    lines = done.output.splitlines()
    listed = len(getattr(ALL[words], "commands", ()))
    assert len(lines) - listed <= MOST_LINES
    assert max(map(len, lines)) <= WIDTH
    assert f"  Example: {named(words)}" in done.output
    assert "..." not in done.output.partition("Options:")[2]


@pytest.mark.parametrize("words", ALL, ids=named)
def test_takes_the_global_options(words: tuple[str, ...]) -> None:
    assert {name for param in ALL[words].params for name in param.opts} >= GLOBAL


@pytest.mark.parametrize("words", ALL, ids=named)
def test_an_example_names_only_what_the_program_knows(words: tuple[str, ...]) -> None:
    example = str(ALL[words].help).partition("Example: ")[2].split()
    used = max((name for name in ALL if example[1 : len(name) + 1] == list(name)), key=len)
    known = {name for param in ALL[used].params for name in param.opts}
    assert {item for item in example if item.startswith("--")} <= known
    assert not hasattr(ALL[used], "commands")


def test_the_readme_shows_the_help_of_the_program(tmp_path: Path) -> None:
    done = cli_binary.veen("--help", cwd=tmp_path)
    shown = "".join(f"    {line}\n" if line else "\n" for line in done.out.splitlines())
    assert shown in (ROOT / "README.md").read_text()


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion_can_be_shown(shell: str, tmp_path: Path) -> None:
    given: dict[str, Any] = {"_TYPER_COMPLETE_TEST_DISABLE_SHELL_DETECTION": "1"}
    done = cli_binary.veen("--show-completion", shell, cwd=tmp_path, **given)
    assert (done.code, done.err) == (0, "")
    assert "_VEEN_COMPLETE" in done.out


def test_completion_installs_and_completes(tmp_path: Path) -> None:
    done = subprocess.run(
        ["/bin/bash", "-c", f"{cli_binary.VEEN} --install-completion; true"],
        cwd=tmp_path,
        env=cli_binary.environment(tmp_path, SHELL="/bin/bash"),
        capture_output=True,
        text=True,
        check=True,
    )
    assert "completion installed" in done.stdout, done.stderr
    assert (tmp_path / ".bash_completions" / "veen.sh").exists()
    asked = cli_binary.veen(
        cwd=tmp_path, _VEEN_COMPLETE="complete_bash", COMP_WORDS="veen hub st", COMP_CWORD="2"
    )
    assert asked.out.split() == ["start", "stop", "status"]


@pytest.mark.parametrize("code", Code, ids=lambda item: item.value)
def test_every_code_is_explained(code: Code, veen_text: Callable[[str], str]) -> None:
    text = veen_text(code.value)
    for part in CODES[code]:
        assert part in text


@pytest.mark.parametrize("failure", Failure, ids=lambda item: item.detail_enum)
def test_every_detail_is_explained(failure: Failure, veen_text: Callable[[str], str]) -> None:
    assert FAILURES[failure] in veen_text(f"{failure.code.value}/{failure.detail_enum}")


@pytest.mark.parametrize("name", FORMER)
def test_a_former_code_is_reported_by_its_new_name(
    name: str, veen_text: Callable[[str], str]
) -> None:
    result = FORMER[name]
    assert f"{name} is now {result.code.value}/{result.detail_enum}" in veen_text(name)


@pytest.fixture
def veen_text() -> Callable[[str], str]:
    def explained(code: str) -> str:
        done = Context().run(CliRunner().invoke, app, ["explain-error", code])
        assert done.exit_code == 0
        return done.output

    return explained
