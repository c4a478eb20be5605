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


def test_a_bundle_behind_a_gap_is_held_once_and_goes_in_once(import_zone: Any) -> None:
    first, second = import_zone.medium(1, 2), import_zone.medium(3, 4)
    for _ in range(3):
        assert import_zone.states(second) == ["waiting"]
    assert import_zone.kinds() == ["import.waiting", "import.duplicate", "import.duplicate"]
    assert {audit.held_as for audit in import_zone.audits()[1:]} == {"waiting"}
    assert len(import_zone.files("waiting")) == 1
    assert import_zone.files("inbox") == []
    assert import_zone.states(second, first) == ["imported", "imported", "duplicate"]
    import_zone.check([1, 2, 3, 4])
    assert import_zone.files("waiting") == []


def test_a_bundle_that_waits_for_people_is_held_once_and_goes_in_by_their_word(
    import_zone: Any,
) -> None:
    ask_alice(import_zone)
    medium, bundle_id = carried(import_zone, 1, 3)
    for _ in range(2):
        assert import_zone.states(medium) == ["blocked"]
    assert import_zone.kinds() == ["import.blocked", "import.duplicate"]
    decide(import_zone.import_dir.approvals, Approval.of(ALICE, bundle_id, APPROVE))
    assert import_zone.states(medium) == ["imported", "duplicate"]
    import_zone.check([1, 2, 3])
    assert import_zone.files("waiting") == []


def test_a_gap_is_accepted_for_a_bundle_that_waits_and_is_presented_with_the_word(
    import_zone: Any,
) -> None:
    medium, bundle_id = carried(import_zone, 3, 4)
    assert import_zone.states(medium) == ["waiting"]
    states = import_zone.states(medium, accepted=[bundle_id.hex()], reason="disc 1 is lost")
    assert states == ["imported", "duplicate"]
    import_zone.check([3, 4])
    assert import_zone.files("waiting") == []


def test_what_waited_for_a_gap_and_then_for_people_is_held_once(import_zone: Any) -> None:
    """The state changes by the copy that is presented; the copy that lies there stays."""
    second = import_zone.medium(3, 4)
    assert import_zone.states(second) == ["waiting"]
    assert import_zone.states(import_zone.medium(1, 2), only=("none",)) == ["blocked"]
    assert import_zone.states(second, only=("none",)) == ["waiting"]
    import_zone.check([], only=("none",))
    assert len(import_zone.files("waiting")) == 2


def test_bundles_of_a_frozen_stream_are_held_once_and_the_fork_lies_in_quarantine_once(
    import_zone: Any,
) -> None:
    lie, next_one = freeze(import_zone), import_zone.medium(5, 6)
    for _ in range(2):
        assert import_zone.states(lie, next_one) == ["quarantined", "frozen"]
    again = [audit.held_as for audit in import_zone.audits() if audit.KIND == "import.duplicate"]
    assert again == ["quarantined", "quarantined", "frozen"]
    assert len(import_zone.files("quarantine")) == 1
    import_zone.check([1, 2, 3, 4])
    unfreeze(
        import_zone.settings,
        SourceStream(bridge_world.IDENTITY.hub_id, import_zone.world.stream),
        ImportRequest(operator=import_zone.name, reason="case 12"),
        import_zone.around(),
    )
    assert import_zone.states(next_one) == ["imported", "duplicate"]
    import_zone.check_now([1, 2, 3, 4, 5, 6])


def test_what_is_held_of_a_frozen_stream_is_a_duplicate(import_zone: Any) -> None:
    freeze(import_zone)
    assert import_zone.states(import_zone.medium(1, 4)) == ["duplicate"]
    assert import_zone.files("waiting") == []
    import_zone.check([1, 2, 3, 4])


@pytest.mark.parametrize("by", ["import", "thaw"])
def test_a_ledger_that_an_earlier_version_wedged_is_closed(import_zone: Any, by: str) -> None:
    """It had planned to move a second copy to where the first one lies."""
    freeze(import_zone)
    medium, bundle_id = carried(import_zone, 5, 6)
    assert import_zone.states(medium) == ["frozen"]
    place = import_zone.import_dir.waiting(bundle_id)
    shutil.copytree(place, import_zone.import_dir.staging / "second")
    shutil.copytree(place / "bag-001", import_zone.import_dir.inbox / "second")
    moves = (("staging/second", import_zone.import_dir.inside(place)),)
    with ImportLedger(import_zone.import_dir.ledger) as ledger:
        closing = PendingActions(token=bytes(16), moves=moves, removals=("inbox/second",))
        ledger.conclude(LedgerChange(row=ledger.bundle(bundle_id)), closing)
    if by == "thaw":
        stream = SourceStream(bridge_world.IDENTITY.hub_id, import_zone.world.stream)
        unfreeze(
            import_zone.settings,
            stream,
            ImportRequest(operator=import_zone.name, reason="12"),
            import_zone.around(),
        )
    assert import_zone.states() == (["imported"] if by == "thaw" else [])
    assert import_zone.files("inbox") == import_zone.files("staging") == []
    import_zone.check_now([1, 2, 3, 4, 5, 6] if by == "thaw" else [1, 2, 3, 4])


