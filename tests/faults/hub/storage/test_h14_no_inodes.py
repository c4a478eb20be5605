"""H14: no room for another file is E.UNAVAILABLE, wherever it strikes, and passes with the room."""

from __future__ import annotations

import errno
import sqlite3
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from hub.sequencer.committer import Unavailable
from hub.storage.datadir import DataDir, DataDirLock
from hub.storage.index import Index
from support.hub import driven_hub, small_disk
from veen.label import DEFAULT_PROFILE
from veen.log.entry import StreamRecord
from veen.system import durable
from veen.system.durable import NoSpace

STREAM, EPOCHS = driven_hub.STREAMS


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    with small_disk.mounted(tmp_path / "disk", inodes=400) as path:
        yield path


class FullBench(driven_hub.Bench):
    """A hub with a client that has sent 8 entries, and the inodes of its disk."""

    def __init__(self, disk: Path) -> None:
        super().__init__(disk / "hub")
        self.client = driven_hub.a_key("client")
        self.token = self.authorize(self.client)
        self.send(self.client, STREAM, self.token, 8)
        self.inodes = small_disk.Inodes(disk)


@pytest.fixture
def full(disk: Path) -> Iterator[Any]:
    """A hub on a disk whose inodes can be taken; 8 entries fill the open chunk of a stream."""
    bench = FullBench(disk)
    yield bench
    bench.stop()


def refused(bench: Any, stream: StreamRecord) -> None:
    """One message is refused as unavailable; it is sent again by its number later."""
    (outcome,) = bench.send(bench.client, stream, bench.token)
    assert isinstance(outcome, Unavailable), outcome
    bench.sent[bench.label(stream), bench.client.public] -= 1


def sound(bench: Any) -> None:
    bench.stop()
    report = bench.verify()
    assert (report.faults, report.derived) == ((), ())
    bench.start()


def test_h14_a_new_label_without_inodes_waits_for_room(full: Any) -> None:
    for left in range(3):
        full.inodes.take_all_but(left)
        if left < 2:
            refused(full, EPOCHS)
        full.inodes.give_back()
    assert isinstance(full.send(full.client, EPOCHS, full.token)[0], bytes)
    sound(full)


@pytest.mark.parametrize("left", range(6))
def test_h14_a_seal_without_inodes_waits_for_room(full: Any, left: int) -> None:
    """Peaks, checkpoint, index, bindings, summary, the next chunk: each needs a file of its own."""
    full.inodes.take_all_but(left)
    (outcome,) = full.send(full.client, STREAM, full.token)
    if isinstance(outcome, Unavailable):
        full.sent[full.label(STREAM), full.client.public] -= 1
        full.inodes.give_back()
        (outcome,) = full.send(full.client, STREAM, full.token)
    else:
        assert left >= 5
    assert isinstance(outcome, bytes)
    sound(full)


def test_h14_checkpoints_streams_and_documents_wait_for_room(full: Any) -> None:
    committer, label = full.committer, full.label(STREAM)
    profile_id = DEFAULT_PROFILE.profile_id()
    committer.checkpoint(label, 4, full.now)
    full.inodes.take_all_but(0)
    with pytest.raises(NoSpace):
        committer.checkpoint(label, 5, full.now)
    with pytest.raises(NoSpace):
        committer.recorder_checkpoint(profile_id, full.now, force=True)
    full.inodes.give_back()
    committer.checkpoint(label, 5, full.now)
    committer.recorder_checkpoint(profile_id, full.now, force=True)
    committer.register(StreamRecord(name="extra/d", profile=DEFAULT_PROFILE), full.now)
    sound(full)


def test_h14_an_epoch_that_ends_without_inodes_is_closed_later(full: Any) -> None:
    full.send(full.client, EPOCHS, full.token, 3)
    label = full.label(EPOCHS)
    full.inodes.take_all_but(0)
    with pytest.raises(NoSpace):
        full.committer.tick(full.now + 7_200)
    full.inodes.give_back()
    full.committer.tick(full.now + 7_200)
    assert full.committer.log.label(label) is None
    sound(full)


def test_h14_a_first_start_without_inodes_says_so(disk: Path) -> None:
    inodes = small_disk.Inodes(disk)
    datadir = DataDir(disk / "hub")
    inodes.take_all_but(2)
    with pytest.raises(NoSpace, match="disk full"):
        datadir.create()
    inodes.give_back()
    datadir.create()
    inodes.take_all_but(0)
    with pytest.raises(NoSpace, match="disk full"):
        DataDirLock(datadir)
    inodes.give_back()


def test_h14_a_name_that_finds_no_room_leaves_the_file_where_it_was(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A directory may need another block for a name."""

    def full_directory(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    (tmp_path / "old").write_bytes(b"old")
    monkeypatch.setattr(Path, "rename", full_directory)
    with pytest.raises(NoSpace):
        durable.rename(tmp_path / "old", tmp_path / "new")
    with pytest.raises(NoSpace):
        durable.write(tmp_path / "old", b"new")
    monkeypatch.undo()
    assert [(path.name, path.read_bytes()) for path in tmp_path.iterdir()] == [("old", b"old")]


def test_h14_an_index_that_cannot_be_extended_is_no_room(disk: Path) -> None:
    """SQLite calls a file it cannot make CANTOPEN; the disk tells whether it is full."""
    index = Index(disk / "index.sqlite", writable=True)
    index.create(bytes(32))
    error = sqlite3.OperationalError("unable to open database file")
    error.sqlite_errorcode = sqlite3.SQLITE_CANTOPEN
    with pytest.raises(sqlite3.OperationalError), index.transaction():
        raise error
    inodes = small_disk.Inodes(disk)
    inodes.take_all_but(0)
    with pytest.raises(NoSpace), index.transaction():
        raise error
    inodes.give_back()
    index.close()
