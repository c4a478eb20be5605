"""A start goes on from the state noted with the last checkpoint, if the receipt there agrees."""

from __future__ import annotations

import random
import sqlite3
from pathlib import Path
from typing import Any

import pytest

from hub.storage.index import Index, ResumePoint
from hub.storage.label_log import Damaged
from support.hub import driven_hub
from support.hub.counted import counted_io
from veen.limits import Limits

STREAM = driven_hub.STREAMS[0]
WIDE = Limits(max_checkpoint_interval=4_096)


@pytest.fixture
def filled(tmp_path: Path) -> Any:
    """A hub with 40 entries in an open chunk, a checkpoint at 30, stopped."""
    bench: Any = driven_hub.Bench(tmp_path / "hub", limits=WIDE)
    bench.client = driven_hub.a_key("client")
    bench.token = bench.authorize(bench.client)
    bench.send(bench.client, STREAM, bench.token, 30)
    bench.committer.checkpoint(bench.label(STREAM), 30, bench.now)
    bench.send(bench.client, STREAM, bench.token, 10)
    bench.chunk = driven_hub.the(bench.root, f"log/chunk-{bench.label(STREAM).hex()}-*.open")
    bench.stop()
    return bench


def the_point(bench: Any) -> tuple[int, ResumePoint]:
    index = Index(bench.datadir.index, writable=False)
    try:
        row = index.label(bench.label(STREAM))
        assert row is not None
        point = index.resume_point(row.label_no)
        assert point is not None
        return row.label_no, point
    finally:
        index.close()


def put_point(bench: Any, label_no: int, point: ResumePoint) -> None:
    index = Index(bench.datadir.index, writable=True)
    index.put_resume_point(label_no, point)
    index.close()


def state(bench: Any) -> tuple[Any, ...]:
    label_log = bench.committer.log.label(bench.label(STREAM))
    return label_log.peaks, label_log.tally, label_log.last_ts


def without_point(bench: Any) -> tuple[Any, ...]:
    """The state after a start that reads the chunk from its beginning."""
    db = sqlite3.connect(bench.datadir.index)
    db.execute("DELETE FROM resume_points")
    db.commit()
    db.close()
    bench.start()
    expected = state(bench)
    bench.stop()
    return expected


@pytest.mark.parametrize(
    "change",
    [
        {"digest": bytes(32)},
        {"hashes": bytes(128)},
        {"peaks": bytes(128)},
        {"peaks": b""},
        {"size": 10**9},
        {"size": 7},
        {"seq": 29},
        {"seq": 10**6},
        {"seq": 0},
    ],
)
def test_a_point_that_was_changed_is_not_believed(filled: Any, change: dict[str, Any]) -> None:
    label_no, point = the_point(filled)
    put_point(filled, label_no, point._replace(**change))
    filled.start()
    after = state(filled)
    filled.stop()
    assert after == without_point(filled)
    assert filled.verify().faults == ()


def test_a_point_of_another_label_is_not_believed(filled: Any) -> None:
    label_no, point = the_point(filled)
    other = driven_hub.Bench(filled.root.parent / "other", limits=WIDE)
    client = driven_hub.a_key("another client")
    other.send(client, STREAM, other.authorize(client), 30)
    other.committer.checkpoint(other.label(STREAM), 30, other.now)
    other.stop()
    _, strange = the_point(other)
    assert strange.peaks != point.peaks
    put_point(filled, label_no, strange)
    filled.start()
    after = state(filled)
    filled.stop()
    assert after == without_point(filled)


def test_an_entry_changed_at_the_point_is_not_gone_on_from(filled: Any) -> None:
    """Its frame does not hold, so the log ends there and the start is refused."""
    _, point = the_point(filled)
    raw = bytearray(filled.chunk.read_bytes())
    raw[point.size - 20] ^= 1
    filled.chunk.write_bytes(raw)
    with pytest.raises(Damaged, match="receipts up to 40"):
        filled.start()


