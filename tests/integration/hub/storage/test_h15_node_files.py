"""H15: a missing or stale node file never reaches a signature, and what was signed is mended."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from hub.storage import retention
from hub.storage.contradictions import stored_checkpoints
from hub.storage.datadir import DataDir
from hub.storage.index import ChunkRow
from hub.storage.label_log import Damaged, write_peaks
from hub.storage.reader import LogReader
from support.hub import driven_hub
from veen import captoken, mmr
from veen.checkpoint import Checkpoint
from veen.label import DEFAULT_PROFILE
from veen.log import layout
from veen.log.entry import Entry, StreamRecord

STREAM = driven_hub.STREAMS[0]
EPOCHS = driven_hub.STREAMS[1]


@pytest.fixture
def filled(hub_bench: Any) -> Any:
    """A hub with two sealed chunks of 8 entries and 3 in the open one."""
    hub_bench.client = driven_hub.a_key("client")
    hub_bench.token = hub_bench.authorize(hub_bench.client)
    hub_bench.send(hub_bench.client, STREAM, hub_bench.token, 19)
    return hub_bench


def nodes_of(bench: Any) -> Path:
    return Path(bench.datadir.nodes(bench.label(STREAM)))


def agrees_with_receipt(bench: Any, checkpoint: Checkpoint) -> bool:
    reader = LogReader(bench.datadir, bench.limits)
    due = reader.receipt(checkpoint.label_curr, checkpoint.upto_seq).mmr_root
    reader.close()
    return checkpoint.mmr_root == due


def delete(path: Path) -> None:
    path.unlink()


def hollow(path: Path) -> None:
    path.write_bytes(bytes(path.stat().st_size))


def shorten(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:96])


def spoil_inside(path: Path) -> None:
    """The peaks at every chunk's end are right, a leaf between is not."""
    raw = bytearray(path.read_bytes())
    at = mmr.position(0, 2) * 32
    raw[at : at + 32] = bytes(32)
    path.write_bytes(raw)


@pytest.mark.parametrize("damage", [delete, hollow, shorten, spoil_inside])
@pytest.mark.parametrize("upto", [3, 19])
def test_h15_a_checkpoint_says_what_the_receipt_says(filled: Any, damage: Any, upto: int) -> None:
    filled.stop()
    damage(nodes_of(filled))
    filled.start()
    signed = filled.committer.checkpoint(filled.label(STREAM), upto, filled.now)
    assert agrees_with_receipt(filled, signed)
    filled.send(filled.client, STREAM, filled.token, 9)
    filled.restart()
    filled.stop()
    report = filled.verify()
    assert report.faults == ()
    if upto == 3 or damage is not spoil_inside:
        assert report.derived == ()


def test_h15_a_node_file_lost_while_the_label_was_idle_is_made_again(filled: Any) -> None:
    """So many labels are written that the hub closes the files of the first."""
    others = [StreamRecord(name=f"other/{n}", profile=DEFAULT_PROFILE) for n in range(64)]
    for other in others:
        filled.committer.register(other, filled.now)
    token = captoken.issue(
        driven_hub.ISSUER,
        subject_pk=filled.client.public,
        stream_ids=[other.stream_id() for other in others],
        ttl=10**9,
        rate=None,
    )
    filled.committer.authorize(token, filled.now)
    for other in others:
        assert isinstance(filled.send(filled.client, other, token)[0], bytes)
    assert not filled.committer.log.label(filled.label(STREAM)).nodes.is_open
    nodes_of(filled).unlink()
    filled.send(filled.client, STREAM, filled.token)
    signed = filled.committer.checkpoint(filled.label(STREAM), 20, filled.now)
    assert agrees_with_receipt(filled, signed)
    filled.stop()
    report = filled.verify()
    assert (report.faults, report.derived) == ((), ())


def test_h15_the_node_file_of_a_closed_label_is_made_again(filled: Any) -> None:
    filled.send(filled.client, EPOCHS, filled.token, 11)
    label = filled.label(EPOCHS)
    filled.committer.tick(filled.now + 7_200)
    filled.stop()
    whole = filled.datadir.nodes(label).read_bytes()
    filled.datadir.nodes(label).unlink()
    filled.start()
    filled.stop()
    assert filled.datadir.nodes(label).read_bytes() == whole


