"""Replays from hubs: one that signs whatever it is told, and real ones that run as processes."""

from __future__ import annotations

import shutil
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from support.recorder import replay_hub, replay_notary
from veen.client.client import Client
from veen.client.verified_read import PAGE_ITEMS
from veen.recorder_checkpoint import RecorderCheckpoint


@dataclass
class World:
    """A hub with three streams, a checkpoint over them, and one who may read them."""

    hub: Any
    client: Client
    checkpoint: RecorderCheckpoint
    folder: Path
    page_items: int = PAGE_ITEMS

    def job(self, requested: Any, **more: Any) -> Any:
        return replay_notary.a_job(self.client, requested, self.checkpoint, self.page_items, **more)


@pytest.fixture
def quick_path(tmp_path: Path) -> Iterator[Path]:
    """In memory where that can be had, for tests that are not about what a disk keeps."""
    memory = Path("/dev/shm")
    if not memory.is_dir():
        yield tmp_path
        return
    with tempfile.TemporaryDirectory(prefix="veen-replay-", dir=memory) as directory:
        yield Path(directory)


@pytest.fixture
def replay_world(quick_path: Path) -> Iterator[World]:
    hub = replay_notary.Notary()
    try:
        with replay_notary.a_reader(quick_path / "reader", hub.url) as client:
            recipient = client.session.identity.card.recipient(replay_notary.NOON)
            replay_notary.fill(hub, recipient)
            yield World(hub, client, replay_notary.checkpoint_of(hub), quick_path)
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
    hub = replay_hub.a_hub(folder / "hub").start()
    try:
        yield _record(hub, folder)
    finally:
        hub.destroy()


def _record(hub: Any, folder: Path) -> Recorded:
    seconds = []
    with (
        replay_hub.a_client(folder / "reader", hub.url) as reader,
        replay_hub.a_client(folder / "p", hub.url) as p,
        replay_hub.a_client(folder / "q", hub.url) as q,
    ):
        mine = reader.session.identity.card.recipient(int(time.time()))
        for turn in range(3):
            seconds.append(replay_hub.next_second())
            for author in (p, q):
                for stream in replay_hub.STREAMS:
                    replay_hub.record(author, stream, mine, range(turn * 2, turn * 2 + 2))
        authors = (p.session.identity.client_id, q.session.identity.client_id)
    checkpoint = replay_hub.checkpoint(hub.url, folder / "reader")
    (folder / "checkpoint.cbor").write_bytes(checkpoint.encode())
    (folder / "reader" / "state.json").unlink()
    hub.stop()
    shutil.copytree(hub.data, folder / "pristine")
    hub.start()
    return Recorded(hub, folder, checkpoint, authors, tuple(seconds), folder / "pristine")
