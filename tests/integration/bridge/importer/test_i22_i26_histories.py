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
def test_i22_a_ledger_that_is_lost_or_old_is_refused_and_made_again(
    import_zone: Any, what: str
) -> None:
    first, second, third = (
        import_zone.medium(1, 3),
        import_zone.medium(4, 6),
        import_zone.medium(9, 10),
    )
    assert import_zone.states(first) == ["imported"]
    old = import_zone.root / "ledger.copy"
    shutil.copy(import_zone.import_dir.ledger, old)
    assert import_zone.states(second, third) == ["imported", "waiting"]
    for path in import_zone.import_dir.root.glob("ledger.db*"):
        path.unlink()
    if what == "old":
        shutil.copy(old, import_zone.import_dir.ledger)
    with pytest.raises(BadLedger, match="rebuild-ledger"):
        import_zone.run(second)
    ledger = rebuild_ledger(
        import_zone.settings, ImportRequest(operator=import_zone.name), import_zone.around()
    )
    assert (ledger.bundles, ledger.events) == (2, 6)
    assert import_zone.kinds()[-1] == "ledger.rebuilt"
    assert import_zone.states(second) == ["duplicate", "waiting"]
    import_zone.check([1, 2, 3, 4, 5, 6])
    assert import_zone.states(import_zone.medium(7, 8)) == ["imported", "imported"]
    import_zone.check(list(range(1, 11)))


def test_i22_a_success_that_was_not_audited_is_reported_when_the_ledger_is_made_again(
    import_zone: Any, import_runner: Any
) -> None:
    assert (
        import_runner.run(import_zone, import_zone.medium(1, 3), point=["conclude", "before", 1])[0]
        < 0
    )
    for path in import_zone.import_dir.root.glob("ledger.db*"):
        path.unlink()
    rebuild_ledger(
        import_zone.settings, ImportRequest(operator=import_zone.name), import_zone.around()
    )
    import_zone.run()
    import_zone.check([1, 2, 3])


def test_i23_a_second_importer_is_turned_away(import_zone: Any) -> None:
    medium = import_zone.medium(1, 3)
    with import_zone.import_dir.locked(), pytest.raises(ImporterBusy, match="in use"):
        import_zone.run(medium)
    assert import_zone.states(medium) == ["imported"]
    assert import_zone.states(medium) == ["duplicate"]
    import_zone.check([1, 2, 3])


def test_i23_two_importers_race_and_one_of_them_imports(
    import_zone: Any, import_runner: Any
) -> None:
    medium = import_zone.medium(1, 5)
    import_runner.start(import_zone, medium)
    states: list[str] = []
    deadline = time.monotonic() + 60
    while not states and time.monotonic() < deadline:
        with suppress(ImporterBusy):
            states = import_zone.states(medium)
    code, detail = import_runner.wait()
    states += detail[0] if code == 0 else []
    assert states.count("imported") == 1
    assert set(states) <= {"imported", "duplicate"}
    import_zone.check([1, 2, 3, 4, 5])


@pytest.mark.parametrize("clock", [1_000_000_000, 4_000_000_000])
def test_i24_a_clock_that_is_years_off_does_not_keep_anything_out(
    import_zone: Any, clock: int
) -> None:
    import_zone.clock = clock
    assert import_zone.states(import_zone.medium(1, 3)) == ["imported"]
    (success,) = (audit for audit in import_zone.audits() if audit.KIND == "import.success")
    assert ("clock" in success.verification_result) == (clock < 1_700_000_000)
    assert {event.import_time for event in import_zone.imported()} == {clock}
    import_zone.check([1, 2, 3])


def test_i25_a_bundle_before_its_turn_waits_and_goes_in_by_itself(import_zone: Any) -> None:
    first, second, third = (
        import_zone.medium(1, 2),
        import_zone.medium(3, 4),
        import_zone.medium(5, 6),
    )
    assert import_zone.states(third) == ["waiting"]
    assert import_zone.states(second) == ["waiting"]
    (waiting, other) = (audit for audit in import_zone.audits() if audit.KIND == "import.waiting")
    assert (waiting.gap_from, waiting.gap_to) == (1, 4)
    assert (other.gap_from, other.gap_to) == (1, 2)
    assert import_zone.states() == []
    assert import_zone.states(first) == ["imported", "imported", "imported"]
    assert import_zone.kinds().count("import.waiting") == 2
    import_zone.check([1, 2, 3, 4, 5, 6])
    assert import_zone.files("waiting") == []


def test_i25_a_gap_is_accepted_for_one_bundle_and_with_a_reason(import_zone: Any) -> None:
    raw = import_zone.bundle(5, 6)
    bundle_id = bridge_world.bundle_id_of(raw).hex()
    assert import_zone.states(import_zone.carry(raw)) == ["waiting"]
    assert import_zone.states(accepted=["00000000"], reason="none") == []
    assert import_zone.states(accepted=[bundle_id[:12]], reason="disc 3 is lost") == ["imported"]
    (success,) = (audit for audit in import_zone.audits() if audit.KIND == "import.success")
    assert success.accepted_gap == "disc 3 is lost"
    import_zone.check([5, 6])
    assert import_zone.states(import_zone.medium(1, 4)) == ["imported"]
    import_zone.check([5, 6, 1, 2, 3, 4])


