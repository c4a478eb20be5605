"""Tests do not put anything in the place of our own modules and classes."""

from __future__ import annotations

import ast
import tomllib
from collections.abc import Iterator
from pathlib import Path

from support.paths import ROOT, TESTS

SETTINGS = tomllib.loads((ROOT / "pyproject.toml").read_text())
PACKAGES = SETTINGS["tool"]["hatch"]["build"]["targets"]["wheel"]["packages"]
OURS = {
    *PACKAGES,
    *(path.stem for folder in ("dags", "plugins") for path in (ROOT / folder).iterdir()),
}
MUTANTS = TESTS / "support" / "selftest" / "mutants"
"""They break the processes of a self-test on purpose."""


def methods() -> frozenset[str]:
    """The names of the methods of our classes."""
    paths = [path for folder in (*PACKAGES, "dags", "plugins") for path in modules(ROOT / folder)]
    return frozenset(
        method.name
        for path in paths
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.ClassDef)
        for method in node.body
        if isinstance(method, ast.FunctionDef)
    )


def modules(folder: Path) -> list[Path]:
    return sorted(folder.rglob("*.py"))


def patches(source: str, methods: frozenset[str]) -> Iterator[int]:
    """The lines that put something in the place of what is ours.

    They set an attribute of what is imported from our packages, or give an object another function
    for a method that one of our classes has.
    """
    tree = ast.parse(source)
    imports = [node for node in ast.walk(tree) if isinstance(node, ast.Import | ast.ImportFrom)]
    everything = {imported_name(alias) for node in imports for alias in node.names}
    ours = {
        imported_name(alias)
        for node in imports
        for alias in node.names
        if is_ours(node.module if isinstance(node, ast.ImportFrom) else alias.name)
    }
    functions = {node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)}
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and node.args and is_patch(node.func):
            target, root = node.args[0], root_of(node.args[0])
            is_named = isinstance(target, ast.Constant) and is_ours(str(target.value))
            is_method = root not in everything and attribute_of(node) in methods
            if is_named or root in ours or is_method:
                yield node.lineno
        elif isinstance(node, ast.Assign):
            for target in node.targets:
                if not isinstance(target, ast.Attribute):
                    continue
                root, is_function = root_of(target), is_function_of(node.value, functions)
                is_method = root not in {"self", *everything} and target.attr in methods
                if root in ours or (is_function and is_method):
                    yield node.lineno


def imported_name(alias: ast.alias) -> str:
    return alias.asname or alias.name.split(".")[0]


def root_of(target: ast.expr) -> str:
    return ast.unparse(target).split(".")[0]


def attribute_of(call: ast.Call) -> str | None:
    """The attribute that a call sets, if it names one."""
    name = call.args[1] if len(call.args) > 1 else None
    return str(name.value) if isinstance(name, ast.Constant) else None


def is_function_of(value: ast.expr, functions: set[str]) -> bool:
    return isinstance(value, ast.Lambda) or (isinstance(value, ast.Name) and value.id in functions)


def is_patch(function: ast.expr) -> bool:
    name = ast.unparse(function)
    return name == "setattr" or name.endswith((".setattr", "mock.patch", "patch.object"))


def is_ours(name: str | None) -> bool:
    return name is not None and name.split(".")[0] in OURS


def test_no_test_patches_our_modules() -> None:
    paths, ours = [path for path in modules(TESTS) if not path.is_relative_to(MUTANTS)], methods()
    patched = [
        f"{name_of(path)}:{line}" for path in paths for line in patches(path.read_text(), ours)
    ]
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
setattr(Index, name, 1)
setattr(os, name, 1)
Index.x = 1
os.x = 1
"""
    assert sorted(patches(source, frozenset())) == [5, 6, 7, 9, 10, 11, 13]


def test_recognises_another_function_for_a_method_of_ours() -> None:
    source = """
import os
def f(): ...
hub.seal = f
hub.seal = lambda: 1
hub.inner.seal = f
hub.plan = f
hub.seal = 1
os.seal = f
self.seal = f
monkeypatch.setattr(hub, "seal", f)
monkeypatch.setattr(hub, "plan", f)
monkeypatch.setattr(os, "seal", f)
"""
    assert sorted(patches(source, frozenset({"seal"}))) == [4, 5, 6, 11]


def name_of(path: Path) -> str:
    return path.relative_to(TESTS).as_posix()
