"""The answers to the ten questions in docs/developer.md name files that exist."""

from __future__ import annotations

import re

from support.paths import ROOT

PAGE = ROOT / "docs" / "developer.md"
_PATH = re.compile(r"`([\w./-]+(?:\.\w+|/))`")


def answers() -> list[str]:
    _, _, after = PAGE.read_text().partition("## Ten questions\n")
    section = after.partition("\n## ")[0]
    return re.findall(r"^\d+\. (.*)$", section, re.MULTILINE)


def test_all_ten_are_answered_with_files() -> None:
    named = [_PATH.findall(answer) for answer in answers()]
    assert len(named) == 10
    assert all(named[number - 1] for number in (1, 2, 3, 5, 6, 7, 8, 10))
    assert [path for paths in named for path in paths if not (ROOT / path).exists()] == []
