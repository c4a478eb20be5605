"""Replays from hubs: one that signs whatever it is told, and real ones that run as processes."""

from __future__ import annotations

import importlib.util
import shutil
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from veen.client.client import Client
from veen.recorder_checkpoint import RecorderCheckpoint

HERE = Path(__file__).parent
TESTS = HERE.parent


def _load(folder: Path, name: str) -> ModuleType:
    """A module beside the tests, under its own name."""
    if name not in sys.modules:
        spec = importlib.util.spec_from_file_location(name, folder / f"{name}.py")
        assert spec is not None
        assert spec.loader is not None
        sys.modules[name] = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(sys.modules[name])
    return sys.modules[name]


_load(TESTS / "client" / "reading", "lying_hub")
for _name in ("spec_objects", "spec_client", "hub_process"):
    _load(TESTS / "hub" / "server", _name)
_MIDDLE = _load(TESTS / "client", "middle")
_NOTARY = _load(HERE, "notary")
_REAL = _load(HERE, "real_hub")


@dataclass
class World:
    """A hub with three streams, a checkpoint over them, and one who may read them."""

    hub: Any
    client: Client
    checkpoint: RecorderCheckpoint
    folder: Path

    def job(self, wanted: Any, **more: Any) -> Any:
        return _NOTARY.a_job(self.client, wanted, self.checkpoint, **more)


@pytest.fixture(scope="session")
def notary() -> ModuleType:
    return _NOTARY


@pytest.fixture(scope="session")
def real() -> ModuleType:
    return _REAL


@pytest.fixture(scope="session")
def middle() -> ModuleType:
    return _MIDDLE


@pytest.fixture
def quick_path(tmp_path: Path) -> Iterator[Path]:
    """In memory where that can be had, for tests that are not about what a disk keeps."""
    memory = Path("/dev/shm")
    if not memory.is_dir():
        yield tmp_path
        return
    with tempfile.TemporaryDirectory(prefix="veen-replay-", dir=memory) as found:
        yield Path(found)


@pytest.fixture
def world(quick_path: Path) -> Iterator[World]:
    hub = _NOTARY.Notary()
    try:
        with _NOTARY.a_reader(quick_path / "reader", hub.url) as client:
            recipient = client.session.identity.card.recipient(_NOTARY.NOON)
            _NOTARY.fill(hub, recipient)
            yield World(hub, client, _NOTARY.checkpoint_of(hub), quick_path)
    finally:
        hub.close()


@dataclass
class Recorded:
    """What a real hub recorded in three seconds, and who is who."""

    hub: Any
    folder: Path
    checkpoint: RecorderCheckpoint
    authors: tuple[bytes, bytes]
    seconds: tuple[int, ...]
    pristine: Path
    """A copy of its data directory, taken while it was stopped."""


@pytest.fixture(scope="session")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Recorded]:
    """A running hub; whoever wants to stop or change one takes a copy of its directory."""
    folder = tmp_path_factory.mktemp("recorded")
    hub = _REAL.a_hub(folder / "hub").start()
    try:
        yield _record(hub, folder)
    finally:
        hub.destroy()


def _record(hub: Any, folder: Path) -> Recorded:
    seconds = []
    with (
        _REAL.a_client(folder / "reader", hub.url) as reader,
        _REAL.a_client(folder / "p", hub.url) as p,
        _REAL.a_client(folder / "q", hub.url) as q,
    ):
        mine = reader.session.identity.card.recipient(int(time.time()))
        for turn in range(3):
            seconds.append(_REAL.next_second())
            for author in (p, q):
                for stream in _REAL.STREAMS:
                    _REAL.record(author, stream, mine, range(turn * 2, turn * 2 + 2))
        authors = (p.session.identity.client_id, q.session.identity.client_id)
    checkpoint = _REAL.checkpoint(hub.url, folder / "reader")
    (folder / "checkpoint.cbor").write_bytes(checkpoint.encode())
    (folder / "reader" / "state.json").unlink()
    hub.stop()
    shutil.copytree(hub.data, folder / "pristine")
    hub.start()
    return Recorded(hub, folder, checkpoint, authors, tuple(seconds), folder / "pristine")
