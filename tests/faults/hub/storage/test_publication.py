"""A crash at any write of a seal, a checkpoint or an epoch's end is made good by the next start."""

from __future__ import annotations

import errno
import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from hub.sequencer.committer import Unavailable
from hub.storage import identity
from hub.storage.index import Index
from hub.storage.label_log import Damaged
from support.hub import driven_hub, small_disk
from support.hub.driven_hub import STREAMS
from support.long_form import LONG
from veen.system.durable import NoSpace

EPOCHS_LATER = 7_200
BINDINGS = "checkpoint-binding.cborseq"
PUBLISHING = (1, 3, 5, 7, 9, 11, 13, 14)
"""Steps of a checkpoint: peaks, the checkpoint, its line (written, then counted), binding, row.

Just after a step is just before the next, except where SQLite commits in between."""
SEALING = (15, 17, 18, 19, 20)
"""Steps of a seal after its checkpoint: summary (written, then named), index, name, the end."""


def assert_clean(bench: Any) -> None:
    """Of a stopped hub: no fault, no stale index, nothing left over, nothing bound twice."""
    report = bench.verify()
    assert (report.faults, report.derived, report.notes) == ((), (), ())
    bound = [(binding.label, binding.upto_seq) for binding in identity.read_bindings(bench.datadir)]
    assert len(bound) == len(set(bound)) == report.checkpoints


@pytest.mark.parametrize("rebuilt", [False, True])
@pytest.mark.parametrize("step", [*PUBLISHING, *SEALING, 21, 22, 23, 24])
def test_a_seal_that_crashed_is_completed(
    hub_bench: Any, crash_at: Any, step: int, rebuilt: bool
) -> None:
    client, stream = driven_hub.a_key("client"), driven_hub.STREAMS[0]
    token = hub_bench.authorize(client)
    hub_bench.send(client, stream, token, 8)
    with crash_at(step):
        hub_bench.send(client, stream, token)
    hub_bench.stop()
    if rebuilt:
        driven_hub.rebuild(hub_bench.root)
    hub_bench.start()
    hub_bench.stop()
    assert_clean(hub_bench)
    hub_bench.start()
    hub_bench.sent[hub_bench.label(stream), client.public] = 8
    hub_bench.send(client, stream, token)
    hub_bench.committer.checkpoint(hub_bench.label(stream), 8, hub_bench.now)
    hub_bench.stop()
    assert_clean(hub_bench)


@pytest.mark.parametrize(
    ("step", "upto"),
    [
        *((step, upto) for step in PUBLISHING for upto in (17, 18)),
        # A line behind the last is not counted in a head: one operation less.
        *((step, upto) for step in PUBLISHING if step <= 12 for upto in (3, 15)),
    ],
)
def test_a_checkpoint_that_crashed_is_completed(
    hub_bench: Any, crash_at: Any, step: int, upto: int
) -> None:
    """Be it in a sealed chunk or the open one, behind the newest or ahead of it."""
    client, stream = driven_hub.a_key("client"), driven_hub.STREAMS[0]
    hub_bench.send(client, stream, hub_bench.authorize(client), 18)
    with crash_at(step):
        hub_bench.committer.checkpoint(hub_bench.label(stream), upto, hub_bench.now)
    hub_bench.restart()
    hub_bench.stop()
    assert_clean(hub_bench)


@pytest.mark.parametrize("step", [*PUBLISHING, *SEALING])
def test_an_epoch_whose_end_crashed_is_completed(hub_bench: Any, crash_at: Any, step: int) -> None:
    client, stream = driven_hub.a_key("client"), driven_hub.STREAMS[1]
    hub_bench.send(client, stream, hub_bench.authorize(client), 3)
    label = hub_bench.label(stream)
    with crash_at(step):
        hub_bench.committer.tick(hub_bench.now + EPOCHS_LATER)
    hub_bench.restart()
    hub_bench.stop()
    assert_clean(hub_bench)
    hub_bench.start()
    hub_bench.committer.tick(hub_bench.now + EPOCHS_LATER)
    assert hub_bench.committer.log.label(label) is None
    hub_bench.stop()
    assert_clean(hub_bench)