def test_h15_a_log_that_contradicts_itself_is_not_signed(filled: Any) -> None:
    """The last line of defence: nodes, chunks and memory agree, the receipt alone does not."""
    reader = LogReader(filled.datadir, filled.limits)
    label = filled.label(STREAM)
    last, before = reader.entry(label, 19), reader.receipt(label, 18)
    reader.close()
    wrong = last.receipt_bytes.replace(last.receipt().mmr_root, before.mmr_root)
    chunk = driven_hub.the(filled.root, f"log/chunk-{label.hex()}-*.open")
    entries, frame = chunk.read_bytes(), last.encode(label, 19)
    assert entries.endswith(frame)
    chunk.write_bytes(entries.removesuffix(frame) + Entry(last.msg_bytes, wrong).encode(label, 19))
    with pytest.raises(Damaged, match="nothing was signed"):
        filled.committer.checkpoint(label, 19, filled.now)
    assert not filled.datadir.file(layout.checkpoint(label, 19)).exists()
    filled.stop()


@pytest.mark.parametrize("damage", [None, delete, hollow])
def test_h15_a_checkpoint_in_a_pruned_chunk_says_what_its_leaves_say(
    filled: Any, damage: Any
) -> None:
    label = filled.label(STREAM)
    reader = LogReader(filled.datadir, filled.limits)
    due = reader.receipt(label, 5).mmr_root
    reader.close()
    filled.stop()
    first = layout.ChunkName(label, 1, 8)
    retention.prune(filled.datadir, [first], limits=filled.limits, move_to=None, now=filled.now)
    if damage is not None:
        damage(nodes_of(filled))
    filled.start()
    assert filled.committer.checkpoint(label, 5, filled.now).mmr_root == due
    filled.stop()
    assert (filled.verify().faults, filled.verify().derived) == ((), ())


