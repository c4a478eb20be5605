"""What is held against what comes: a lost ledger, races, clocks, gaps and forks (I22-I26)."""

from __future__ import annotations

import shutil
import time
from contextlib import suppress
from typing import Any

import pytest

from bridge.carrier.format import CarrierLedger
from bridge.importer.directory import ImporterBusy
from bridge.importer.ledger import ImportLedger, SourceStream
from bridge.importer.ledger_file import BadLedger
from bridge.importer.rebuild import rebuild_ledger
from bridge.importer.run import ImportRequest
from bridge.importer.unfreeze import NotFrozen, unfreeze
from support import breakpoints
from support.bridge import bridge_world
from support.bridge.bridge_world import IDENTITY
from veen.digest import h
from veen.mmr import Peaks
from veen.receipt import Receipt


@pytest.mark.parametrize("what", ["lost", "old"])
def test_i22_a_ledger_that_is_lost_or_old_is_refused_and_made_again(zone: Any, what: str) -> None:
    first, second, third = zone.medium(1, 3), zone.medium(4, 6), zone.medium(9, 10)
    assert zone.states(first) == ["imported"]
    old = zone.root / "ledger.copy"
    shutil.copy(zone.import_dir.ledger, old)
    assert zone.states(second, third) == ["imported", "waiting"]
    for path in zone.import_dir.root.glob("ledger.db*"):
        path.unlink()
    if what == "old":
        shutil.copy(old, zone.import_dir.ledger)
    with pytest.raises(BadLedger, match="rebuild-ledger"):
        zone.run(second)
    ledger = rebuild_ledger(zone.settings, ImportRequest(operator=zone.name), zone.around())
    assert (ledger.bundles, ledger.events) == (2, 6)
    assert zone.kinds()[-1] == "ledger.rebuilt"
    assert zone.states(second) == ["duplicate", "waiting"]
    zone.check([1, 2, 3, 4, 5, 6])
    assert zone.states(zone.medium(7, 8)) == ["imported", "imported"]
    zone.check(list(range(1, 11)))


def test_i22_a_success_that_was_not_audited_is_told_when_the_ledger_is_made_again(
    zone: Any, zygote: Any
) -> None:
    assert zygote.run(zone, zone.medium(1, 3), point=["conclude", "before", 1])[0] < 0
    for path in zone.import_dir.root.glob("ledger.db*"):
        path.unlink()
    rebuild_ledger(zone.settings, ImportRequest(operator=zone.name), zone.around())
    zone.run()
    zone.check([1, 2, 3])


def test_i23_a_second_importer_is_turned_away(zone: Any) -> None:
    medium = zone.medium(1, 3)
    with zone.import_dir.locked(), pytest.raises(ImporterBusy, match="in use"):
        zone.run(medium)
    assert zone.states(medium) == ["imported"]
    assert zone.states(medium) == ["duplicate"]
    zone.check([1, 2, 3])


def test_i23_two_importers_race_and_one_of_them_imports(zone: Any, zygote: Any) -> None:
    medium = zone.medium(1, 5)
    zygote.start(zone, medium)
    states: list[str] = []
    deadline = time.monotonic() + 60
    while not states and time.monotonic() < deadline:
        with suppress(ImporterBusy):
            states = zone.states(medium)
    code, detail = zygote.wait()
    states += detail[0] if code == 0 else []
    assert states.count("imported") == 1
    assert set(states) <= {"imported", "duplicate"}
    zone.check([1, 2, 3, 4, 5])


@pytest.mark.parametrize("clock", [1_000_000_000, 4_000_000_000])
def test_i24_a_clock_that_is_years_off_does_not_keep_anything_out(zone: Any, clock: int) -> None:
    zone.clock = clock
    assert zone.states(zone.medium(1, 3)) == ["imported"]
    (success,) = (audit for audit in zone.audits() if audit.KIND == "import.success")
    assert ("clock" in success.verification_result) == (clock < 1_700_000_000)
    assert {event.import_time for event in zone.imported()} == {clock}
    zone.check([1, 2, 3])


