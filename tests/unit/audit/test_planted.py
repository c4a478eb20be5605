"""Every planted fault is found at its file and byte; no fault hides another or makes one up."""

from __future__ import annotations

from itertools import combinations

import pytest

from support.audit.audit_files import Files
from support.audit.audit_plants import (
    PLANTS,
    Plant,
    bad_message_signature,
    bad_receipt_signature,
    findings,
    flip,
    forged_checkpoint,
    forged_peaks,
    places,
    wrong_root,
)  # fmt: skip
from veen.audit.context import Depth
from veen.log import layout

# Those that can stand in one chunk: each leaves the other where it is. A flip comes last, since
# what it breaks cannot be read again to plant another.
APART: list[Plant] = [
    wrong_root, bad_receipt_signature, bad_message_signature, forged_peaks, forged_checkpoint, flip,
]  # fmt: skip


@pytest.mark.parametrize("plant", PLANTS)
@pytest.mark.parametrize("which", range(3))
def test_one_fault(files: Files, plant: Plant, which: int) -> None:
    due = plant(files, places(files)[which])
    assert findings(files) == sorted(due)


@pytest.mark.parametrize(
    ("fault", "other"), list(combinations(PLANTS, 2)), ids=lambda plant: plant.__name__
)
def test_two_faults_in_neighbouring_chunks(files: Files, fault: Plant, other: Plant) -> None:
    before, after, _ = places(files)
    for first, second in ((before, after), (after, before)):
        planted = dict(files)
        due = [*fault(planted, first), *other(planted, second)]
        assert findings(planted) == sorted(due)


@pytest.mark.parametrize(
    ("first", "other"), list(combinations(APART, 2)), ids=lambda plant: plant.__name__
)
def test_two_faults_in_one_chunk(files: Files, first: Plant, other: Plant) -> None:
    place = places(files)[1]
    due = [*first(files, place), *other(files, place)]
    assert findings(files) == sorted(due)


def test_a_control_log_that_is_not_at_hand(files: Files) -> None:
    """Sealed chunks alone, as an archive has them: the capabilities are still in an open chunk."""
    for name in [file for file in files if file.endswith(".open")]:
        del files[name]
    assert {code for _, _, code in findings(files)} == {"I7"}
    assert findings(files, control_is_whole=False) == []


def test_a_wrong_root_after_a_lost_snapshot(files: Files) -> None:
    """The chunk cannot start from its snapshot; the chunk before leads to the same place."""
    before, after, _ = places(files)
    due = [*forged_peaks(files, before), *wrong_root(files, after)]
    del files[due[0][0]]
    assert findings(files) == sorted([(due[0][0], 0, "MISSING"), due[1]])


@pytest.mark.parametrize("plant", PLANTS)
def test_without_signatures_all_else_is_found(files: Files, plant: Plant) -> None:
    """A signature that was exchanged shows in the hashes of the summary, if not by itself."""
    place = places(files)[0]
    due = plant(files, place)
    if due[0][2] == "SIG":
        name = layout.summary(place.name)
        due = [(name, len(files[name]) - 32, "SUMMARY")]
    assert findings(files, depth=Depth.HASHES) == sorted(due)
