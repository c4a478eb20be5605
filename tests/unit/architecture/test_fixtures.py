"""Shared fixtures are registered once, have names of their own and cost no import."""

from __future__ import annotations

import ast
import sys
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

from support.paths import TESTS

MODULES = sorted((TESTS / "support").rglob("*fixtures.py"))
CONFTESTS = sorted(TESTS.rglob("conftest.py"))
# What the tests of the protocol import anyway; everything else is imported by the fixture itself.
CHEAP = {*sys.stdlib_module_names, "pytest", "hypothesis", "veen", "support"}
CHEAP_SUPPORT = {"support.paths", "support.long_form"}


def fixtures_in(source: str) -> list[str]:
    return [
        node.name
        for node in ast.parse(source).body
        if isinstance(node, ast.FunctionDef)
        and any("pytest.fixture" in ast.unparse(mark) for mark in node.decorator_list)
    ]


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


def test_the_checks_find() -> None:
    source = "import boto3\nfrom support.hub import x\n@pytest.fixture(scope='module')\ndef a(): 0"
    assert fixtures_in(source) == ["a"]
    assert [name for name in imports_at_the_top(source) if not is_cheap(name)] == [
        "boto3",
        "support.hub",
    ]
