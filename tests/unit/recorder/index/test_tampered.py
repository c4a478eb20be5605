"""An index that was meddled with: no row of evidence full is wrong in silence."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from recorder.index.engine import EngineLimits, answer
from recorder.index.proofs import Disagreement, check_checkpoint
from recorder.index.reader import IndexAlarm, status
from recorder.index.rebuild import compare
from recorder.index.tables import BadIndex
from recorder.query.descriptor import normalise
from support.recorder import index_logs
from veen import mmr
from veen.errors import Untrusted, VeenError
from veen.recorder_checkpoint import log_root

STREAM = "record/users"
SEQ = 5


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """An index whose entry 5 of the stream below is an event."""
    log = index_logs.a_log(9, 80)
    assert next(entry.event for entry in log.entries if (entry.stream, entry.seq) == (STREAM, SEQ))
    return index_logs.Index(tmp_path_factory.mktemp("built") / "index", log).fill(log.checkpoint)


@pytest.fixture
def index(built: Any, tmp_path: Path) -> Any:
    """A copy of it, to meddle with."""
    shutil.copytree(built.home.root, tmp_path / "index", symlinks=True)
    return index_logs.Index(tmp_path / "index", built.log)


def asked(index: Any, mode: str = "full", **requested: Any) -> Any:
    query = {
        "scope": [STREAM],
        "filter": requested,
        "projection": ["*"],
        "evidence": {"mode": mode},
    }
    descriptor = normalise(query, query_id_if_missing="q")
    return answer(
        index.home, descriptor, index.log.checkpoint, index.log.hub, EngineLimits()
    )  # fmt: skip


@pytest.mark.parametrize(
    "change",
    [
        "UPDATE events SET subject_id = 'user:forged' WHERE place = ?",
        "UPDATE events SET principal_id = zeroblob(32) WHERE place = ?",
        "UPDATE events SET event_type = 'forged' WHERE place = ?",
        "UPDATE events SET event_time = event_time + 1 WHERE place = ?",
        "UPDATE events SET origin = 'forged' WHERE place = ?",
        "UPDATE events SET payload = x'01' WHERE place = ?",
        "UPDATE events SET hub_ts = hub_ts + 1 WHERE place = ?",
        "UPDATE events SET leaf_hash = zeroblob(32) WHERE place = ?",
        "UPDATE pairs SET body_key = zeroblob(32) WHERE place = ?",
        "UPDATE pairs SET body_key = NULL WHERE place = ?",
        "UPDATE pairs SET msg = x'00' WHERE place = ?",
        "UPDATE pairs SET receipt = x'00' WHERE place = ?",
        "DELETE FROM pairs WHERE place = ?",
    ],
)
def test_a_changed_row_fails_the_query(index: Any, change: str) -> None:
    asked(index)
    assert index.execute(change, index.row(STREAM).place(SEQ)) == 1
    with pytest.raises((Untrusted, BadIndex), match=r"record/users 5|lacks the message"):
        asked(index)


def test_a_swapped_message_fails_the_query(index: Any) -> None:
    here, there = index.row(STREAM).place(SEQ), index.row(STREAM).place(SEQ + 1)
    item = index.fetch("SELECT msg, receipt, body_key FROM pairs WHERE place = ?", here)
    other = index.fetch("SELECT msg, receipt, body_key FROM pairs WHERE place = ?", there)
    for place, pair in ((here, other), (there, item)):
        index.execute(
            "UPDATE pairs SET msg = ?, receipt = ?, body_key = ? WHERE place = ?", *pair, place
        )
    with pytest.raises((Untrusted, BadIndex)):
        asked(index)


def test_every_changed_node_fails_a_query_or_is_in_no_proof(index: Any) -> None:
    path, last = _nodes(index), index.log.checkpoint.end(STREAM).last_seq
    honest = asked(index).outcome
    failed = 0
    for position in range(mmr.completed_by(last).stop):
        _flip(path, 32 * position)
        try:
            assert asked(index).outcome == honest
        except VeenError:
            failed += 1
        _flip(path, 32 * position)
    # A proof needs every leaf beside an event, and every node above.
    assert failed > 0.9 * mmr.completed_by(last).stop


def test_cut_nodes_fail_the_query(index: Any) -> None:
    os.truncate(_nodes(index), 32)
    with pytest.raises(BadIndex, match="is not in the node file"):
        asked(index)


def test_a_row_that_is_not_returned_any_more_is_found_by_comparing(
    index: Any, tmp_path: Path
) -> None:
    # Streams come in another order here, and have other numbers.
    honest = index_logs.Index(tmp_path / "honest", index.log).fill(index.log.checkpoint, seed=3)
    assert compare(index.home.current(), honest.home.current()).differences == []
    before = asked(index).outcome.event_count
    index.execute("DELETE FROM events WHERE place = ?", index.row(STREAM).place(SEQ))
    assert asked(index).outcome.event_count == before - 1
    differences = compare(index.home.current(), honest.home.current()).differences
    assert [(difference.stream, difference.seq) for difference in differences] == [(STREAM, SEQ)]


@pytest.mark.parametrize(
    "meddle",
    [
        lambda index: index.execute(
            "UPDATE events SET unread = unread + 1 WHERE place = ?", index.row(STREAM).place(SEQ)
        ),
        lambda index: index.execute(
            "UPDATE events SET fault = 'UNOPENED' WHERE place = ?", index.row(STREAM).place(SEQ)
        ),
        lambda index: index.execute(
            "UPDATE pairs SET body_key = NULL WHERE place = ?", index.row(STREAM).place(SEQ)
        ),
        lambda index: _flip(_nodes(index), 0),
        lambda index: index.execute(
            "INSERT INTO pairs (place) VALUES (?)",
            index.row(STREAM).place(index.row(STREAM).position + 1),
        ),
    ],
    ids=["count", "fault", "key", "node", "beyond"],
)
def test_comparing_finds_what_queries_do_not_look_at(
    index: Any, built: Any, meddle: Callable[[Any], None]
) -> None:
    meddle(index)
    differences = compare(index.home.current(), built.home.current()).differences
    assert [difference.stream for difference in differences] == [STREAM]


def test_a_writer_does_not_go_on_from_nodes_that_are_not_its_own(index: Any) -> None:
    row = index.row(STREAM)
    height, number = next(mmr.peak_nodes(row.position))
    _flip(_nodes(index), 32 * mmr.position(height, number))
    with index.writer() as writer, pytest.raises(BadIndex, match="rebuild"):
        writer._peaks_of(row)


def test_a_writer_refuses_another_root_a_gap_and_a_time_that_goes_back(
    built: Any, tmp_path: Path
) -> None:
    log = built.log
    pairs = index_logs.pairs_of(log, STREAM)
    index = index_logs.Index(tmp_path / "index", log)
    with index.writer() as writer:
        row = writer.stream(STREAM)
        for wrong, detail in (
            (pairs[1:3], "expected stream_seq 1, got 2"),
            ([index_logs.receipted(pairs[0], mmr_root=bytes(32))], "another root"),
            ([pairs[0], index_logs.receipted(pairs[1], hub_ts=1)], "expected hub_ts"),
        ):
            with pytest.raises(Untrusted, match=detail):
                writer.append(row, wrong, index_logs.read(wrong))
        assert writer.stream(STREAM).position == 0


def test_a_checkpoint_with_another_root_is_an_alarm_that_stops_every_query(index: Any) -> None:
    log = index.log
    forged = index_logs.forged_checkpoint(log, STREAM)
    assert forged.log_root == log_root(forged.ends)
    with index.writer() as writer:
        writer.db.execute(
            "INSERT INTO checkpoints (checkpoint_id, created_at, document) VALUES (?, ?, ?)",
            (forged.checkpoint_id, forged.created_at, forged.encode()),
        )
        with pytest.raises(Disagreement, match=STREAM):
            check_checkpoint(writer)
    with pytest.raises(IndexAlarm, match=STREAM):
        asked(index, "none")
    assert STREAM in status(index.home, 2_000_000_000).alarms[0]
    stored = index.fetch("SELECT document, receipt FROM alarms")
    assert stored[0] == forged.encode()
    assert stored[1] == log.pairs[STREAM, forged.end(STREAM).last_seq][1]
    index.execute("ALTER TABLE alarms RENAME COLUMN detail TO told")
    index.execute("PRAGMA user_version = 0")
    assert STREAM in status(index.home, 2_000_000_000).alarms[0], "of an earlier release"
    with index.writer():
        assert STREAM in index.fetch("SELECT detail FROM alarms")[0]


def test_an_index_of_a_later_release_is_refused_and_not_changed(index: Any) -> None:
    index.execute("PRAGMA user_version = 99")
    with pytest.raises(BadIndex, match="a later release wrote it"), index.writer() as writer:
        writer.streams()
    with pytest.raises(BadIndex, match="a later release wrote it"):
        status(index.home, 2_000_000_000)
    assert index.fetch("PRAGMA user_version")[0] == 99


def _nodes(index: Any) -> Path:
    return Path(index.home.current().nodes(index.row(STREAM).stream_no))


def _flip(path: Path, at: int) -> None:
    raw = bytearray(path.read_bytes())
    raw[at] ^= 1
    path.write_bytes(raw)
