"""The walk of docs/cli.md, run as it is printed and compared with what is printed under it."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from support.cli import cli_binary
from support.paths import ROOT
from zone.services import free_port

pytestmark = pytest.mark.e2e

MANUAL = ROOT / "docs" / "cli.md"
PORT = "37411"
END = "~~~ the end of a step"


@dataclass(frozen=True)
class Step:
    command: str
    printed: tuple[str, ...]


def steps(text: str) -> Iterator[Step]:
    """Commands of the indented blocks of the quickstart, each with the lines under it."""
    part = text.partition("\n## Quickstart\n")[2].partition("\n## ")[0]
    lines = [line[4:] for line in part.splitlines() if line.startswith("    ")]
    command: str | None = None
    printed: list[str] = []
    for line in [*lines, "$ "]:
        if line.startswith("$ "):
            if command is not None:
                yield Step(command, tuple(printed))
            command, printed = line[2:], []
        else:
            printed.append(line)


def pattern(printed: tuple[str, ...]) -> str:
    """What the output must match: … is anything within a line, and lines if it stands alone."""
    parts = [
        "(?:.*\n)*?" if line == "…" else re.escape(line).replace("…", ".+") + "\n"
        for line in printed
    ]
    return "".join(parts)


@pytest.fixture
def home(tmp_path: Path) -> Iterator[Path]:
    yield tmp_path
    cli_binary.end_hub(tmp_path)


def test_the_walk_prints_what_the_manual_says(home: Path) -> None:
    text = MANUAL.read_text().replace(PORT, str(free_port()))
    walk = list(steps(text))
    assert len(walk) > 20
    script = "".join(f"{item.command}\necho {END!r} $?\n" for item in walk)
    done = subprocess.run(
        ["/bin/bash", "-c", f"exec 2>&1\n{script}"],
        cwd=home,
        env=cli_binary.environment(home),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        text=True,
        check=True,
        timeout=280,
    )
    outputs = re.split(rf"{END} (\d+)\n", done.stdout)
    for item, output, code in zip(walk, outputs[::2], outputs[1::2], strict=False):
        assert code == "0", (item.command, output)
        assert re.fullmatch(pattern(item.printed), output), (item, output)
    assert len(outputs) == 2 * len(walk) + 1
    assert not (home / "me").exists()


def test_the_comparison_finds() -> None:
    printed = ("a: …", "…", "b: 1")
    assert re.fullmatch(pattern(printed), "a: 7\nx\ny\nb: 1\n")
    assert not re.fullmatch(pattern(printed), "a: 7\nx\ny\nb: 2\n")
    assert not re.fullmatch(pattern(printed), "a: 7\nb: 1\nc: 1\n")
    assert not re.fullmatch(pattern(()), "anything\n")