def test_i25_a_bundle_before_its_turn_waits_and_goes_in_by_itself(zone: Any) -> None:
    first, second, third = zone.medium(1, 2), zone.medium(3, 4), zone.medium(5, 6)
    assert zone.states(third) == ["waiting"]
    assert zone.states(second) == ["waiting"]
    (waiting, other) = (audit for audit in zone.audits() if audit.KIND == "import.waiting")
    assert (waiting.gap_from, waiting.gap_to) == (1, 4)
    assert (other.gap_from, other.gap_to) == (1, 2)
    assert zone.states() == []
    assert zone.states(first) == ["imported", "imported", "imported"]
    assert zone.kinds().count("import.waiting") == 2
    zone.check([1, 2, 3, 4, 5, 6])
    assert zone.files("waiting") == []


def test_i25_a_gap_is_accepted_for_one_bundle_and_with_a_reason(zone: Any) -> None:
    raw = zone.bundle(5, 6)
    bundle_id = bridge_world.bundle_id_of(raw).hex()
    assert zone.states(zone.carry(raw)) == ["waiting"]
    assert zone.states(accepted=["00000000"], reason="none") == []
    assert zone.states(accepted=[bundle_id[:12]], reason="disc 3 is lost") == ["imported"]
    (success,) = (audit for audit in zone.audits() if audit.KIND == "import.success")
    assert success.accepted_gap == "disc 3 is lost"
    zone.check([5, 6])
    assert zone.states(zone.medium(1, 4)) == ["imported"]
    zone.check([5, 6, 1, 2, 3, 4])


def test_i25_a_bundle_that_closes_a_gap_with_another_history_is_a_fork(zone: Any) -> None:
    raw = zone.bundle(5, 6)
    bundle_id = bridge_world.bundle_id_of(raw).hex()
    assert zone.states(zone.carry(raw), accepted=[bundle_id], reason="lost") == ["imported"]
    (outcome,) = zone.run(zone.carry(_other(zone).bundle(1, 4, 4))).outcomes
    assert outcome.code == "E.SEQ/FORK"
    _verify_neighbours(zone, held=5, other=4)
    zone.check([5, 6])


def test_i26_a_bundle_that_follows_another_past_proves_the_fork(zone: Any) -> None:
    assert zone.states(zone.medium(1, 4)) == ["imported"]
    raw = _other(zone, 2).bundle(5, 6, 8)
    ledger = CarrierLedger(bridge_id=h(b"x")).with_bundle(bridge_world.parts(raw)[0])
    assert zone.run(zone.carry(raw, ledger=ledger)).outcomes[0].code == "E.SEQ/FORK"
    _verify_neighbours(zone, held=4, other=5)
    zone.check([1, 2, 3, 4])


def _verify_neighbours(zone: Any, held: int, other: int) -> None:
    """From the file beside the bundle alone: both are signed, and no log has both."""
    reason = zone.reason()
    receipts = {
        item: Receipt.decode(bytes.fromhex(reason[item]["receipt"])) for item in ("held", "other")
    }
    for receipt in receipts.values():
        IDENTITY.verify_receipt(receipt)
    assert (receipts["held"].stream_seq, receipts["other"].stream_seq) == (held, other)
    earlier, later = sorted(receipts.values(), key=lambda item: item.stream_seq)
    peaks = Peaks(earlier.stream_seq, tuple(map(bytes.fromhex, reason["peaks"])))
    follows = peaks.append(later.leaf_hash).root() == later.mmr_root
    assert (peaks.root() == earlier.mmr_root) != follows
    assert follows == (other > held)
    assert f"event {held}" in reason["contradiction"]
    (entry,) = (audit for audit in zone.audits() if audit.KIND == "equivocation")
    assert (entry.seq, entry.held_seq, entry.other_seq) == (held, held, other)
    leaves = {receipt: receipts[receipt].leaf_hash for receipt in receipts}
    assert (entry.held, entry.other) == (leaves["held"], leaves["other"])


def _other(zone: Any, same: int = 0) -> Any:
    """A log of the same hub and stream that tells another story after so many events."""
    other = bridge_world.World(stream=zone.world.stream)
    other.grow(same)
    other.body_bytes = 17
    return other.grow(8 - same)


