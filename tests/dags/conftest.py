"""The modules of dags/ under their own names, and one pair of zones for all tests here."""

from __future__ import annotations

import importlib.util
import os
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
sys.path.append(str(ROOT / "dags"))


def _load(name: str, folder: Path = HERE) -> ModuleType:
    """A module beside the tests, under its own name."""
    if name not in sys.modules:
        spec = importlib.util.spec_from_file_location(name, folder / f"{name}.py")
        assert spec is not None
        assert spec.loader is not None
        sys.modules[name] = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(sys.modules[name])
    return sys.modules[name]


_ZONES = _load("dag_zones")
_load("dag_queries")
_load("dag_steps")


@pytest.fixture(scope="session")
def database() -> Iterator[Any]:
    # Each pytest that starts closes the folder of all of them to other users; PostgreSQL is one.
    with (
        tempfile.TemporaryDirectory(prefix="veen-dags-") as folder,
        _ZONES.database(Path(folder)) as found,
    ):
        yield found


@pytest.fixture(scope="module")
def pair(database: Any, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """An online zone z1 with events, and an offline zone z2; both hubs run."""
    with _ZONES.zone_pair(tmp_path_factory.mktemp("pair"), database) as found:
        found[0].emit(20)
        yield found


@pytest.fixture(scope="session")
def is_long() -> bool:
    return bool(os.environ.get("VEEN_TEST_LONG"))


@pytest.fixture(scope="session")
def servers() -> ModuleType:
    return _load("object_servers", HERE.parent / "objects")


@pytest.fixture(scope="session")
def standalone() -> ModuleType:
    return _load("standalone", HERE.parent / "spark")
