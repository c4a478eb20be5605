"""Shared fixtures are registered once, have names of their own and cost no import."""

from __future__ import annotations

import ast
import re
import sys
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

import pytest

from support.paths import TESTS

MODULES = sorted((TESTS / "support").rglob("*fixtures.py"))
CONFTESTS = sorted(TESTS.rglob("conftest.py"))
# What the tests of the protocol import anyway; everything else is imported by the fixture itself.
CHEAP = {*sys.stdlib_module_names, "pytest", "hypothesis", "veen", "support"}
BUILTIN = {"capfd", "caplog", "capsys", "monkeypatch", "request", "tmp_path", "tmp_path_factory"}
"""Fixtures of pytest that tests use."""
CHEAP_SUPPORT = {"support.paths", "support.long_form"}


def fixtures_in(source: str) -> list[str]:
    functions = [node for node in ast.parse(source).body if isinstance(node, ast.FunctionDef)]
    return [node.name for node in functions if is_fixture(node)]


def is_fixture(node: ast.FunctionDef) -> bool:
    return any("pytest.fixture" in ast.unparse(mark) for mark in node.decorator_list)


def imports_at_the_top(source: str) -> Iterator[str]:
    for node in ast.parse(source).body:
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield str(node.module)


def is_cheap(module: str) -> bool:
    package = module.split(".", maxsplit=1)[0]
    return module in CHEAP_SUPPORT if package == "support" else package in CHEAP


def plugins() -> list[str]:
    for node in ast.parse((TESTS / "conftest.py").read_text()).body:
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "pytest_plugins":
            return list(ast.literal_eval(node.value))
    return []


def test_every_module_of_fixtures_is_registered() -> None:
    names = [path.relative_to(TESTS).with_suffix("").as_posix() for path in MODULES]
    assert plugins() == sorted(name.replace("/", ".") for name in names)


def test_a_shared_fixture_has_a_name_of_its_own() -> None:
    places: dict[str, list[Path]] = defaultdict(list)
    for path in (*MODULES, *CONFTESTS):
        for name in fixtures_in(path.read_text()):
            places[name].append(path.relative_to(TESTS))
    assert {name: paths for name, paths in places.items() if len(paths) > 1} == {}


def test_a_module_of_fixtures_imports_nothing_slow_at_its_top() -> None:
    slow = {
        path.relative_to(TESTS): [
            name for name in imports_at_the_top(path.read_text()) if not is_cheap(name)
        ]
        for path in MODULES
    }
    assert {path: names for path, names in slow.items() if names} == {}


def test_a_conftest_has_something_of_its_own() -> None:
    without = [path for path in CONFTESTS if not fixtures_in(path.read_text())]
    assert without == []


def missing_in(path: Path, shared: set[str]) -> dict[str, set[str]]:
    """The tests and fixtures of a file that ask for what neither a fixture nor a mark gives."""
    tree = ast.parse(path.read_text())
    functions = [node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)]
    known = shared | {node.name for node in functions if is_fixture(node)}
    known |= parametrized(tree)
    known |= {name for file in conftests_of(path) for name in fixtures_in(file.read_text())}
    missing = {}
    for node in functions:
        marks = " ".join(map(ast.unparse, node.decorator_list))
        if not (is_fixture(node) or node.name.startswith("test_")) or "given(" in marks:
            continue
        asked = {item.arg for item in (*node.args.args, *node.args.kwonlyargs)}
        if lacking := asked - known:
            missing[f"{path.name}::{node.name}"] = lacking
    return missing


def parametrized(tree: ast.Module) -> set[str]:
    """The names that marks of a file give; a mark may have a name of its own there."""
    calls = [node for node in ast.walk(tree) if isinstance(node, ast.Call) and node.args]
    return {
        name
        for call in calls
        if ast.unparse(call.func).endswith("parametrize")
        for name in re.findall(r"\w+", ast.unparse(call.args[0]))
    }


def conftests_of(path: Path) -> list[Path]:
    return [file for file in CONFTESTS if path.is_relative_to(file.parent)]


@pytest.mark.parametrize("tier", ["unit", "integration", "faults", "e2e"])
def test_every_fixture_that_is_asked_for_exists(tier: str) -> None:
    shared = BUILTIN | {name for path in MODULES for name in fixtures_in(path.read_text())}
    files = sorted((TESTS / tier).rglob("test_*.py"))
    assert [missing for path in files if (missing := missing_in(path, shared))] == []


def test_the_checks_find(tmp_path: Path) -> None:
    source = "import boto3\nfrom support.hub import x\n@pytest.fixture(scope='module')\ndef a(): 0"
    assert fixtures_in(source) == ["a"]
    file = tmp_path / "test_a.py"
    file.write_text("@pytest.mark.parametrize('a', [1])\ndef test_a(a, b, tmp_path): ...")
    assert missing_in(file, BUILTIN) == {"test_a.py::test_a": {"b"}}
    assert [name for name in imports_at_the_top(source) if not is_cheap(name)] == [
        "boto3",
        "support.hub",
    ]
