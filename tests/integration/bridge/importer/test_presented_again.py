"""Carriers that are presented again while they are held, or after they were refused: a stick that
stays plugged in (O6).
"""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest

from bridge.carrier.format import CarrierLedger
from bridge.importer.approvals import APPROVE, REJECT, Approval, decide
from bridge.importer.ledger import ImportLedger, LedgerChange, PendingActions, SourceStream
from bridge.importer.rebuild import rebuild_ledger
from bridge.importer.run import ImportRequest
from bridge.importer.unfreeze import unfreeze
from support.bridge import bridge_world
from veen.crypto import SigningKey
from veen.digest import h

ALICE = SigningKey(h(b"alice"))


def carried(zone: Any, first: int, last: int) -> tuple[Path, bytes]:
    raw = zone.bundle(first, last)
    return zone.carry(raw), bridge_world.bundle_id_of(raw)


def ask_alice(zone: Any) -> None:
    zone.write_settings(
        f'[[approvals]]\nprefix = "export/"\nneeded = 1\napprovers = ["{ALICE.public.hex()}"]\n'
    )


def freeze(zone: Any) -> Path:
    """What is held goes to 4; another history of it came."""
    assert zone.states(zone.medium(1, 4)) == ["imported"]
    other = bridge_world.World(stream=zone.world.stream)
    other.body_bytes = 17
    raw = other.grow(8).bundle(1, 6, 8)
    lie: Path = zone.carry(
        raw, ledger=CarrierLedger(bridge_id=h(b"x")).with_bundle(bridge_world.parts(raw)[0])
    )
    assert zone.states(lie) == ["quarantined"]
    return lie


def test_a_bundle_behind_a_gap_is_held_once_and_goes_in_once(zone: Any) -> None:
    first, second = zone.medium(1, 2), zone.medium(3, 4)
    for _ in range(3):
        assert zone.states(second) == ["waiting"]
    assert zone.kinds() == ["import.waiting", "import.duplicate", "import.duplicate"]
    assert {audit.held_as for audit in zone.audits()[1:]} == {"waiting"}
    assert len(zone.files("waiting")) == 1
    assert zone.files("inbox") == []
    assert zone.states(second, first) == ["imported", "imported", "duplicate"]
    zone.check([1, 2, 3, 4])
    assert zone.files("waiting") == []


def test_a_bundle_that_waits_for_people_is_held_once_and_goes_in_by_their_word(zone: Any) -> None:
    ask_alice(zone)
    medium, bundle_id = carried(zone, 1, 3)
    for _ in range(2):
        assert zone.states(medium) == ["blocked"]
    assert zone.kinds() == ["import.blocked", "import.duplicate"]
    decide(zone.import_dir.approvals, Approval.of(ALICE, bundle_id, APPROVE))
    assert zone.states(medium) == ["imported", "duplicate"]
    zone.check([1, 2, 3])
    assert zone.files("waiting") == []


def test_a_gap_is_accepted_for_a_bundle_that_waits_and_is_presented_with_the_word(
    zone: Any,
) -> None:
    medium, bundle_id = carried(zone, 3, 4)
    assert zone.states(medium) == ["waiting"]
    states = zone.states(medium, accepted=[bundle_id.hex()], reason="disc 1 is lost")
    assert states == ["imported", "duplicate"]
    zone.check([3, 4])
    assert zone.files("waiting") == []


def test_what_waited_for_a_gap_and_then_for_people_is_held_once(zone: Any) -> None:
    """The state changes by the copy that is presented; the copy that lies there stays."""
    second = zone.medium(3, 4)
    assert zone.states(second) == ["waiting"]
    assert zone.states(zone.medium(1, 2), only=("none",)) == ["blocked"]
    assert zone.states(second, only=("none",)) == ["waiting"]
    zone.check([], only=("none",))
    assert len(zone.files("waiting")) == 2


def test_bundles_of_a_frozen_stream_are_held_once_and_the_fork_lies_in_quarantine_once(
    zone: Any,
) -> None:
    lie, next_one = freeze(zone), zone.medium(5, 6)
    for _ in range(2):
        assert zone.states(lie, next_one) == ["quarantined", "frozen"]
    again = [audit.held_as for audit in zone.audits() if audit.KIND == "import.duplicate"]
    assert again == ["quarantined", "quarantined", "frozen"]
    assert len(zone.files("quarantine")) == 1
    zone.check([1, 2, 3, 4])
    unfreeze(
        zone.settings,
        SourceStream(bridge_world.IDENTITY.hub_id, zone.world.stream),
        ImportRequest(operator=zone.name, reason="case 12"),
        zone.around(),
    )
    assert zone.states(next_one) == ["imported", "duplicate"]
    zone.check_now([1, 2, 3, 4, 5, 6])


def test_what_is_held_of_a_frozen_stream_is_a_duplicate(zone: Any) -> None:
    freeze(zone)
    assert zone.states(zone.medium(1, 4)) == ["duplicate"]
    assert zone.files("waiting") == []
    zone.check([1, 2, 3, 4])


