"""Manuals use the words of the glossary, not the private ones that it replaced."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from support.paths import ROOT

# The glossary and the contributing guide name the words in order to rule them out; the changelog
# and the decision records are history.
PAGES = sorted(
    {ROOT / "README.md", ROOT / "SECURITY.md", *ROOT.glob("docs/*.md"), *ROOT.glob("docs/*.toml")}
    - {ROOT / "docs" / "glossary.md"}
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


PACKAGES = ("veen", "hub", "recorder", "bridge", "zone", "spark_jobs", "cli", "dags", "plugins")
_PRIVATE_NAMES = frozenset(
    {"told", "untold", "berth", "lane", "lanes", "flight", "shelf", "papers", "crew", "door"}
    | {"surroundings", "patience", "bell", "wanted", "found", "kept", "stretch", "yard"}
)
_ALLOWED = frozenset({"InFlight"})
"""A word of the glossary, for a message that is being submitted."""


def names_in(source: str) -> Iterator[str]:
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Name):
            yield node.id
        elif isinstance(node, ast.Attribute):
            yield node.attr
        elif isinstance(node, ast.arg | ast.keyword) and node.arg:
            yield node.arg
        elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            yield node.name


def private_names(source: str) -> set[str]:
    """Names with a private word among their parts; *not found* is the word of HTTP."""
    names = set(names_in(source)) - _ALLOWED
    return {name for name in names if name == "one" or _parts(name) & _PRIVATE_NAMES}


def _parts(name: str) -> set[str]:
    words = re.sub(r"(?<=[a-z])(?=[A-Z])", "_", name).lower()
    return set(re.sub(r"not_found", "", words).split("_"))


@pytest.mark.parametrize("package", PACKAGES)
def test_code_has_no_private_names(package: str) -> None:
    files = (ROOT / package).rglob("*.py")
    named = {path: private_names(path.read_text()) for path in files}
    assert {str(path.relative_to(ROOT)): names for path, names in named.items() if names} == {}


def test_the_check_of_names_finds() -> None:
    source = "def ask(one):\n    kept_out = NOT_FOUND\n    return HubPapers(one.told_by)"
    assert private_names(source) == {"one", "kept_out", "HubPapers", "told_by"}
