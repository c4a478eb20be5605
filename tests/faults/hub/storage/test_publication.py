"""A crash at any write of a seal, a checkpoint or an epoch's end is made good by the next start."""

from __future__ import annotations

import errno
import os
from typing import Any

import pytest

from hub.sequencer.committer import Unavailable
from hub.storage import identity
from hub.storage.index import Index
from hub.storage.label_log import Damaged
from support.hub import driven_hub
from support.long_form import LONG
from veen.system.durable import NoSpace

EPOCHS_LATER = 7_200
BINDINGS = "checkpoint-binding.cborseq"


def assert_clean(bench: Any) -> None:
    """Of a stopped hub: no fault, no stale index, nothing left over, nothing bound twice."""
    report = bench.verify()
    assert (report.faults, report.derived, report.notes) == ((), (), ())
    bound = [(binding.label, binding.upto_seq) for binding in identity.read_bindings(bench.datadir)]
    assert len(bound) == len(set(bound)) == report.checkpoints


@pytest.mark.parametrize("rebuilt", [False, True])
@pytest.mark.parametrize("step", range(1, 11))
def test_a_seal_that_crashed_is_completed(
    bench: Any, crash_at: Any, step: int, rebuilt: bool
) -> None:
    client, stream = driven_hub.a_key("client"), driven_hub.STREAMS[0]
    token = bench.authorize(client)
    bench.send(client, stream, token, 8)
    with crash_at(step):
        bench.send(client, stream, token)
    bench.stop()
    if rebuilt:
        driven_hub.rebuild(bench.root)
    bench.start()
    bench.stop()
    assert_clean(bench)
    bench.start()
    bench.sent[bench.label(stream), client.public] = 8
    bench.send(client, stream, token)
    bench.committer.checkpoint(bench.label(stream), 8, bench.now)
    bench.stop()
    assert_clean(bench)


@pytest.mark.parametrize("upto", [3, 15, 17, 18])
@pytest.mark.parametrize("step", range(1, 6))
def test_a_checkpoint_that_crashed_is_completed(
    bench: Any, crash_at: Any, step: int, upto: int
) -> None:
    """Be it in a sealed chunk or the open one, behind the newest or ahead of it."""
    client, stream = driven_hub.a_key("client"), driven_hub.STREAMS[0]
    bench.send(client, stream, bench.authorize(client), 18)
    with crash_at(step):
        bench.committer.checkpoint(bench.label(stream), upto, bench.now)
    bench.restart()
    bench.stop()
    assert_clean(bench)


@pytest.mark.parametrize("step", range(1, 10))
def test_an_epoch_whose_end_crashed_is_completed(bench: Any, crash_at: Any, step: int) -> None:
    client, stream = driven_hub.a_key("client"), driven_hub.STREAMS[1]
    bench.send(client, stream, bench.authorize(client), 3)
    label = bench.label(stream)
    with crash_at(step):
        bench.committer.tick(bench.now + EPOCHS_LATER)
    bench.restart()
    bench.stop()
    assert_clean(bench)
    bench.start()
    bench.committer.tick(bench.now + EPOCHS_LATER)
    assert bench.committer.log.label(label) is None
    bench.stop()
    assert_clean(bench)


@pytest.mark.parametrize(
    ("first", "second"),
    [(3, 1), (3, 2), (3, 3), (4, 1), (4, 2), (5, 1), (7, 1), (7, 2), (8, 1)],
)
def test_a_start_that_crashed_is_completed_by_the_next(
    bench: Any, crash_at: Any, first: int, second: int
) -> None:
    """The steps of a seal: peaks, checkpoint, its line, binding, row, summary, index, name."""
    client, stream = driven_hub.a_key("client"), driven_hub.STREAMS[0]
    token = bench.authorize(client)
    bench.send(client, stream, token, 8)
    with crash_at(first):
        bench.send(client, stream, token)
    bench.stop()
    with crash_at(second):
        bench.start()
    bench.start()
    bench.stop()
    assert_clean(bench)


