"""Where an importing zone stands, as its ledger tells it: bounded, and without a trace."""

from __future__ import annotations

import random
import sqlite3
from collections.abc import Iterable
from pathlib import Path

import pytest

from bridge.importer.directory import ImportDirectory
from bridge.importer.ledger import BundleRow, ImportLedger, SeqSpan, SourceStream
from bridge.importer.ledger_file import BadLedger
from bridge.importer.outcome import ImportState
from bridge.importer.status import StatusLimits, import_status

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
def import_dir(tmp_path: Path) -> ImportDirectory:
    result = ImportDirectory(tmp_path / "import")
    result.create()
    return result


def hold(import_dir: ImportDirectory, spans: Iterable[tuple[int, int]]) -> None:
    ImportLedger(import_dir.ledger).close()
    rows = [(HUB, NAME, first, last, b"b", 1, b"") for first, last in spans]
    with sqlite3.connect(import_dir.ledger) as db:
        db.executemany("INSERT INTO runs VALUES (?, ?, ?, ?, ?, ?, ?)", rows)
    db.close()


def note(import_dir: ImportDirectory, *rows: BundleRow) -> None:
    with ImportLedger(import_dir.ledger) as ledger:
        for row in rows:
            ledger.update(row)


def joined(places: set[int]) -> list[SeqSpan]:
    """The naive way: each number by itself."""
    starts = sorted(place for place in places if place - 1 not in places)
    ends = sorted(place for place in places if place + 1 not in places)
    return [SeqSpan(first, last) for first, last in zip(starts, ends, strict=True)]


@pytest.mark.parametrize("seed", range(20))
def test_runs_without_a_hole_between_them_are_one(import_dir: ImportDirectory, seed: int) -> None:
    chance = random.Random(seed)
    spans, at = [], chance.randint(1, 3)
    for _ in range(chance.randint(1, 30)):
        last = at + chance.randint(0, 4)
        spans.append((at, last))
        at = last + chance.choice((1, 1, 2, 5))
    hold(import_dir, spans)
    (result,) = import_status(import_dir).streams
    expected = joined({n for first, last in spans for n in range(first, last + 1)})
    assert (list(result.held), result.held_total) == (expected, len(expected))


def test_tells_the_beginning_and_how_many_there_are(import_dir: ImportDirectory) -> None:
    hold(import_dir, [(2 * n, 2 * n) for n in range(1, 21)])
    note(import_dir, *(a_bundle(n, ImportState.WAITING) for n in range(1, 10)), a_bundle(50))
    note(import_dir, a_bundle(60, stream="record/app/other"))
    result = import_status(import_dir, StatusLimits(bundles=2, streams=1, spans=3))
    assert [item.from_seq for item in result.unfinished] == [1, 2]
    assert (result.unfinished_total, result.bundles) == (9, {"imported": 2, "waiting": 9})
    assert ([stream.stream for stream in result.streams], result.streams_total) == (
        [SourceStream(HUB, NAME)],
        2,
    )
    assert result.streams[0].held == (SeqSpan(2, 2), SeqSpan(4, 4), SeqSpan(6, 6))
    assert result.streams[0].held_total == 20


def test_the_next_command_counts_what_is_not_shown(import_dir: ImportDirectory) -> None:
    note(import_dir, a_bundle(1, ImportState.WAITING), a_bundle(2, ImportState.BLOCKED))
    result = import_status(import_dir, StatusLimits(bundles=1))
    assert [item.state for item in result.unfinished] == ["waiting"]
    assert result.next_command() == "veen bridge approve"


def test_a_look_leaves_nothing_behind(import_dir: ImportDirectory) -> None:
    note(import_dir, a_bundle(1))
    before = sorted(import_dir.root.rglob("*"))
    assert import_status(import_dir).bundles == {"imported": 1}
    assert sorted(import_dir.root.rglob("*")) == before


def test_a_look_before_the_first_import_makes_nothing(tmp_path: Path) -> None:
    result = import_status(ImportDirectory(tmp_path / "import"))
    assert (result.bundles, result.streams, result.inbox) == ({}, (), 0)
    assert list(tmp_path.iterdir()) == []


def test_a_ledger_that_is_being_made_is_empty(import_dir: ImportDirectory) -> None:
    import_dir.ledger.touch()
    assert import_status(import_dir).bundles == {}


def test_sees_what_an_import_that_goes_on_has_written(import_dir: ImportDirectory) -> None:
    with ImportLedger(import_dir.ledger) as ledger:
        ledger.update(a_bundle(1))
        assert import_status(import_dir).bundles == {"imported": 1}


def test_refuses_a_ledger_of_another_version(import_dir: ImportDirectory) -> None:
    note(import_dir, a_bundle(1))
    with sqlite3.connect(import_dir.ledger) as db:
        db.execute("PRAGMA user_version = 9")
    db.close()
    with pytest.raises(BadLedger, match="version 9"):
        import_status(import_dir)


def test_refuses_a_ledger_that_is_none(import_dir: ImportDirectory) -> None:
    import_dir.ledger.write_bytes(b"not a database at all, whatever it is called")
    with pytest.raises(BadLedger, match="--rebuild-ledger"):
        import_status(import_dir)
