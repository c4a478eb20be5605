"""Checkpoints signed by a hub's key, a time-stamping authority of its own, and places to anchor."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from recorder.checkpoints.store import CheckpointDirectory, CheckpointStore
from support.recorder import anchor_documents, local_tsa
from veen.objects.port import FileSettings, Store
from veen.objects.store import open_store


@pytest.fixture
def noise() -> Callable[[int], bytes]:
    """Random bytes, the same each time."""
    return random.Random(20_261).randbytes


@pytest.fixture(scope="session")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """Certificates and keys of a TSA, made with OpenSSL."""
    return local_tsa.Authority.make(tmp_path_factory.mktemp("authority"), "Test TSA")


@pytest.fixture(scope="session")
def other_authority(tmp_path_factory: pytest.TempPathFactory) -> Any:
    return local_tsa.Authority.make(tmp_path_factory.mktemp("other"), "Other TSA")


@pytest.fixture
def serve() -> Iterator[Callable[[Any], Any]]:
    """Runs an authority behind HTTP on 127.0.0.1 until the test is over."""
    started: list[Any] = []

    def start(authority: Any, **how: Any) -> Any:
        started.append(local_tsa.TsaServer(authority, **how))
        return started[-1]

    yield start
    for item in started:
        item.stop()


@pytest.fixture
def checkpoint_directory(tmp_path: Path) -> CheckpointDirectory:
    return CheckpointDirectory(tmp_path / "home")


@pytest.fixture
def anchor_store(tmp_path: Path) -> Store:
    return open_store(FileSettings(tmp_path / "objects"))


@pytest.fixture
def checkpoint_store(
    checkpoint_directory: CheckpointDirectory, anchor_store: Store
) -> CheckpointStore:
    return CheckpointStore(checkpoint_directory, anchor_documents.HUB.hub_id, anchor_store.objects)