def test_a_refused_carrier_lies_in_quarantine_once(import_zone: Any) -> None:
    medium = import_zone.medium(1, 3)
    volume = next(medium.rglob("v001.agv"))
    volume.write_bytes(volume.read_bytes()[:-1] + b"x")
    first, second = (import_zone.run(medium).outcomes[0] for _ in range(2))
    assert {first.code, second.code} == {"E.SIG/VOLUME"}
    assert (first.place, "already" in second.detail) == (second.place, True)
    assert Path(first.place).is_dir()
    assert len(import_zone.files("quarantine")) == 1
    import_zone.check([])


def test_a_refused_carrier_that_was_moved_back_is_kept_again(import_zone: Any) -> None:
    medium = import_zone.medium(1, 3)
    volume = next(medium.rglob("v001.agv"))
    volume.write_bytes(volume.read_bytes()[:-1] + b"x")
    (outcome,) = import_zone.run(medium).outcomes
    (Path(outcome.place) / "1").rename(import_zone.import_dir.inbox / "back")
    (outcome,) = import_zone.run().outcomes
    assert (Path(outcome.place) / "1" / "carrier.cbor").exists()
    import_zone.check([])


def test_an_incomplete_carrier_lies_in_the_inbox_once(import_zone: Any) -> None:
    medium = import_zone.medium(1, 3)
    next(medium.rglob("v001.agv")).unlink()
    for _ in range(3):
        assert import_zone.states(medium) == ["incomplete"]
    assert len(import_zone.files("inbox")) == 1
    assert import_zone.kinds() == ["import.failed"]
    (entry,) = import_zone.audits()
    assert (entry.is_claimed, entry.from_seq, entry.to_seq) == (True, 1, 3)
    import_zone.check([])


def test_a_rejection_is_remembered_until_the_bundle_is_asked_for_by_name(import_zone: Any) -> None:
    medium, bundle_id = carried(import_zone, 1, 3)
    name = bundle_id.hex()
    decision = {"only": (), "rejected": (name,), "reason": "not asked for"}
    assert import_zone.states(medium, **decision) == ["rejected"]
    (outcome,) = import_zone.run(medium).outcomes
    assert outcome.state.value == "rejected"
    assert f"rejected by {import_zone.name}: not asked for" in outcome.detail
    assert f"--only {name[:16]}" in outcome.detail
    assert [audit.held_as for audit in import_zone.audits()[1:]] == ["rejected"]
    import_zone.check([])
    for path in import_zone.import_dir.root.glob("ledger.db*"):
        path.unlink()
    rebuild_ledger(
        import_zone.settings, ImportRequest(operator=import_zone.name), import_zone.around()
    )
    assert import_zone.states(medium) == ["rejected"]
    assert import_zone.states(medium, only=(name,)) == ["imported"]
    (success,) = (audit for audit in import_zone.audits() if audit.KIND == "import.success")
    assert "imported by name, and had been rejected by" in success.verification_result
    import_zone.check([1, 2, 3])
    rebuild_ledger(
        import_zone.settings, ImportRequest(operator=import_zone.name), import_zone.around()
    )
    assert import_zone.states(medium) == ["duplicate"]


def test_a_signed_rejection_stands_against_a_name(import_zone: Any) -> None:
    ask_alice(import_zone)
    medium, bundle_id = carried(import_zone, 1, 3)
    assert import_zone.states(medium) == ["blocked"]
    decide(import_zone.import_dir.approvals, Approval.of(ALICE, bundle_id, REJECT))
    assert import_zone.states() == ["rejected"]
    assert import_zone.states(medium) == ["rejected"]
    assert import_zone.states(medium, only=(bundle_id.hex(),)) == ["rejected"]
    assert len(import_zone.files("quarantine")) == 1
    import_zone.check([])
