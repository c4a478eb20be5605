"""A hub with a history, stores for it, and the commands that carry one to the other."""

from __future__ import annotations

import itertools
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from support.hub import hub_process
from support.objects import object_servers
from support.recorder import recorded_hub
from veen.objects.port import FileSettings, Store
from veen.objects.store import open_store

_NUMBER = itertools.count(1)


@pytest.fixture(scope="session")
def moto() -> Iterator[Any]:
    server = object_servers.moto()
    yield server
    server.stop()


@pytest.fixture(scope="session")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """A stopped hub: what it wrote, and what it answered."""
    return recorded_hub.record(tmp_path_factory.mktemp("recorded"))


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
    settings = object_servers.s3_settings(moto.endpoint, f"archive-{next(_NUMBER)}/")
    return open_store(settings, object_servers.KEYS)


@pytest.fixture
def run_hub(recorded: Any) -> Iterator[Callable[..., Any]]:
    """Starts a hub on a directory called ``data``; after the test it is gone."""
    started: list[Any] = []

    def run(root: Path, toml: Path | None = None) -> Any:
        assert root.name == "data"
        started.append(hub_process.HubProcess(root.parent))
        return recorded_hub.start(started[-1], toml or recorded.toml)

    yield run
    for hub in started:
        hub.destroy()
