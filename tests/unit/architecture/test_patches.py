"""Tests do not put anything in the place of our own modules and classes."""

from __future__ import annotations

import ast
import tomllib
from collections.abc import Iterator
from pathlib import Path

from support.paths import ROOT, TESTS

SETTINGS = tomllib.loads((ROOT / "pyproject.toml").read_text())
OURS = {
    *SETTINGS["tool"]["hatch"]["build"]["targets"]["wheel"]["packages"],
    *(path.stem for folder in ("dags", "plugins") for path in (ROOT / folder).iterdir()),
}
MUTANTS = TESTS / "support" / "selftest" / "mutants"
"""They break the processes of a self-test on purpose."""


def patches(source: str) -> Iterator[int]:
    """The lines of calls of ``setattr`` and ``patch`` on what is imported from our packages."""
    tree = ast.parse(source)
    imported = {
        alias.asname or alias.name.split(".")[0]
        for node in ast.walk(tree)
        if isinstance(node, ast.Import | ast.ImportFrom)
        for alias in node.names
        if is_ours(node.module if isinstance(node, ast.ImportFrom) else alias.name)
    }
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and node.args and is_patch(node.func):
            target = node.args[0]
            is_named = isinstance(target, ast.Constant) and is_ours(str(target.value))
            if is_named or ast.unparse(target).split(".")[0] in imported:
                yield node.lineno


def is_patch(function: ast.expr) -> bool:
    name = ast.unparse(function)
    return name.endswith((".setattr", "mock.patch", "patch.object"))


def is_ours(name: str | None) -> bool:
    return name is not None and name.split(".")[0] in OURS


def test_no_test_patches_our_modules() -> None:
    paths = [path for path in TESTS.rglob("*.py") if not path.is_relative_to(MUTANTS)]
    patched = [f"{name_of(path)}:{line}" for path in paths for line in patches(path.read_text())]
    assert patched == []


def test_recognises_a_patch() -> None:
    source = """
from hub.storage import index
from hub.storage.index import Index
import os
monkeypatch.setattr(index, "x", 1)
monkeypatch.setattr(Index, "x", 1)
monkeypatch.setattr("hub.storage.index.x", 1)
monkeypatch.setattr(os, "pwrite", 1)
mock.patch("bridge.verify.x")
mock.patch.object(index.Index, "x")
"""
    assert list(patches(source)) == [5, 6, 7, 9, 10]


def name_of(path: Path) -> str:
    return path.relative_to(TESTS).as_posix()
