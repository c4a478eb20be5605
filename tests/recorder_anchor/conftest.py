"""Checkpoints signed by a hub's key, a time-stamping authority of its own, and places to anchor."""

from __future__ import annotations

import importlib.util
import random
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from recorder.checkpoints.home import Home
from recorder.checkpoints.shelf import Shelf
from veen.objects.opened import Store
from veen.objects.settings import FileSettings
from veen.objects.store import open_store

HERE = Path(__file__).parent
SERVER = HERE.parent / "hub" / "server"


def _load(folder: Path, name: str) -> ModuleType:
    """A module beside the tests, under its own name."""
    if name not in sys.modules:
        spec = importlib.util.spec_from_file_location(name, folder / f"{name}.py")
        assert spec is not None
        assert spec.loader is not None
        sys.modules[name] = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(sys.modules[name])
    return sys.modules[name]


_DOCUMENTS, _TSA = _load(HERE, "anchor_documents"), _load(HERE, "local_tsa")
for _name in ("spec_objects", "spec_client", "hub_process"):
    _load(SERVER, _name)


@pytest.fixture(scope="session")
def processes() -> ModuleType:
    """How hubs are run as processes."""
    return sys.modules["hub_process"]


@pytest.fixture(scope="session")
def documents() -> ModuleType:
    """Builders of recorder checkpoints."""
    return _DOCUMENTS


@pytest.fixture
def noise() -> Callable[[int], bytes]:
    """Random bytes, the same each time."""
    return random.Random(20_261).randbytes


@pytest.fixture(scope="session")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """Certificates and keys of a TSA, made with OpenSSL."""
    return _TSA.Authority.make(tmp_path_factory.mktemp("authority"), "Test TSA")


@pytest.fixture(scope="session")
def other_authority(tmp_path_factory: pytest.TempPathFactory) -> Any:
    return _TSA.Authority.make(tmp_path_factory.mktemp("other"), "Other TSA")


@pytest.fixture
def serve() -> Iterator[Callable[[Any], Any]]:
    """Runs an authority behind HTTP on 127.0.0.1 until the test is over."""
    started: list[Any] = []

    def start(authority: Any, **how: Any) -> Any:
        started.append(_TSA.TsaServer(authority, **how))
        return started[-1]

    yield start
    for one in started:
        one.stop()


@pytest.fixture
def home(tmp_path: Path) -> Home:
    return Home(tmp_path / "home")


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return open_store(FileSettings(tmp_path / "objects"))


@pytest.fixture
def shelf(home: Home, store: Store) -> Shelf:
    return Shelf(home, _DOCUMENTS.HUB.hub_id, store.objects)
