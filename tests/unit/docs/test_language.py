"""Manuals, code and tests use the words of the glossary, not the private ones it replaced."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from support.paths import ROOT, TESTS

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
_ALLOWED = frozenset({"InFlight", "functions_with_found", "lanes"})
"""A word of the glossary for a message that is being submitted; a figure of ``make stats``; an
argument of Argon2id."""
_COMMON = frozenset({"found", "kept"})
"""Words that the name of a test, which is a sentence, may have."""
_VAGUE = frozenset({"one", "made", "said"})
"""No name by itself in a test: what was made, what was said?"""


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


def is_test(path: Path) -> bool:
    """Whether names are checked; the scripts of the golden files run an earlier release."""
    return not path.is_relative_to(TESTS / "golden")


def named_in_tests(source: str) -> set[str]:
    """Private names, and vague names that a test gives."""
    given = {
        node.id if isinstance(node, ast.Name) else node.arg
        for node in ast.walk(ast.parse(source))
        if isinstance(node, ast.Name | ast.arg)
    }
    names = private_names(source)
    return {name for name in names if not _is_sentence(name)} | given & _VAGUE


def _is_sentence(name: str) -> bool:
    return name.startswith("test_") and not _parts(name) & (_PRIVATE_NAMES - _COMMON)


def test_tests_have_no_private_names() -> None:
    named = {
        path: named_in_tests(path.read_text()) for path in TESTS.rglob("*.py") if is_test(path)
    }
    assert {str(path.relative_to(ROOT)): names for path, names in named.items() if names} == {}


@pytest.mark.parametrize("folder", sorted(path.name for path in TESTS.iterdir() if path.is_dir()))
def test_files_of_tests_have_no_private_names(folder: str) -> None:
    paths = [path for path in (TESTS / folder).rglob("*.py") if is_test(path)]
    assert [path.name for path in paths if _parts(path.stem) & _PRIVATE_NAMES] == []


def test_the_check_of_names_finds() -> None:
    source = "def ask(one):\n    kept_out = NOT_FOUND\n    return HubPapers(one.told_by)"
    assert private_names(source) == {"one", "kept_out", "HubPapers", "told_by"}
    source = "def test_a_line_is_found(made): ...\ndef test_it_is_told(): ...\n"
    assert named_in_tests(source) == {"made", "test_it_is_told"}
    source = "def test_a_line_is_found(made):\n    return made.said.of(kept)"
    assert named_in_tests(source) == {"made", "kept"}