@pytest.mark.parametrize("by", ["import", "thaw"])
def test_a_ledger_that_an_earlier_version_wedged_is_closed(zone: Any, by: str) -> None:
    """It had planned to move a second copy to where the first one lies."""
    freeze(zone)
    medium, bundle_id = carried(zone, 5, 6)
    assert zone.states(medium) == ["frozen"]
    place = zone.import_dir.waiting(bundle_id)
    shutil.copytree(place, zone.import_dir.staging / "second")
    shutil.copytree(place / "bag-001", zone.import_dir.inbox / "second")
    moves = (("staging/second", zone.import_dir.inside(place)),)
    with ImportLedger(zone.import_dir.ledger) as ledger:
        closing = PendingActions(token=bytes(16), moves=moves, removals=("inbox/second",))
        ledger.conclude(LedgerChange(row=ledger.bundle(bundle_id)), closing)
    if by == "thaw":
        stream = SourceStream(bridge_world.IDENTITY.hub_id, zone.world.stream)
        unfreeze(
            zone.settings, stream, ImportRequest(operator=zone.name, reason="12"), zone.around()
        )
    assert zone.states() == (["imported"] if by == "thaw" else [])
    assert zone.files("inbox") == zone.files("staging") == []
    zone.check_now([1, 2, 3, 4, 5, 6] if by == "thaw" else [1, 2, 3, 4])


def test_a_refused_carrier_lies_in_quarantine_once(zone: Any) -> None:
    medium = zone.medium(1, 3)
    volume = next(medium.rglob("v001.agv"))
    volume.write_bytes(volume.read_bytes()[:-1] + b"x")
    first, second = (zone.run(medium).outcomes[0] for _ in range(2))
    assert {first.code, second.code} == {"E.SIG/VOLUME"}
    assert (first.place, "already" in second.detail) == (second.place, True)
    assert Path(first.place).is_dir()
    assert len(zone.files("quarantine")) == 1
    zone.check([])


def test_a_refused_carrier_that_was_moved_back_is_kept_again(zone: Any) -> None:
    medium = zone.medium(1, 3)
    volume = next(medium.rglob("v001.agv"))
    volume.write_bytes(volume.read_bytes()[:-1] + b"x")
    (outcome,) = zone.run(medium).outcomes
    (Path(outcome.place) / "1").rename(zone.import_dir.inbox / "back")
    (outcome,) = zone.run().outcomes
    assert (Path(outcome.place) / "1" / "carrier.cbor").exists()
    zone.check([])


def test_an_incomplete_carrier_lies_in_the_inbox_once(zone: Any) -> None:
    medium = zone.medium(1, 3)
    next(medium.rglob("v001.agv")).unlink()
    for _ in range(3):
        assert zone.states(medium) == ["incomplete"]
    assert len(zone.files("inbox")) == 1
    assert zone.kinds() == ["import.failed"]
    (entry,) = zone.audits()
    assert (entry.is_claimed, entry.from_seq, entry.to_seq) == (True, 1, 3)
    zone.check([])


def test_a_rejection_is_remembered_until_the_bundle_is_asked_for_by_name(zone: Any) -> None:
    medium, bundle_id = carried(zone, 1, 3)
    name = bundle_id.hex()
    said = {"only": (), "rejected": (name,), "reason": "not asked for"}
    assert zone.states(medium, **said) == ["rejected"]
    (outcome,) = zone.run(medium).outcomes
    assert outcome.state.value == "rejected"
    assert f"rejected by {zone.name}: not asked for" in outcome.detail
    assert f"--only {name[:16]}" in outcome.detail
    assert [audit.held_as for audit in zone.audits()[1:]] == ["rejected"]
    zone.check([])
    for path in zone.import_dir.root.glob("ledger.db*"):
        path.unlink()
    rebuild_ledger(zone.settings, ImportRequest(operator=zone.name), zone.around())
    assert zone.states(medium) == ["rejected"]
    assert zone.states(medium, only=(name,)) == ["imported"]
    (success,) = (audit for audit in zone.audits() if audit.KIND == "import.success")
    assert "imported by name, and had been rejected by" in success.verification_result
    zone.check([1, 2, 3])
    rebuild_ledger(zone.settings, ImportRequest(operator=zone.name), zone.around())
    assert zone.states(medium) == ["duplicate"]


def test_a_signed_rejection_stands_against_a_name(zone: Any) -> None:
    ask_alice(zone)
    medium, bundle_id = carried(zone, 1, 3)
    assert zone.states(medium) == ["blocked"]
    decide(zone.import_dir.approvals, Approval.of(ALICE, bundle_id, REJECT))
    assert zone.states() == ["rejected"]
    assert zone.states(medium) == ["rejected"]
    assert zone.states(medium, only=(bundle_id.hex(),)) == ["rejected"]
    assert len(zone.files("quarantine")) == 1
    zone.check([])
