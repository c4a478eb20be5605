"""The folders whose modules tests import by bare names: no name stands twice or hides another."""

from __future__ import annotations

import sys
import tomllib
from collections import Counter
from importlib.machinery import PathFinder
from pathlib import Path

from support.paths import ROOT

SETTINGS = tomllib.loads((ROOT / "pyproject.toml").read_text())
FOLDERS = [ROOT / item for item in SETTINGS["tool"]["pytest"]["ini_options"]["pythonpath"]]
PROJECT = SETTINGS["tool"]["hatch"]["build"]["targets"]["wheel"]["packages"]


def importable(folder: Path) -> set[str]:
    """The modules and packages of a folder, without tests."""
    modules = {path.stem for path in folder.glob("*.py") if not path.name.startswith("test_")}
    return modules - {"conftest"} | {path.parent.name for path in folder.glob("*/__init__.py")}


NAMES = Counter(name for folder in FOLDERS for name in importable(folder))


def test_every_folder_has_modules() -> None:
    assert [folder for folder in FOLDERS if not importable(folder)] == []


def test_no_name_stands_twice() -> None:
    assert [name for name, count in NAMES.items() if count > 1] == []


def test_no_name_hides_what_is_installed_or_ours() -> None:
    elsewhere = [item for item in sys.path if item and Path(item) not in {ROOT, *FOLDERS}]
    hidden = {name for name in NAMES if PathFinder.find_spec(name, elsewhere)}
    assert hidden | NAMES.keys() & {*sys.stdlib_module_names, *PROJECT} == set()
