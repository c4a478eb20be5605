"""A hub with a history, stores for it, and the commands that carry one to the other."""

from __future__ import annotations

import itertools
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from veen.objects.port import Store

_NUMBER = itertools.count(1)


@pytest.fixture(scope="session")
def stopped_hub(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """A stopped hub: what it wrote, and what it answered."""
    from support.recorder import recorded_hub

    return recorded_hub.record(tmp_path_factory.mktemp("recorded"))


@pytest.fixture
def hub_data(stopped_hub: Any, tmp_path: Path) -> Path:
    """A directory of that hub for one test alone."""
    return Path(shutil.copytree(stopped_hub.data, tmp_path / "original" / "data"))


@pytest.fixture
def store_folder(tmp_path: Path) -> Path:
    """Where the store of ``file_store`` lies."""
    return tmp_path / "store"


@pytest.fixture
def file_store(store_folder: Path) -> Store:
    from veen.objects.port import FileSettings
    from veen.objects.store import open_store

    return open_store(FileSettings(store_folder))


@pytest.fixture
def s3_store(moto: Any) -> Store:
    """An empty prefix of a bucket."""
    from support.objects import object_servers
    from veen.objects.store import open_store

    settings = object_servers.s3_settings(moto.endpoint, f"archive-{next(_NUMBER)}/")
    return open_store(settings, object_servers.KEYS)


@pytest.fixture
def run_hub(stopped_hub: Any) -> Iterator[Callable[..., Any]]:
    """Starts a hub on a directory called ``data``; after the test it is gone."""
    from support.hub import hub_process
    from support.recorder import recorded_hub

    started: list[Any] = []

    def run(root: Path, toml: Path | None = None) -> Any:
        assert root.name == "data"
        started.append(hub_process.HubProcess(root.parent))
        return recorded_hub.start(started[-1], toml or stopped_hub.toml)

    yield run
    for hub in started:
        hub.destroy()