def test_a_log_cut_behind_the_point_is_refused(filled: Any) -> None:
    _, point = the_point(filled)
    whole = filled.chunk.read_bytes()
    for keep in (point.size - 1, point.size, point.size + 5, 0):
        filled.chunk.write_bytes(whole[:keep])
        with pytest.raises(Damaged, match="receipts up to 40"):
            filled.start()
    filled.chunk.write_bytes(whole)
    filled.start()
    filled.stop()


def test_a_tail_torn_behind_the_point_is_cut_and_stored(filled: Any) -> None:
    whole = filled.chunk.read_bytes()
    filled.chunk.write_bytes(whole + whole[:77])
    filled.start()
    filled.stop()
    assert filled.chunk.read_bytes() == whole
    assert whole[:77] in [path.read_bytes() for path in filled.datadir.evidence.iterdir()]
    assert filled.verify().faults == ()


def test_entries_that_were_not_indexed_are_learned_at_their_place(
    filled: Any, crash_at: Any
) -> None:
    """The process ended after the log was written, and before the index was."""
    filled.start()
    with crash_at(2):
        filled.send(filled.client, STREAM, filled.token, 3)
    filled.stop()
    filled.start()
    assert filled.committer.log.label(filled.label(STREAM)).head_seq == 43
    filled.stop()
    report = filled.verify()
    assert (report.faults, report.derived) == ((), ())


def test_the_point_of_a_sealed_chunk_is_not_used(filled: Any) -> None:
    filled.start()
    log = filled.committer.log
    log.seal(log.label(filled.label(STREAM)), filled.now)
    filled.send(filled.client, STREAM, filled.token, 5)
    filled.stop()
    filled.start()
    assert state(filled)[1].entries == 5
    filled.stop()
    assert filled.verify().faults == ()


@pytest.mark.parametrize("version", [1, 4])
def test_an_index_without_points_is_read_from_the_start_of_the_chunk(
    filled: Any, version: int
) -> None:
    driven_hub.put_back_index(filled.datadir, version)
    filled.start()
    after = state(filled)
    filled.stop()
    assert after == without_point(filled)
    assert filled.verify().derived == ()


def test_nodes_up_to_the_point_were_synced_and_later_ones_are_written_again(filled: Any) -> None:
    """A power cut may take everything that was written after the last sync of the node file."""
    path, whole = filled.datadir.nodes(filled.label(STREAM)), None
    whole = path.read_bytes()
    path.write_bytes(whole[: (2 * 30 - (30).bit_count()) * 32])
    filled.start()
    filled.stop()
    assert path.read_bytes() == whole


def test_random_histories_start_in_the_state_that_the_whole_chunk_gives(tmp_path: Path) -> None:
    for seed in range(6):
        bench: Any = driven_hub.Bench(
            tmp_path / str(seed), limits=Limits(max_checkpoint_interval=40)
        )
        chance, client = random.Random(seed), driven_hub.a_key("client")
        token = bench.authorize(client)
        for _ in range(25):
            bench.send(client, STREAM, token, chance.randint(1, 9))
            bench.now += chance.randint(0, 3)
            head = bench.committer.log.label(bench.label(STREAM)).head_seq
            if chance.random() < 0.4:
                upto = chance.choice((head, head, chance.randint(1, head)))
                bench.committer.checkpoint(bench.label(STREAM), upto, bench.now)
            if chance.random() < 0.3:
                before = state(bench)
                bench.restart()
                assert state(bench) == before
        last = state(bench)
        bench.stop()
        assert without_point(bench) == last
        report = bench.verify()
        assert (report.faults, report.derived) == ((), ())


def test_a_start_costs_the_same_however_full_the_open_chunk_is(tmp_path: Path) -> None:
    costs = []
    for entries in (40, 3_000):
        bench: Any = driven_hub.Bench(tmp_path / str(entries), limits=WIDE)
        client = driven_hub.a_key("client")
        token = bench.authorize(client)
        while bench.sent.get((bench.label(STREAM), client.public), 0) < entries:
            bench.send(client, STREAM, token, 20)
        bench.committer.checkpoint(bench.label(STREAM), entries, bench.now)
        bench.stop()
        costs.append(counted_io(bench.start))
        bench.stop()
    small, large = costs
    assert large.bytes_read - small.bytes_read < 100_000
    assert large.calls - small.calls < 60