@pytest.mark.parametrize(("same", "first"), [(0, 1), (2, 1), (2, 3), (3, 4)])
def test_i26_a_fork_freezes_the_stream_and_keeps_both_receipts(
    zone: Any, same: int, first: int
) -> None:
    assert zone.states(zone.medium(1, 4)) == ["imported"]
    other = _other(zone, same)
    raw = other.bundle(first, 6, 8)
    (outcome,) = zone.run(
        zone.carry(
            raw, ledger=CarrierLedger(bridge_id=h(b"x")).with_bundle(bridge_world.parts(raw)[0])
        )
    ).outcomes
    assert (outcome.state.value, outcome.code) == ("quarantined", "E.SEQ/FORK")
    (entry,) = (audit for audit in zone.audits() if audit.KIND == "equivocation")
    assert (entry.seq, entry.held_seq, entry.other_seq) == (same + 1,) * 3
    reason = zone.reason()
    held, detail = (
        Receipt.decode(bytes.fromhex(reason[item]["receipt"])) for item in ("held", "other")
    )
    assert held.contradicts(detail)
    for item in (held, detail):
        bridge_world.IDENTITY.verify_receipt(item)
    assert zone.states(zone.medium(5, 6)) == ["frozen"]
    zone.check([1, 2, 3, 4])


def test_i26_a_frozen_stream_goes_on_by_an_operators_word_and_the_evidence_stays(zone: Any) -> None:
    stream = SourceStream(bridge_world.IDENTITY.hub_id, zone.world.stream)
    order = ImportRequest(operator=zone.name, reason="case 12")
    assert zone.states(zone.medium(1, 4)) == ["imported"]
    with pytest.raises(NotFrozen, match="expected a frozen stream"):
        unfreeze(zone.settings, stream, order, zone.around())
    raw = _other(zone, 2).bundle(1, 6, 8)
    lie = zone.carry(
        raw, ledger=CarrierLedger(bridge_id=h(b"x")).with_bundle(bridge_world.parts(raw)[0])
    )
    assert zone.run(lie).outcomes[0].code == "E.SEQ/FORK"
    assert zone.states(zone.medium(5, 6)) == ["frozen"]
    assert zone.states() == []
    assert unfreeze(zone.settings, stream, order, zone.around()) == 3
    (entry,) = (audit for audit in zone.audits() if audit.KIND == "stream.thawed")
    assert (entry.stream, entry.seq, entry.reason) == (stream.name, 3, "case 12")
    assert zone.reason()["seq"] == 3
    assert zone.states() == ["imported"]
    zone.check_now([1, 2, 3, 4, 5, 6])
    rebuild_ledger(zone.settings, ImportRequest(operator=zone.name), zone.around())
    assert zone.states(zone.medium(7, 7)) == ["imported"]
    assert zone.run(lie).outcomes[0].code == "E.SEQ/FORK"
    rebuild_ledger(zone.settings, ImportRequest(operator=zone.name), zone.around())
    assert zone.states(zone.medium(8, 8)) == ["frozen"]


def test_i26_a_thaw_that_is_killed_is_audited_once_or_not_at_all(zone: Any) -> None:
    stream = SourceStream(bridge_world.IDENTITY.hub_id, zone.world.stream)
    order = ImportRequest(operator=zone.name, reason="case 12")
    assert zone.states(zone.medium(1, 4)) == ["imported"]
    raw = _other(zone, 2).bundle(1, 6, 8)
    zone.run(
        zone.carry(
            raw, ledger=CarrierLedger(bridge_id=h(b"x")).with_bundle(bridge_world.parts(raw)[0])
        )
    )
    with (
        breakpoints.after(ImportLedger.conclude, breakpoints.interrupt),
        pytest.raises(KeyboardInterrupt),
    ):
        unfreeze(zone.settings, stream, order, zone.around())
    assert "stream.thawed" not in zone.kinds()
    assert zone.states(zone.medium(5, 5)) == ["imported"]
    assert zone.kinds().count("stream.thawed") == 1
    zone.check_now([1, 2, 3, 4, 5])
