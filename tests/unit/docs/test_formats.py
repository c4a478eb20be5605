"""docs/formats.md names writers that exist, and a version for each file."""

from __future__ import annotations

import re

from support.paths import ROOT

PAGE = ROOT / "docs" / "formats.md"
_FILE = re.compile(r"`([\w/]+\.py)`")


def rows() -> list[list[str]]:
    lines = [line for line in PAGE.read_text().splitlines() if line.startswith("| ")]
    cells = [[cell.strip() for cell in line.strip("|").split(" | ")] for line in lines]
    return [row for row in cells if row[1] != "writer"]


def test_every_writer_exists() -> None:
    named = [name for row in rows() for name in _FILE.findall(row[1])]
    assert len(named) > 30
    assert [name for name in named if not (ROOT / name).is_file()] == []


def test_every_file_has_a_version_or_says_why_not() -> None:
    assert [row[0] for row in rows() if not row[2]] == []
