"""An index compares recorder checkpoints: each document once, whatever the number of streams."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import pytest

from recorder.index.proofs import Disagreement, check_checkpoint
from recorder.index.rebuild import create
from recorder.index.tables import BadIndex, IndexedStream, IndexHome, alarms
from recorder.index.writer import IndexWriter, writing
from support.recorder.anchor_documents import HUB, KEY, PROFILE
from veen.checkpoint import Checkpoint
from veen.digest import h
from veen.label import DEFAULT_PROFILE, EpochLabels, routing_key, stream_id
from veen.mmr import EMPTY, grow
from veen.recorder_checkpoint import RecorderCheckpoint, StreamEnd, log_root

OTHER_HUB = b"o" * 32


def leaf(name: str, seq: int) -> bytes:
    return h(f"{name} {seq}".encode())


def root(name: str, size: int) -> bytes:
    peaks = EMPTY
    for seq in range(1, size + 1):
        peaks, _ = grow(peaks, leaf(name, seq))
    return peaks.root() if size else bytes(32)


def document(sizes: dict[str, int], at: int, changed: str | None = None) -> RecorderCheckpoint:
    """Over the first entries of each stream; ``changed`` has another root than the log."""
    names = tuple(sorted(sizes, key=stream_id))
    ends = tuple(
        StreamEnd(
            stream_id=stream_id(name),
            last_seq=sizes[name],
            mmr_root=b"x" * 32 if name == changed else root(name, sizes[name]),
        )
        for name in names
    )
    return RecorderCheckpoint(
        hub_id=HUB.hub_id, hub_public=KEY.public, profile_id=PROFILE, created_at=at,
        log_root=log_root(ends), ends=ends, names=names,
        checkpoints=tuple(label_checkpoint(end) for end in ends if end.last_seq),
    ).signed(KEY)  # fmt: skip


def label_checkpoint(end: StreamEnd) -> Checkpoint:
    label = EpochLabels(routing_key(HUB.hub_id), end.stream_id, DEFAULT_PROFILE).at(0)
    return Checkpoint(
        label_prev=label, label_curr=label, upto_seq=end.last_seq, mmr_root=end.mmr_root, epoch=0
    ).signed(KEY)


@contextmanager
def an_index(root: Path) -> Iterator[IndexWriter]:
    home = IndexHome(root / "index")
    with home.locked(), writing(create(home, HUB.hub_id)) as writer:
        yield writer


def learn(writer: IndexWriter, checkpoint: RecorderCheckpoint) -> None:
    writer.db.execute(
        "INSERT INTO checkpoints (checkpoint_id, created_at, document) VALUES (?, ?, ?)",
        (checkpoint.checkpoint_id, checkpoint.created_at, checkpoint.encode()),
    )


def advance(writer: IndexWriter, name: str, size: int, hub_id: bytes = HUB.hub_id) -> None:
    """Index a stream up to a size: its nodes and its position, without its events."""
    row, peaks, nodes = writer.stream(name, hub_id), EMPTY, b""
    for seq in range(1, size + 1):
        peaks, completed = grow(peaks, leaf(name, seq))
        nodes += b"".join(completed)
    if size:
        writer.nodes(row).write_from(1, nodes)
    writer.db.execute("UPDATE streams SET position = ? WHERE stream_no = ?", (size, row.stream_no))
    writer._streams[hub_id, name] = row._replace(position=size)


def naive(row: IndexedStream, documents: Sequence[RecorderCheckpoint]) -> int:
    """The last document that a stream agrees with, by a walk through all of them."""
    for number, checkpoint in enumerate(documents, 1):
        end = checkpoint.end(row.name) if checkpoint.hub_id == row.hub_id else None
        if end is not None and end.last_seq > row.position:
            return number - 1
    return len(documents)


def read_documents(writer: IndexWriter) -> int:
    """How many documents a comparison of all streams reads."""
    statements: list[str] = []
    writer.db.set_trace_callback(statements.append)
    check_checkpoint(writer)
    writer.db.set_trace_callback(None)
    return sum(statement.startswith("SELECT document") for statement in statements)


def test_a_contradiction_is_an_alarm_with_both_statements(tmp_path: Path) -> None:
    with an_index(tmp_path) as writer:
        for name in ("record/a", "record/b"):
            advance(writer, name, 3)
        learn(writer, document({"record/a": 2, "record/b": 2}, 1))
        learn(writer, document({"record/a": 3, "record/b": 3}, 2, changed="record/b"))
        for _ in range(2):
            with pytest.raises(Disagreement, match=r"record/b.*stream_seq 3"):
                check_checkpoint(writer)
        assert len(alarms(writer.db)) == 1
        assert {row.name: row.checked for row in writer.streams()} == {
            "record/a": 1,
            "record/b": 1,
        }


def test_a_document_that_is_gone_is_not_taken_as_compared(tmp_path: Path) -> None:
    with an_index(tmp_path) as writer:
        advance(writer, "record/a", 3)
        for at in (1, 2, 3):
            learn(writer, document({"record/a": at}, at))
        writer.db.execute("DELETE FROM checkpoints WHERE number = 2")
        with pytest.raises(BadIndex, match="number 2"):
            check_checkpoint(writer)


@pytest.mark.parametrize("seed", range(12))
def test_compares_what_a_walk_through_all_documents_compares(tmp_path: Path, seed: int) -> None:
    rng = random.Random(seed)
    sizes: dict[str, int] = {}
    documents: list[RecorderCheckpoint] = []
    with an_index(tmp_path) as writer:
        advance(writer, "record/0", 0, OTHER_HUB)
        for at in range(1, 40):
            if rng.random() < 0.3:
                sizes[f"record/{len(sizes)}"] = 0
            for name in sizes:
                sizes[name] += rng.randrange(3)
            documents.append(document(sizes, at))
            learn(writer, documents[-1])
            for name in rng.sample(sorted(sizes), rng.randrange(len(sizes) + 1)):
                position = writer.stream(name).position
                advance(writer, name, rng.randint(position, max(position, sizes[name])))
            if rng.random() < 0.5:
                check_checkpoint(writer)
                rows = writer.streams()
                assert [row.checked for row in rows] == [naive(row, documents) for row in rows]


def test_each_document_is_read_for_all_streams_at_once(tmp_path: Path) -> None:
    counts = []
    for streams in (5, 200):
        with an_index(tmp_path / str(streams)) as writer:
            names = [f"record/{number}" for number in range(streams)]
            for name in names:
                advance(writer, name, 2)
            learn(writer, document(dict.fromkeys(names, 1), 1))
            first = read_documents(writer)
            learn(writer, document(dict.fromkeys(names, 2), 2))
            counts.append((first, read_documents(writer), read_documents(writer)))
    assert counts[0] == counts[1] == (1, 1, 0)


def test_a_new_stream_does_not_read_the_history(tmp_path: Path) -> None:
    counts = []
    for history in (30, 900):
        with an_index(tmp_path / str(history)) as writer:
            advance(writer, "record/a", 2)
            for at in range(1, history):
                learn(writer, document({"record/a": 2}, at))
            check_checkpoint(writer)
            advance(writer, "record/b", 1)
            learn(writer, document({"record/a": 2, "record/b": 1}, history))
            counts.append(read_documents(writer))
            assert {row.checked for row in writer.streams()} == {history}
    assert counts[1] <= counts[0] + 12


def test_a_stream_that_is_behind_is_not_compared_until_it_has_grown(tmp_path: Path) -> None:
    with an_index(tmp_path) as writer:
        for name in ("record/a", "record/b"):
            advance(writer, name, 1)
        for at in range(1, 50):
            learn(writer, document({"record/a": 1, "record/b": at}, at))
        check_checkpoint(writer)
        assert read_documents(writer) == 0
        advance(writer, "record/b", 2)
        check_checkpoint(writer)
        assert {row.name: row.checked for row in writer.streams()}["record/b"] == 2