def test_i25_a_bundle_that_closes_a_gap_with_another_history_is_a_fork(import_zone: Any) -> None:
    raw = import_zone.bundle(5, 6)
    bundle_id = bridge_world.bundle_id_of(raw).hex()
    assert import_zone.states(import_zone.carry(raw), accepted=[bundle_id], reason="lost") == [
        "imported"
    ]
    (outcome,) = import_zone.run(import_zone.carry(_other(import_zone).bundle(1, 4, 4))).outcomes
    assert outcome.code == "E.SEQ/FORK"
    _verify_neighbours(import_zone, held=5, other=4)
    import_zone.check([5, 6])


def test_i26_a_bundle_that_follows_another_past_proves_the_fork(import_zone: Any) -> None:
    assert import_zone.states(import_zone.medium(1, 4)) == ["imported"]
    raw = _other(import_zone, 2).bundle(5, 6, 8)
    ledger = CarrierLedger(bridge_id=h(b"x")).with_bundle(bridge_world.parts(raw)[0])
    assert import_zone.run(import_zone.carry(raw, ledger=ledger)).outcomes[0].code == "E.SEQ/FORK"
    _verify_neighbours(import_zone, held=4, other=5)
    import_zone.check([1, 2, 3, 4])


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
    import_zone: Any, same: int, first: int
) -> None:
    assert import_zone.states(import_zone.medium(1, 4)) == ["imported"]
    other = _other(import_zone, same)
    raw = other.bundle(first, 6, 8)
    (outcome,) = import_zone.run(
        import_zone.carry(
            raw, ledger=CarrierLedger(bridge_id=h(b"x")).with_bundle(bridge_world.parts(raw)[0])
        )
    ).outcomes
    assert (outcome.state.value, outcome.code) == ("quarantined", "E.SEQ/FORK")
    (entry,) = (audit for audit in import_zone.audits() if audit.KIND == "equivocation")
    assert (entry.seq, entry.held_seq, entry.other_seq) == (same + 1,) * 3
    reason = import_zone.reason()
    held, detail = (
        Receipt.decode(bytes.fromhex(reason[item]["receipt"])) for item in ("held", "other")
    )
    assert held.contradicts(detail)
    for item in (held, detail):
        bridge_world.IDENTITY.verify_receipt(item)
    assert import_zone.states(import_zone.medium(5, 6)) == ["frozen"]
    import_zone.check([1, 2, 3, 4])


def test_i26_a_frozen_stream_goes_on_by_an_operators_word_and_the_evidence_stays(
    import_zone: Any,
) -> None:
    stream = SourceStream(bridge_world.IDENTITY.hub_id, import_zone.world.stream)
    order = ImportRequest(operator=import_zone.name, reason="case 12")
    assert import_zone.states(import_zone.medium(1, 4)) == ["imported"]
    with pytest.raises(NotFrozen, match="expected a frozen stream"):
        unfreeze(import_zone.settings, stream, order, import_zone.around())
    raw = _other(import_zone, 2).bundle(1, 6, 8)
    lie = import_zone.carry(
        raw, ledger=CarrierLedger(bridge_id=h(b"x")).with_bundle(bridge_world.parts(raw)[0])
    )
    assert import_zone.run(lie).outcomes[0].code == "E.SEQ/FORK"
    assert import_zone.states(import_zone.medium(5, 6)) == ["frozen"]
    assert import_zone.states() == []
    assert unfreeze(import_zone.settings, stream, order, import_zone.around()) == 3
    (entry,) = (audit for audit in import_zone.audits() if audit.KIND == "stream.thawed")
    assert (entry.stream, entry.seq, entry.reason) == (stream.name, 3, "case 12")
    assert import_zone.reason()["seq"] == 3
    assert import_zone.states() == ["imported"]
    import_zone.check_now([1, 2, 3, 4, 5, 6])
    rebuild_ledger(
        import_zone.settings, ImportRequest(operator=import_zone.name), import_zone.around()
    )
    assert import_zone.states(import_zone.medium(7, 7)) == ["imported"]
    assert import_zone.run(lie).outcomes[0].code == "E.SEQ/FORK"
    rebuild_ledger(
        import_zone.settings, ImportRequest(operator=import_zone.name), import_zone.around()
    )
    assert import_zone.states(import_zone.medium(8, 8)) == ["frozen"]


def test_i26_a_thaw_that_is_killed_is_audited_once_or_not_at_all(import_zone: Any) -> None:
    stream = SourceStream(bridge_world.IDENTITY.hub_id, import_zone.world.stream)
    order = ImportRequest(operator=import_zone.name, reason="case 12")
    assert import_zone.states(import_zone.medium(1, 4)) == ["imported"]
    raw = _other(import_zone, 2).bundle(1, 6, 8)
    import_zone.run(
        import_zone.carry(
            raw, ledger=CarrierLedger(bridge_id=h(b"x")).with_bundle(bridge_world.parts(raw)[0])
        )
    )
    with (
        breakpoints.after(ImportLedger.conclude, breakpoints.interrupt),
        pytest.raises(KeyboardInterrupt),
    ):
        unfreeze(import_zone.settings, stream, order, import_zone.around())
    assert "stream.thawed" not in import_zone.kinds()
    assert import_zone.states(import_zone.medium(5, 5)) == ["imported"]
    assert import_zone.kinds().count("stream.thawed") == 1
    import_zone.check_now([1, 2, 3, 4, 5])
