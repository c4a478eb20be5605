"""A hub with a history, stores for it, and the commands that carry one to the other."""

from __future__ import annotations

import importlib.util
import itertools
import shutil
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from veen.objects.opened import Store
from veen.objects.settings import FileSettings
from veen.objects.store import open_store

HERE = Path(__file__).parent
SERVER, OBJECTS = HERE.parent / "hub" / "server", HERE.parent / "objects"
_NUMBER = itertools.count(1)


def _load(folder: Path, name: str, file: str | None = None) -> ModuleType:
    """A module of the tests by its bare name, as the scripts beside it import it."""
    if name not in sys.modules:
        spec = importlib.util.spec_from_file_location(name, folder / f"{file or name}.py")
        assert spec is not None
        assert spec.loader is not None
        sys.modules[name] = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(sys.modules[name])
    return sys.modules[name]


for _name in ("spec_objects", "spec_client", "hub_process", "load"):
    _load(SERVER, _name)
for _name in ("object_servers", "fault_proxy"):
    _load(OBJECTS, _name)
_HUBS = _load(HERE.parent / "hub" / "storage", "driven_hubs", "conftest")
_RECORDED, _CARRY = _load(HERE, "recorded"), _load(HERE, "carry")


@pytest.fixture(scope="session")
def carry() -> ModuleType:
    """Push, check, restore and verify in this process."""
    return _CARRY


@pytest.fixture(scope="session")
def driven() -> ModuleType:
    """Hubs that are driven by hand, in this process."""
    return _HUBS


@pytest.fixture(scope="session")
def servers() -> ModuleType:
    return sys.modules["object_servers"]


@pytest.fixture(scope="session")
def proxies() -> ModuleType:
    return sys.modules["fault_proxy"]


@pytest.fixture(scope="session")
def spec() -> ModuleType:
    return sys.modules["spec_objects"]


@pytest.fixture(scope="session")
def load() -> ModuleType:
    return sys.modules["load"]


@pytest.fixture(scope="session")
def moto() -> Iterator[Any]:
    server = sys.modules["object_servers"].moto()
    yield server
    server.stop()


@pytest.fixture(scope="session")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """A stopped hub: what it wrote, and what it answered."""
    return _RECORDED.record(tmp_path_factory.mktemp("recorded"))


@pytest.fixture
def data(recorded: Any, tmp_path: Path) -> Path:
    """A directory of that hub for one test alone."""
    return Path(shutil.copytree(recorded.data, tmp_path / "original" / "data"))


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Where the store of ``store`` lies."""
    return tmp_path / "store"


@pytest.fixture
def store(folder: Path) -> Store:
    return open_store(FileSettings(folder))


@pytest.fixture
def s3(moto: Any) -> Store:
    """An empty bucket, so to speak."""
    servers = sys.modules["object_servers"]
    settings = servers.s3_settings(moto.endpoint, f"archive-{next(_NUMBER)}/")
    return open_store(settings, servers.KEYS)


@pytest.fixture
def run_hub(recorded: Any) -> Iterator[Callable[..., Any]]:
    """Starts a hub on a directory called ``data``; after the test it is gone."""
    started: list[Any] = []

    def run(root: Path, toml: Path | None = None) -> Any:
        assert root.name == "data"
        started.append(sys.modules["hub_process"].HubProcess(root.parent))
        return _RECORDED.start(started[-1], toml or recorded.toml)

    yield run
    for hub in started:
        hub.destroy()