def test_a_checkpoint_without_room_is_completed_though_its_epoch_has_ended(
    bench: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    client, stream = driven_hub.a_key("client"), driven_hub.STREAMS[1]
    bench.send(client, stream, bench.authorize(client), 3)
    monkeypatch.setattr(identity, "bind", no_room)
    with pytest.raises(NoSpace):
        bench.committer.checkpoint(bench.label(stream), 2, bench.now)
    monkeypatch.undo()
    bench.committer.tick(bench.now + EPOCHS_LATER)
    bench.stop()
    assert [fault.code for fault in bench.verify().faults] == ["BINDING"]
    bench.start()
    assert bench.committer.log.label(bench.label(stream)) is None
    bench.stop()
    assert_clean(bench)


def test_a_checkpoint_without_room_is_completed_when_it_is_asked_for_again(
    bench: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    client, stream = driven_hub.a_key("client"), driven_hub.STREAMS[0]
    bench.send(client, stream, bench.authorize(client), 3)
    monkeypatch.setattr(Index, "add_checkpoint", no_room)
    with pytest.raises(NoSpace):
        bench.committer.checkpoint(bench.label(stream), 2, bench.now)
    monkeypatch.undo()
    bench.committer.checkpoint(bench.label(stream), 2, bench.now)
    bench.stop()
    assert_clean(bench)


@pytest.mark.parametrize("restarted", [False, True])
def test_nothing_goes_into_a_chunk_that_has_its_summary(
    bench: Any, monkeypatch: pytest.MonkeyPatch, restarted: bool
) -> None:
    client, stream = driven_hub.a_key("client"), driven_hub.STREAMS[0]
    token = bench.authorize(client)
    bench.send(client, stream, token, 3)
    label_log = bench.committer.log.label(bench.label(stream))
    monkeypatch.setattr(Index, "seal", no_room)
    with pytest.raises(NoSpace):
        bench.committer.log.seal(label_log, bench.now)
    monkeypatch.undo()
    if restarted:
        bench.restart()
    bench.send(client, stream, token)
    bench.stop()
    ends = [path.name[-24:-4] for path in (bench.root / "log").glob("chunk-*.log")]
    assert ends == [f"{3:020d}"]
    report = bench.verify()
    assert (report.faults, report.derived) == ((), ())
    assert [note for note in report.notes if "sealed early" not in note] == []


def test_an_epoch_that_found_no_room_for_its_first_message_leaves_nothing(
    bench: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    client, stream = driven_hub.a_key("client"), driven_hub.STREAMS[1]
    token = bench.authorize(client)
    monkeypatch.setattr(os, "pwrite", full_disk)
    (outcome,) = bench.send(client, stream, token)
    monkeypatch.undo()
    assert isinstance(outcome, Unavailable)
    assert len(list(bench.datadir.log.glob("*.open"))) == 2
    bench.committer.tick(bench.now + EPOCHS_LATER)
    bench.stop()
    assert len(list(bench.datadir.log.glob("*.open"))) == 1
    assert_clean(bench)


def full_disk(*_: object) -> int:
    raise OSError(errno.ENOSPC, "No space left on device")


def no_room(*_: object) -> None:
    raise NoSpace("no room")


def test_a_line_of_the_manifest_torn_at_any_byte_is_made_whole(bench: Any, crash_at: Any) -> None:
    """The first line of all, which no whole one precedes, and the second."""
    client, stream = driven_hub.a_key("client"), driven_hub.STREAMS[0]
    token = bench.authorize(client)
    bench.send(client, stream, token, 3)
    path, before = bench.root / BINDINGS, b""
    for upto in (1, 2):
        with crash_at(4):
            bench.committer.checkpoint(bench.label(stream), upto, bench.now)
        bench.stop()
        bench.start()
        bench.stop()
        whole = path.read_bytes()
        for torn in range(len(before) + 1, len(whole), 1 if LONG else 7):
            path.write_bytes(whole[:torn])
            forget(bench, upto)
            assert [fault.code for fault in bench.verify().faults] == ["BINDING"]
            bench.start()
            bench.stop()
            assert path.read_bytes() == whole
        bench.start()
        before = whole
    bench.stop()
    assert_clean(bench)


def forget(bench: Any, upto: int) -> None:
    """The row of a checkpoint, which a crash in the middle of its publication never made."""
    index = Index(bench.datadir.index, writable=True)
    index._db.execute("DELETE FROM checkpoints WHERE upto_seq = ?", (upto,))
    index.close()


def test_a_sealed_chunk_that_is_gone_is_refused_at_the_start(bench: Any) -> None:
    client, stream = driven_hub.a_key("client"), driven_hub.STREAMS[0]
    bench.send(client, stream, bench.authorize(client), 9)
    bench.stop()
    driven_hub.the(bench.root, "log/*.log").unlink()
    with pytest.raises(Damaged, match="is missing"):
        bench.start()