@pytest.mark.parametrize(
    ("first", "second"),
    [(9, 5), (9, 7), (9, 9), (9, 10), (13, 5), (13, 6), (14, 4), (18, 3), (18, 4), (19, 3)],
)
def test_a_start_that_crashed_is_completed_by_the_next(
    hub_bench: Any, crash_at: Any, first: int, second: int
) -> None:
    """A start writes what is missing of the nodes before it completes a seal."""
    client, stream = driven_hub.a_key("client"), driven_hub.STREAMS[0]
    token = hub_bench.authorize(client)
    hub_bench.send(client, stream, token, 8)
    with crash_at(first):
        hub_bench.send(client, stream, token)
    hub_bench.stop()
    with crash_at(second):
        hub_bench.start()
    hub_bench.start()
    hub_bench.stop()
    assert_clean(hub_bench)


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    with small_disk.mounted(tmp_path / "disk", inodes=400, size="2m") as path:
        yield path


def test_a_checkpoint_without_room_is_completed_though_its_epoch_has_ended(disk: Path) -> None:
    """Peaks, the checkpoint and its line are files; there is none left for its binding."""
    bench, inodes = driven_hub.Bench(disk / "hub"), small_disk.Inodes(disk)
    client, stream = driven_hub.a_key("client"), driven_hub.STREAMS[1]
    bench.send(client, stream, bench.authorize(client), 3)
    inodes.take_all_but(3)
    with pytest.raises(NoSpace):
        bench.committer.checkpoint(bench.label(stream), 2, bench.now)
    inodes.give_back()
    bench.committer.tick(bench.now + EPOCHS_LATER)
    bench.stop()
    assert [fault.code for fault in bench.verify().faults] == ["BINDING"]
    bench.start()
    assert bench.committer.log.label(bench.label(stream)) is None
    bench.stop()
    assert_clean(bench)


def test_a_checkpoint_without_room_is_completed_when_it_is_asked_for_again(disk: Path) -> None:
    """With one block more each time, until there is room; the row in the index is the last."""
    bound_without_row, left = False, 0
    while (bound := checkpoint_without_room(disk, left)) is not None:
        bound_without_row, left = bound_without_row or bound, left + 1
    assert bound_without_row


def checkpoint_without_room(disk: Path, left: int) -> bool | None:
    """Whether a checkpoint that fails with so many blocks is bound; None if it succeeds."""
    bench, blocks = driven_hub.Bench(disk / "hub"), small_disk.Blocks(disk)
    client, stream = driven_hub.a_key("client"), STREAMS[0]
    bench.send(client, stream, bench.authorize(client), 3)
    blocks.take_all_but(left)
    is_bound = None
    try:
        bench.committer.checkpoint(bench.label(stream), 2, bench.now)
    except NoSpace:
        is_bound = list(identity.read_bindings(bench.datadir)) != []
    blocks.give_back()
    bench.committer.checkpoint(bench.label(stream), 2, bench.now)
    bench.stop()
    assert_clean(bench)
    shutil.rmtree(bench.root)
    return is_bound


@pytest.mark.parametrize("restarted", [False, True])
def test_nothing_goes_into_a_chunk_that_has_its_summary(disk: Path, restarted: bool) -> None:
    """With one block more each time, until the index has room for the seal as well."""
    sealed = [seal_without_room(disk, left := 0, restarted)]
    while not sealed[-1]:
        sealed.append(seal_without_room(disk, left := left + 1, restarted))
    assert sealed[0] is None
    assert False in sealed, "no disk had room for the summary alone"


