"""Stores for the tests: a directory, and a bucket of a real server process."""

from __future__ import annotations

import itertools
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from veen.objects.port import HeadStore, ObjectStore, Retention, Store, StoreSettings

_NUMBER = itertools.count(1)


@pytest.fixture(scope="session")
def moto() -> Iterator[Any]:
    """One S3 server for all tests of a process, each with a prefix of its own."""
    from support.objects import object_servers

    server = object_servers.moto()
    yield server
    server.stop()


@pytest.fixture
def start_rclone() -> Iterator[Callable[[Path], Any]]:
    """Starts rclone on a folder; whatever is still running is gone after the test."""
    from support.objects import object_servers

    started: list[Any] = []

    def start(folder: Path) -> Any:
        started.append(object_servers.rclone(folder))
        return started[-1]

    yield start
    for server in started:
        if server.process.poll() is None:
            server.stop()


@pytest.fixture
def quick_folder() -> Iterator[Path]:
    """In memory where there is such a place, for tests that sync thousands of times."""
    memory = Path("/dev/shm")
    with tempfile.TemporaryDirectory(dir=memory if memory.is_dir() else None) as folder:
        yield Path(folder)


@pytest.fixture(params=["files", "s3"])
def store_settings(request: pytest.FixtureRequest, tmp_path: Path) -> StoreSettings:
    """An empty store of each kind."""
    from support.objects import object_servers
    from veen.objects.port import FileSettings

    if request.param == "files":
        return FileSettings(tmp_path / "store")
    endpoint = request.getfixturevalue("moto").endpoint
    prefix = f"test-{next(_NUMBER)}/"
    result: StoreSettings = object_servers.s3_settings(endpoint, prefix)
    return result


@pytest.fixture
def store(store_settings: StoreSettings) -> Store:
    from support.objects import object_servers
    from veen.objects.store import open_store

    return open_store(store_settings, object_servers.KEYS)


@pytest.fixture
def objects(store: Store) -> ObjectStore:
    return store.objects


@pytest.fixture
def heads(store: Store) -> HeadStore:
    return store.heads


@pytest.fixture
def retention(store: Store, store_settings: StoreSettings) -> Retention:
    from support.objects import object_servers
    from veen.objects.store import open_retention

    return open_retention(store_settings, object_servers.KEYS)
