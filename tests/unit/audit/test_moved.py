"""Faults beside entries that are lost, exchanged or doubled: each is told, or that it cannot be."""

from __future__ import annotations

import pytest

from support.audit.audit_files import Files
from support.audit.audit_plants import (
    Finding,
    Place,
    Plant,
    bad_message_signature,
    bad_receipt_signature,
    drop,
    drop_first,
    drop_last,
    duplicate,
    findings,
    forged_checkpoint,
    forged_peaks,
    forged_summary,
    places,
    swap,
    wrong_root,
)  # fmt: skip
from support.audit.audit_pool import audited
from veen.checkpoint import Checkpoint
from veen.log import layout

# Entries that are gone, exchanged or doubled, and by how many places those behind them move.
MOVES: dict[Plant, int] = {drop: -1, swap: 0, duplicate: 1}


def moved(due: list[Finding], place: Place, move: Plant) -> list[Finding]:
    """Faults of a chunk, after a move of its fourth entry."""
    shift = MOVES[move] * place.size
    return [
        (file, at + shift if file == place.file and at > 3 * place.size else at, code)
        for file, at, code in due
    ]


@pytest.mark.parametrize("move", MOVES)
@pytest.mark.parametrize("fault", [bad_receipt_signature, bad_message_signature, drop_last])
def test_a_fault_beside_entries_that_moved(files: Files, fault: Plant, move: Plant) -> None:
    place = places(files)[1]
    due = moved(fault(files, place), place, move) + move(files, place)
    assert findings(files) == sorted(due)


@pytest.mark.parametrize("fault", [wrong_root, forged_peaks, forged_checkpoint, forged_summary])
def test_a_fault_beside_an_entry_that_stands_twice(files: Files, fault: Plant) -> None:
    place = places(files)[1]
    due = moved(fault(files, place), place, duplicate) + duplicate(files, place)
    assert findings(files) == sorted(due)


@pytest.mark.parametrize("move", [drop, swap])
def test_a_forged_snapshot_or_checkpoint_behind_a_lost_entry(files: Files, move: Plant) -> None:
    """They cannot be held against the entries any more, but against each other."""
    place, whole = places(files)[1], dict(files)
    peaks = layout.peaks(place.name.label, place.name.end_seq)
    forged_peaks(files, place)
    due = move(files, place)
    assert findings(files) == sorted([(peaks, 0, "PEAKS"), *due])
    bound = (layout.CHECKPOINT_BINDING, bound_root_at(whole, place), "BINDING")
    forged_checkpoint(whole, place)
    assert move(whole, place) == due
    assert findings(whole) == sorted([(peaks, 0, "PEAKS"), bound, *due])


def bound_root_at(files: Files, place: Place) -> int:
    """Where the manifest of bindings has the root of the checkpoint at the end of a chunk."""
    name = layout.checkpoint(place.name.label, place.name.end_seq)
    return files[layout.CHECKPOINT_BINDING].index(Checkpoint.decode(files[name]).mmr_root)


@pytest.mark.parametrize(
    ("first", "other"),
    [(drop, duplicate), (swap, duplicate), (duplicate, swap),
     (drop_first, drop), (drop_first, swap), (drop_first, duplicate)],
)  # fmt: skip
def test_two_moves_in_one_chunk(files: Files, first: Plant, other: Plant) -> None:
    place = places(files)[1]
    due = [*first(files, place), *other(files, place)]
    assert findings(files) == sorted(due)


@pytest.mark.parametrize(("move", "first"), [(drop, 13), (swap, 12)])
def test_a_root_behind_a_lost_entry_is_named_as_one_that_nobody_can_check(
    files: Files, move: Plant, first: int
) -> None:
    place = places(files)[1]
    wrong_root(files, place)
    due = move(files, place)
    assert findings(files) == sorted(due)
    message = f"{place.file}: the roots of entries {first} to 16 rest on entries that are missing"
    assert any(note.startswith(message) for note in audited(files).notes)
