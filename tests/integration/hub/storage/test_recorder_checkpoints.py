"""Recorder checkpoints on disk: whole or not there, each after the last, whatever happens."""

from __future__ import annotations

import errno
import os
import shutil
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from hub.storage import identity
from hub.storage.datadir import DataDir
from hub.storage.index import last_hub_ts
from hub.storage.label_log import Damaged
from hub.storage.reader import LogReader
from hub.storage.retention import Rule, plan_retention, prune
from support.hub import driven_hub
from veen.crypto import SigningKey
from veen.label import DEFAULT_PROFILE
from veen.log.entry import StreamRecord
from veen.recorder_checkpoint import RecorderCheckpoint
from veen.system.durable import NoSpace

PROFILE = bytes(range(32))


class Written:
    """A bench with one writer, and what it was given."""

    def __init__(self, bench: Any) -> None:
        self.bench = bench
        self.stream = driven_hub.STREAMS[0]
        self.client = driven_hub.a_key("client")
        self.token = bench.authorize(self.client)

    def send(self, count: int = 1) -> None:
        self.bench.send(self.client, self.stream, self.token, count)

    def compose(self, *, force: bool = False) -> RecorderCheckpoint:
        committer, label = self.bench.committer, self.bench.label(self.stream)
        committer.checkpoint(label, committer.log.label(label).head_seq, self.bench.now)
        recorder_checkpoint: RecorderCheckpoint = committer.recorder_checkpoint(
            PROFILE, self.bench.now, force=force
        )
        return recorder_checkpoint

    def documents(self) -> list[RecorderCheckpoint]:
        datadir = self.bench.datadir
        names = sorted(datadir.recorder_names())
        return [RecorderCheckpoint.decode(datadir.file(name).read_bytes()) for name in names]


@pytest.fixture
def written(hub_bench: Any) -> Written:
    return Written(hub_bench)


def test_refuses_to_start_on_a_log_put_back_behind_the_last_document(
    written: Written, tmp_path: Path
) -> None:
    bench = written.bench
    written.send(3)
    bench.stop()
    shutil.copytree(bench.root, tmp_path / "before")
    bench.start()
    written.send(2)
    document = written.compose()
    bench.stop()
    shutil.rmtree(bench.root)
    shutil.copytree(tmp_path / "before", bench.root)
    name = document.checkpoint_id.hex()[:16]
    path = bench.datadir.recorder / f"checkpoint-{document.created_at:020d}-{name}.cbor"
    path.write_bytes(document.encode())
    with pytest.raises(Damaged, match="record/a does not hold"):
        bench.start()


def test_refuses_to_start_after_a_document_of_another_hub(written: Written) -> None:
    written.send()
    document = written.compose()
    written.bench.stop()
    (path,) = written.bench.datadir.recorder.iterdir()
    path.write_bytes(document.signed(SigningKey(bytes(32))).encode())
    with pytest.raises(Damaged, match="not this hub's"):
        written.bench.start()
    path.write_bytes(document.encode()[:-1])
    with pytest.raises(Damaged, match="veen hub verify"):
        written.bench.start()


def test_a_full_disk_leaves_nothing_of_a_document(
    written: Written, monkeypatch: pytest.MonkeyPatch
) -> None:
    bench = written.bench
    written.send()
    written.compose()
    written.send()
    bench.committer.checkpoint(bench.label(written.stream), 2, bench.now)

    def full(*_: Any) -> int:
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(os, "pwrite", full)
        with pytest.raises(NoSpace):
            bench.committer.recorder_checkpoint(PROFILE, bench.now, force=False)
    assert len(list(bench.datadir.recorder.iterdir())) == 1
    end = written.compose().end("record/a")
    assert end is not None
    assert end.last_seq == 2


def test_a_crash_at_any_step_leaves_whole_documents_in_order(
    written: Written, crash_at: Callable[[int], Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    bench, given = written.bench, []
    for step in range(1, 25):
        written.send()
        try:
            with crash_at(step):
                given.append(written.compose())
        except pytest.fail.Exception:
            monkeypatch.undo()
            break
        (bench.datadir.recorder / f".checkpoint-{step}.new").write_bytes(b"half")
        bench.restart()
        assert not list(bench.datadir.recorder.glob(".*"))
        given.append(written.compose())
    else:
        pytest.fail("never ran out of steps")
    documents = written.documents()
    assert all(item in documents for item in given)
    for earlier, later in pairwise(documents):
        later.verify_follows(earlier)
    bench.stop()
    assert bench.verify().ok


def test_goes_on_after_a_restart_and_a_rebuild(written: Written) -> None:
    bench = written.bench
    written.send(9)
    first = written.compose()
    bench.restart()
    assert written.compose() == first
    bench.stop()
    driven_hub.rebuild(bench.root)
    bench.start()
    assert written.compose() == first
    written.send()
    second = written.compose()
    second.verify_follows(first)
    assert second.created_at == first.created_at + 1


def test_signs_with_the_key_of_its_time_after_a_rotation(written: Written) -> None:
    bench = written.bench
    documents = []
    for _ in range(5):
        written.send()
        documents.append(written.compose())
    assert documents[-1].created_at == bench.now + 4
    bench.stop()
    at = max(bench.now, last_hub_ts(bench.datadir))
    identity.rotate(bench.datadir, lambda size: bytes(size - 1) + b"n", at, 0)
    bench.start()
    written.send()
    documents.append(written.compose())
    hub = identity.read_identity(bench.datadir)
    for document in documents:
        document.verify(hub)
    assert documents[-1].hub_public == hub.current.hub_pk != documents[0].hub_public


def test_a_stream_of_the_last_document_never_leaves(written: Written) -> None:
    bench = written.bench
    late = StreamRecord(name="import/late", profile=DEFAULT_PROFILE)
    bench.committer.register(late, bench.now)
    written.send()
    first = written.compose()
    assert set(first.names) == {"record/a", "import/late"}
    # As after a rebuild with a configuration that lacks it.
    del bench.committer.log.registry._streams[late.stream_id()]
    written.send()
    second = written.compose()
    second.verify_follows(first)
    assert second.end("import/late") == first.end("import/late")


def test_proofs_up_to_a_document_outlive_its_entries(written: Written) -> None:
    bench = written.bench
    written.send(13)
    document = written.compose()
    bench.now += 40 * 86_400
    leaf = (
        LogReader(bench.datadir, driven_hub.LIMITS)
        .receipt(bench.label(written.stream), 3)
        .leaf_hash
    )
    bench.stop()
    chunks = plan_retention(
        DataDir(bench.root), [Rule("record/*", 30)], driven_hub.STREAMS, bench.now
    )
    gone = prune(DataDir(bench.root), chunks, limits=driven_hub.LIMITS, move_to=None, now=bench.now)
    assert len(gone) == 1
    end, label = document.end("record/a"), bench.label(written.stream, driven_hub.START)
    assert end is not None
    proof = LogReader(bench.datadir, driven_hub.LIMITS).inclusion(label, 3, end.last_seq)
    proof.verify(leaf_hash=leaf, stream_seq=3, size=end.last_seq, root=end.mmr_root)
    assert bench.verify().ok
    bench.start()
    assert bench.committer.recorder_checkpoint(PROFILE, bench.now, force=False) == document