def seal_without_room(disk: Path, left: int, restarted: bool) -> bool | None:
    """Whether the seal is complete with so many blocks; None if it has not come to its summary."""
    bench, blocks = driven_hub.Bench(disk / "hub"), small_disk.Blocks(disk)
    client, stream = driven_hub.a_key("client"), STREAMS[0]
    token = bench.authorize(client)
    bench.send(client, stream, token, 3)
    label_log = bench.committer.log.label(bench.label(stream))
    blocks.take_all_but(left)
    try:
        bench.committer.log.seal(label_log, bench.now)
    except NoSpace:
        is_complete = False
    else:
        is_complete = True
    blocks.give_back()
    has_summary = list((bench.root / "log").glob("chunk-*.summary")) != []
    if restarted:
        bench.restart()
    bench.send(client, stream, token)
    bench.stop()
    if has_summary:
        ends = [path.name[-24:-4] for path in (bench.root / "log").glob("chunk-*.log")]
        assert ends == [f"{3:020d}"]
    else:
        # The next start completes its checkpoint.
        bench.start()
        bench.stop()
    report = bench.verify()
    assert (report.faults, report.derived) == ((), ())
    assert [note for note in report.notes if "sealed early" not in note] == []
    shutil.rmtree(bench.root)
    return is_complete if has_summary else None


def test_an_epoch_that_found_no_room_for_its_first_message_leaves_nothing(
    hub_bench: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    client, stream = driven_hub.a_key("client"), driven_hub.STREAMS[1]
    token = hub_bench.authorize(client)
    monkeypatch.setattr(os, "pwrite", full_disk)
    (outcome,) = hub_bench.send(client, stream, token)
    monkeypatch.undo()
    assert isinstance(outcome, Unavailable)
    assert len(list(hub_bench.datadir.log.glob("*.open"))) == 2
    hub_bench.committer.tick(hub_bench.now + EPOCHS_LATER)
    hub_bench.stop()
    assert len(list(hub_bench.datadir.log.glob("*.open"))) == 1
    assert_clean(hub_bench)


def full_disk(*_: object) -> int:
    raise OSError(errno.ENOSPC, "No space left on device")


def test_a_line_of_the_manifest_torn_at_any_byte_is_made_whole(
    hub_bench: Any, crash_at: Any
) -> None:
    """The first line of all, which no whole one precedes, and the second."""
    client, stream = driven_hub.a_key("client"), driven_hub.STREAMS[0]
    token = hub_bench.authorize(client)
    hub_bench.send(client, stream, token, 3)
    path, before = hub_bench.root / BINDINGS, b""
    for upto in (1, 2):
        with crash_at(13):
            hub_bench.committer.checkpoint(hub_bench.label(stream), upto, hub_bench.now)
        hub_bench.stop()
        hub_bench.start()
        hub_bench.stop()
        whole = path.read_bytes()
        for torn in range(len(before) + 1, len(whole), 1 if LONG else 7):
            path.write_bytes(whole[:torn])
            forget(hub_bench, upto)
            assert [fault.code for fault in hub_bench.verify().faults] == ["BINDING"]
            hub_bench.start()
            hub_bench.stop()
            assert path.read_bytes() == whole
        hub_bench.start()
        before = whole
    hub_bench.stop()
    assert_clean(hub_bench)


def forget(bench: Any, upto: int) -> None:
    """The row of a checkpoint, which a crash in the middle of its publication never made."""
    index = Index(bench.datadir.index, writable=True)
    index._db.execute("DELETE FROM checkpoints WHERE upto_seq = ?", (upto,))
    index.close()


def test_a_sealed_chunk_that_is_gone_is_refused_at_the_start(hub_bench: Any) -> None:
    client, stream = driven_hub.a_key("client"), driven_hub.STREAMS[0]
    hub_bench.send(client, stream, hub_bench.authorize(client), 9)
    hub_bench.stop()
    driven_hub.the(hub_bench.root, "log/*.log").unlink()
    with pytest.raises(Damaged, match="is missing"):
        hub_bench.start()
