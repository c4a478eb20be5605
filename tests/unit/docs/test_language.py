"""Manuals use the words of the glossary, not the private ones that it replaced."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from support.paths import ROOT

# The glossary and the contributing guide name the words in order to rule them out; the changelog
# and the decision records are history; the architecture names modules.
PAGES = sorted(
    {ROOT / "README.md", ROOT / "SECURITY.md", *ROOT.glob("docs/*.md"), *ROOT.glob("docs/*.toml")}
    - {ROOT / "docs" / "glossary.md", ROOT / "docs" / "architecture.md"}
)
_PRIVATE = re.compile(
    r"\b(?:told|tells|berth|lanes?|flights?|shelf|papers|crew|surroundings|patience|doors?|bell"
    r"|anew|mend(?:s|ed)?)\b",
    re.IGNORECASE,
)


def private_words(text: str) -> list[str]:
    """Private words in prose; code in backticks and indented code is left out."""
    lines = [line for line in text.splitlines() if not line.startswith("    ")]
    return _PRIVATE.findall(re.sub(r"`[^`]*`", "", "\n".join(lines)))


@pytest.mark.parametrize("path", PAGES, ids=lambda path: path.name)
def test_a_manual_has_no_private_words(path: Path) -> None:
    assert private_words(path.read_text()) == []


def test_the_check_of_words_finds() -> None:
    assert private_words("It is told.\n`told`\n    told\nThe Crew") == ["told", "Crew"]
