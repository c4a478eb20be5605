"""Where an importing zone stands, as its ledger tells it: bounded, and without a trace."""

from __future__ import annotations

import random
import sqlite3
from collections.abc import Iterable
from pathlib import Path

import pytest

from bridge.importer.airlock import Airlock
from bridge.importer.ledger import BadLedger, BundleRow, ImportLedger, SeqSpan, SourceStream
from bridge.importer.outcome import ImportState
from bridge.importer.status import Most, standing

HUB, NAME = b"h" * 32, "record/app/orders"


def a_bundle(
    number: int, state: ImportState = ImportState.IMPORTED, stream: str = NAME
) -> BundleRow:
    return BundleRow(
        bundle_id=number.to_bytes(32, "big"), state=state.value, source_hub_id=HUB, stream=stream,
        target=f"import/{stream}", from_seq=number, to_seq=number, checkpoint_id=bytes(32),
        checkpoint_at=0, sha256=bytes(32), detail="why",
    )  # fmt: skip


@pytest.fixture
def airlock(tmp_path: Path) -> Airlock:
    result = Airlock(tmp_path / "import")
    result.create()
    return result


def hold(airlock: Airlock, spans: Iterable[tuple[int, int]]) -> None:
    ImportLedger(airlock.ledger).close()
    rows = [(HUB, NAME, first, last, b"b", 1, b"") for first, last in spans]
    with sqlite3.connect(airlock.ledger) as db:
        db.executemany("INSERT INTO runs VALUES (?, ?, ?, ?, ?, ?, ?)", rows)
    db.close()


def note(airlock: Airlock, *rows: BundleRow) -> None:
    with ImportLedger(airlock.ledger) as ledger:
        for row in rows:
            ledger.note(row)


def joined(places: set[int]) -> list[SeqSpan]:
    """The naive way: each number by itself."""
    starts = sorted(place for place in places if place - 1 not in places)
    ends = sorted(place for place in places if place + 1 not in places)
    return [SeqSpan(first, last) for first, last in zip(starts, ends, strict=True)]


@pytest.mark.parametrize("seed", range(20))
def test_runs_without_a_hole_between_them_are_one(airlock: Airlock, seed: int) -> None:
    chance = random.Random(seed)
    spans, at = [], chance.randint(1, 3)
    for _ in range(chance.randint(1, 30)):
        last = at + chance.randint(0, 4)
        spans.append((at, last))
        at = last + chance.choice((1, 1, 2, 5))
    hold(airlock, spans)
    (result,) = standing(airlock).streams
    expected = joined({n for first, last in spans for n in range(first, last + 1)})
    assert (list(result.held), result.held_total) == (expected, len(expected))


def test_tells_the_beginning_and_how_many_there_are(airlock: Airlock) -> None:
    hold(airlock, [(2 * n, 2 * n) for n in range(1, 21)])
    note(airlock, *(a_bundle(n, ImportState.WAITING) for n in range(1, 10)), a_bundle(50))
    note(airlock, a_bundle(60, stream="record/app/other"))
    result = standing(airlock, Most(bundles=2, streams=1, spans=3))
    assert [item.from_seq for item in result.unfinished] == [1, 2]
    assert (result.unfinished_total, result.bundles) == (9, {"imported": 2, "waiting": 9})
    assert ([stream.stream for stream in result.streams], result.streams_total) == (
        [SourceStream(HUB, NAME)],
        2,
    )
    assert result.streams[0].held == (SeqSpan(2, 2), SeqSpan(4, 4), SeqSpan(6, 6))
    assert result.streams[0].held_total == 20


def test_the_next_command_counts_what_is_not_shown(airlock: Airlock) -> None:
    note(airlock, a_bundle(1, ImportState.WAITING), a_bundle(2, ImportState.BLOCKED))
    result = standing(airlock, Most(bundles=1))
    assert [item.state for item in result.unfinished] == ["waiting"]
    assert result.next_command() == "veen bridge approve"


def test_a_look_leaves_nothing_behind(airlock: Airlock) -> None:
    note(airlock, a_bundle(1))
    before = sorted(airlock.root.rglob("*"))
    assert standing(airlock).bundles == {"imported": 1}
    assert sorted(airlock.root.rglob("*")) == before


def test_a_look_before_the_first_import_makes_nothing(tmp_path: Path) -> None:
    result = standing(Airlock(tmp_path / "import"))
    assert (result.bundles, result.streams, result.inbox) == ({}, (), 0)
    assert list(tmp_path.iterdir()) == []


def test_a_ledger_that_is_being_made_is_empty(airlock: Airlock) -> None:
    airlock.ledger.touch()
    assert standing(airlock).bundles == {}


def test_sees_what_an_import_that_goes_on_has_written(airlock: Airlock) -> None:
    with ImportLedger(airlock.ledger) as ledger:
        ledger.note(a_bundle(1))
        assert standing(airlock).bundles == {"imported": 1}


def test_refuses_a_ledger_of_another_version(airlock: Airlock) -> None:
    note(airlock, a_bundle(1))
    with sqlite3.connect(airlock.ledger) as db:
        db.execute("PRAGMA user_version = 9")
    db.close()
    with pytest.raises(BadLedger, match="version 9"):
        standing(airlock)


def test_refuses_a_ledger_that_is_none(airlock: Airlock) -> None:
    airlock.ledger.write_bytes(b"not a database at all, whatever it is called")
    with pytest.raises(BadLedger, match="--rebuild-ledger"):
        standing(airlock)