def test_h15_a_sound_start_reads_no_sealed_chunk(
    filled: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    filled.stop()
    read: list[str] = []
    real = Path.read_bytes

    def read_bytes(path: Path) -> bytes:
        read.append(path.name)
        return real(path)

    monkeypatch.setattr(Path, "read_bytes", read_bytes)
    filled.start()
    assert not [name for name in read if name.endswith(".log")]
    filled.stop()


def test_h15_node_files_and_their_directory_are_synced(
    hub_bench: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    synced: set[str] = set()

    def noted(real: Any) -> Any:
        def sync(fd: int) -> None:
            synced.add(str(Path(f"/proc/self/fd/{fd}").readlink()))
            real(fd)

        return sync

    client = driven_hub.a_key("client")
    token = hub_bench.authorize(client)
    monkeypatch.setattr(os, "fsync", noted(os.fsync))
    hub_bench.send(client, STREAM, token)
    assert str(hub_bench.datadir.derived) in synced
    monkeypatch.setattr(os, "fdatasync", noted(os.fdatasync))
    hub_bench.send(client, STREAM, token, 8)
    assert str(nodes_of(hub_bench)) in synced
    hub_bench.stop()


# What a hub without this defence left behind.


def sign_wrong(bench: Any, upto: int) -> Checkpoint:
    """Sign and publish, as the hub did, from a node file that is nothing but holes."""
    log = bench.committer.log
    label_log = log.label(bench.label(STREAM))
    nodes = mmr.peak_nodes(upto)
    wrong = mmr.Peaks(upto, tuple(bytes(31) + bytes([height]) for height, _ in nodes))
    unsigned = Checkpoint(
        label_prev=label_log.label, label_curr=label_log.label,
        upto_seq=upto, mmr_root=wrong.root(), epoch=0,
    )  # fmt: skip
    signed = log.keys.sign_checkpoint(unsigned, STREAM.profile, bench.now, bench.now)
    write_peaks(bench.datadir, label_log.label, wrong)
    log._publisher.publish(signed)
    return Checkpoint.decode(signed.encode())


def recovered(bench: Any, upto: int, wrong: Checkpoint) -> None:
    """Rebuilt: the log is whole again, and what was signed is kept and named."""
    report = driven_hub.rebuild(bench.root)
    file = layout.checkpoint(wrong.label_curr, upto)
    assert [item for item in report.set_aside if item.startswith(file)]
    ((name, place),) = stored_checkpoints(bench.datadir)
    assert place == (wrong.label_curr, upto)
    assert (bench.datadir.evidence / name).read_bytes() == wrong.encode()
    detail = bench.verify()
    assert (detail.faults, detail.derived) == ((), ())
    assert [note for note in detail.notes if name in note]
    again = driven_hub.rebuild(bench.root)
    assert (again.agreed, again.set_aside) == (True, ())
    bench.start()
    assert agrees_with_receipt(bench, bench.committer.checkpoint(wrong.label_curr, upto, bench.now))
    assert isinstance(bench.send(bench.client, STREAM, bench.token, 9)[-1], bytes)
    bench.stop()
    assert bench.verify().faults == ()


@pytest.mark.parametrize("document", [False, True])
def test_h15_rebuild_recovers_from_a_wrong_checkpoint_in_the_open_chunk(
    filled: Any, document: bool
) -> None:
    wrong = sign_wrong(filled, 18)
    if document:
        filled.committer.recorder_checkpoint(STREAM.profile.profile_id(), filled.now, force=True)
    filled.stop()
    with pytest.raises(Damaged, match="veen hub rebuild"):
        filled.start()
    recovered(filled, 18, wrong)


def test_h15_rebuild_recovers_from_a_wrong_checkpoint_at_a_chunks_end(filled: Any) -> None:
    """The peaks beside it are wrong as well: without rebuild, receipts would grow from them."""
    filled.send(filled.client, STREAM, filled.token, 5)
    wrong = sign_wrong(filled, 24)
    seal_unverified(filled)
    filled.stop()
    with pytest.raises(Damaged, match="veen hub rebuild"):
        filled.start()
    recovered(filled, 24, wrong)


def seal_unverified(bench: Any) -> None:
    """Seal the open chunk with the checkpoint that exists at its end, whatever its root."""
    label_log, index = bench.committer.log.label(bench.label(STREAM)), bench.committer.log.index
    tally = label_log.tally
    row = ChunkRow(
        label_log.label_no, tally.start_seq, label_log.head_seq, tally.size, label_log.last_ts
    )
    label_log.end_chunk()
    with index.durable_transaction():
        index.seal(row)
    label_log.finish_chunk()


def test_h15_a_wrong_checkpoint_at_the_last_chunks_end_alone_is_refused(filled: Any) -> None:
    """Its peaks are right: nothing would grow wrong, but recorder checkpoints would repeat it."""
    label = filled.label(STREAM)
    right = filled.committer.checkpoint(label, 16, filled.now)
    wrong = sign_wrong_again(filled, right)
    filled.stop()
    with pytest.raises(Damaged, match="sets such a checkpoint aside"):
        filled.start()
    recovered(filled, 16, wrong)


def sign_wrong_again(bench: Any, right: Checkpoint) -> Checkpoint:
    """Put another root into a published checkpoint, its index line and its binding."""
    keys, root = bench.committer.log.keys, bytes(32)
    path = bench.datadir.file(layout.checkpoint(right.label_curr, right.upto_seq))
    wrong = keys.sign_checkpoint(
        replace(right, mmr_root=root), STREAM.profile, bench.now, bench.now
    )
    for changed in (
        bench.datadir.file(layout.checkpoint_index(right.label_curr)),
        bench.datadir.file(layout.CHECKPOINT_BINDING),
    ):
        changed.write_bytes(changed.read_bytes().replace(right.mmr_root, root))
    path.write_bytes(wrong.encode())
    return Checkpoint.decode(wrong.encode())


def test_h15_a_rebuild_that_crashed_is_completed_by_the_next(
    filled: Any, tmp_path: Path, crash_at: Callable[[int], AbstractContextManager[None, bool]]
) -> None:
    wrong = sign_wrong(filled, 18)
    filled.committer.recorder_checkpoint(STREAM.profile.profile_id(), filled.now, force=True)
    filled.stop()
    sound = tmp_path / "sound"
    shutil.copytree(filled.root, sound)
    for step in range(9, 55, 6):
        shutil.rmtree(filled.root)
        shutil.copytree(sound, filled.root)
        with crash_at(step):
            driven_hub.rebuild(filled.root)
            pytest.fail(f"a rebuild has fewer than {step} steps")
        driven_hub.rebuild(filled.root)
        filled.start()
        filled.stop()
        detail = filled.verify()
        assert (detail.faults, detail.derived) == ((), ()), f"after a crash at step {step}"
        ((name, _),) = stored_checkpoints(DataDir(filled.root))
        assert (filled.datadir.evidence / name).read_bytes() == wrong.encode()
