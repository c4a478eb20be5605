"""What is held against what comes: changed files, a lost ledger, races, clocks, gaps and forks
(I21-I26).
"""

from __future__ import annotations

import os
import shutil
import time
from contextlib import suppress
from typing import Any

import pytest

from bridge.carrier.ledger import Ledger
from bridge.importer import examine
from bridge.importer.airlock import Busy
from bridge.importer.ledger import BadLedger
from bridge.importer.rebuild import rebuild_ledger
from bridge.importer.run import Order
from veen.digest import h
from veen.receipt import Receipt


def test_i21_a_file_that_changes_after_it_was_verified_is_not_imported(
    zone: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    load = examine.load

    def altered(content: Any, verified: Any) -> Any:
        (volume,) = zone.airlock.staging.rglob("v001.agv")
        with volume.open("r+b") as file:
            file.seek(-300, os.SEEK_END)
            byte = file.read(1)
            file.seek(-1, os.SEEK_CUR)
            file.write(bytes([byte[0] ^ 1]))
        return load(content, verified)

    monkeypatch.setattr("bridge.importer.importer.load", altered)
    (outcome,) = zone.run(zone.medium(1, 3)).outcomes
    assert (outcome.state.value, outcome.code) == ("quarantined", "E.SIG/BUNDLE_ID")
    monkeypatch.undo()
    zone.check([])


@pytest.mark.parametrize("what", ["lost", "old"])
def test_i22_a_ledger_that_is_lost_or_old_is_refused_and_made_again(zone: Any, what: str) -> None:
    first, second, third = zone.medium(1, 3), zone.medium(4, 6), zone.medium(9, 10)
    assert zone.states(first) == ["imported"]
    old = zone.root / "ledger.copy"
    shutil.copy(zone.airlock.ledger, old)
    assert zone.states(second, third) == ["imported", "waiting"]
    for path in zone.airlock.root.glob("ledger.db*"):
        path.unlink()
    if what == "old":
        shutil.copy(old, zone.airlock.ledger)
    with pytest.raises(BadLedger, match="rebuild-ledger"):
        zone.run(second)
    found = rebuild_ledger(zone.settings, Order(operator=zone.name), zone.around())
    assert (found.bundles, found.events) == (2, 6)
    assert zone.kinds()[-1] == "ledger.rebuilt"
    assert zone.states(second) == ["duplicate", "waiting"]
    zone.check([1, 2, 3, 4, 5, 6])
    assert zone.states(zone.medium(7, 8)) == ["imported", "imported"]
    zone.check(list(range(1, 11)))


def test_i22_a_success_that_was_not_audited_is_told_when_the_ledger_is_made_again(
    zone: Any, zygote: Any
) -> None:
    assert zygote.run(zone, zone.medium(1, 3), point=["finish", "before", 1])[0] < 0
    for path in zone.airlock.root.glob("ledger.db*"):
        path.unlink()
    rebuild_ledger(zone.settings, Order(operator=zone.name), zone.around())
    zone.run()
    zone.check([1, 2, 3])


def test_i23_a_second_importer_is_turned_away(zone: Any) -> None:
    medium = zone.medium(1, 3)
    with zone.airlock.locked(), pytest.raises(Busy, match="in use"):
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
        with suppress(Busy):
            states = zone.states(medium)
    code, told = zygote.wait()
    states += told[0] if code == 0 else []
    assert states.count("imported") == 1
    assert set(states) <= {"imported", "duplicate"}
    zone.check([1, 2, 3, 4, 5])


@pytest.mark.parametrize("clock", [1_000_000_000, 4_000_000_000])
def test_i24_a_clock_that_is_years_off_does_not_keep_anything_out(zone: Any, clock: int) -> None:
    zone.clock = clock
    assert zone.states(zone.medium(1, 3)) == ["imported"]
    (success,) = (one for one in zone.audits() if one.KIND == "import.success")
    assert ("clock" in success.verification_result) == (clock < 1_700_000_000)
    assert {one.import_time for one in zone.imported()} == {clock}
    zone.check([1, 2, 3])


def test_i25_a_bundle_before_its_turn_waits_and_goes_in_by_itself(zone: Any) -> None:
    first, second, third = zone.medium(1, 2), zone.medium(3, 4), zone.medium(5, 6)
    assert zone.states(third) == ["waiting"]
    assert zone.states(second) == ["waiting"]
    (waiting, other) = (one for one in zone.audits() if one.KIND == "import.waiting")
    assert (waiting.gap_from, waiting.gap_to) == (1, 4)
    assert (other.gap_from, other.gap_to) == (1, 2)
    assert zone.states() == []
    assert zone.states(first) == ["imported", "imported", "imported"]
    assert zone.kinds().count("import.waiting") == 2
    zone.check([1, 2, 3, 4, 5, 6])
    assert zone.files("waiting") == []


def test_i25_a_gap_is_accepted_for_one_bundle_and_with_a_reason(zone: Any, world: Any) -> None:
    raw = zone.bundle(5, 6)
    bundle_id = world.parts(raw)[0].bundle_id.hex()
    assert zone.states(zone.carry(raw)) == ["waiting"]
    assert zone.states(accepted=["00000000"], reason="none") == []
    assert zone.states(accepted=[bundle_id[:12]], reason="disc 3 is lost") == ["imported"]
    (success,) = (one for one in zone.audits() if one.KIND == "import.success")
    assert success.accepted_gap == "disc 3 is lost"
    zone.check([5, 6])
    assert zone.states(zone.medium(1, 4)) == ["imported"]
    zone.check([5, 6, 1, 2, 3, 4])


def test_i25_a_bundle_that_closes_a_gap_with_another_history_is_a_fork(
    zone: Any, world: Any
) -> None:
    raw = zone.bundle(5, 6)
    bundle_id = world.parts(raw)[0].bundle_id.hex()
    assert zone.states(zone.carry(raw), accepted=[bundle_id], reason="lost") == ["imported"]
    (outcome,) = zone.run(zone.carry(_other(zone, world).bundle(1, 4, 4))).outcomes
    assert outcome.code == "E.SEQ/FORK"


def _other(zone: Any, world: Any, same: int = 0) -> Any:
    """A log of the same hub and stream that tells another story after so many events."""
    other = world.World(stream=zone.world.stream)
    other.grow(same)
    other.body_bytes = 17
    return other.grow(8 - same)


@pytest.mark.parametrize(("same", "first"), [(0, 1), (2, 1), (2, 3), (3, 4)])
def test_i26_a_fork_freezes_the_stream_and_keeps_both_receipts(
    zone: Any, world: Any, same: int, first: int
) -> None:
    assert zone.states(zone.medium(1, 4)) == ["imported"]
    other = _other(zone, world, same)
    raw = other.bundle(first, 6, 8)
    (outcome,) = zone.run(
        zone.carry(raw, ledger=Ledger(bridge_id=h(b"x")).with_bundle(world.parts(raw)[0]))
    ).outcomes
    assert (outcome.state.value, outcome.code) == ("quarantined", "E.SEQ/FORK")
    (entry,) = (one for one in zone.audits() if one.KIND == "equivocation")
    assert entry.seq == same + 1
    reason = zone.reason()
    held, told = (
        Receipt.decode(bytes.fromhex(reason[one]["receipt"])) for one in ("held", "other")
    )
    assert held.contradicts(told)
    for one in (held, told):
        world.IDENTITY.verify_receipt(one)
    assert zone.states(zone.medium(5, 6)) == ["frozen"]
    zone.check([1, 2, 3, 4])
