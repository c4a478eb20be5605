"""Whoever watches an import sees every long part of it to its end, and how old a checkpoint is."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from bridge.carrier.codec import Sealing
from bridge.carrier.format import CarrierLedger, Packing
from bridge.importer.rebuild import rebuild_ledger
from bridge.importer.run import ImportRequest, ImportRunResult, run_import
from support.bridge.bridge_world import parts
from veen.crypto import hpke_public_key
from veen.digest import h
from veen.system.environment import Progress

PRIVATE = h(b"zone 2")
PACKED = Packing(volume_bytes=1200, parity=1, compress=True)
DAY = 86_400


class Watcher:
    """What was heard of each part of the work the last time, in the order of their beginning."""

    def __init__(self) -> None:
        self.heard: dict[str, tuple[int, int | None, str]] = {}
        self._open = 0

    @contextmanager
    def watch(self, what: str, unit: str) -> Iterator[Progress]:
        def progress(done: int, due: int | None) -> None:
            self.heard[what] = (done, due, unit)

        # A terminal has one bar at a time.
        assert self._open == 0, what
        self._open += 1
        try:
            yield progress
        finally:
            self._open -= 1

    def ended(self) -> dict[str, str]:
        """The parts that were told to their end, and in what."""
        return {what: unit for what, (done, due, unit) in self.heard.items() if done == due}


def _watched(zone: Any, *media: Path) -> tuple[ImportRunResult, Watcher]:
    watcher, order = Watcher(), ImportRequest(operator=zone.name, media=media)
    return run_import(zone.settings, order, zone.around(), watch=watcher.watch), watcher


def test_every_part_of_an_import_is_reported_with_the_carrier_it_is_of(import_zone: Any) -> None:
    (import_zone.root / "zone.key").write_text(PRIVATE.hex())
    import_zone.write_settings(importing='zone_keys = ["zone.key"]')
    sealing = Sealing(hpke_public_key(PRIVATE), h(b"secret"))
    medium = import_zone.carry(import_zone.bundle(1, 9), PACKED, sealing)
    (bag,) = medium.iterdir()
    (bag / "data" / "v001.agv").unlink()
    result, watcher = _watched(import_zone, medium)
    assert [outcome.state.value for outcome in result.outcomes] == ["imported"]
    assert watcher.ended().keys() == watcher.heard.keys()
    assert watcher.ended() == {
        f"fetching {bag.name}": "bytes",
        f"{bag.name}: copying": "bytes",
        f"{bag.name}: hashing volumes": "bytes",
        f"{bag.name}: rebuilding from parity": "bytes",
        f"{bag.name}: unpacking": "bytes",
        f"{bag.name}: verifying": "events",
        f"{bag.name}: reading": "events",
        f"sending to {import_zone.target}": "events",
    }
    size = sum(path.stat().st_size for path in (bag / "data").iterdir())
    assert watcher.heard[f"fetching {bag.name}"][0] == size
    assert watcher.heard[f"{bag.name}: copying"][0] == size
    assert watcher.heard[f"{bag.name}: verifying"][0] == 9


def test_a_name_from_a_medium_cannot_move_a_cursor(import_zone: Any) -> None:
    medium = import_zone.medium(1, 2)
    (bag,) = medium.iterdir()
    bag.rename(medium / "a\x1b[2Jb")
    _, watcher = _watched(import_zone, medium)
    assert watcher.heard
    assert all(what.isprintable() for what in watcher.heard)


def test_a_ledger_that_is_made_again_tells_how_far_it_is(import_zone: Any) -> None:
    assert import_zone.states(import_zone.medium(1, 5)) == ["imported"]
    watcher = Watcher()
    rebuild_ledger(
        import_zone.settings,
        ImportRequest(operator=import_zone.name),
        import_zone.around(),
        watch=watcher.watch,
    )
    assert watcher.heard[f"reading {import_zone.target}"][::2] == (5, "events")


def test_nothing_is_too_old_to_go_in_and_its_age_is_reported(import_zone: Any) -> None:
    created_at = _created_at(import_zone.bundle(1, 3))
    import_zone.clock = created_at + 900 * DAY
    (outcome,) = import_zone.run(import_zone.medium(1, 3)).outcomes
    assert (outcome.state.value, outcome.checkpoint_at, outcome.age_sec) == (
        "imported", created_at, 900 * DAY,
    )  # fmt: skip
    assert outcome.detail == ""
    import_zone.check([1, 2, 3])


@pytest.mark.parametrize(("days", "is_old"), [(30, False), (31, True)])
def test_an_old_checkpoint_is_reported_where_the_settings_ask_for_it_and_goes_in(
    import_zone: Any, days: int, is_old: bool
) -> None:
    import_zone.write_settings(importing="warn_age_days = 30")
    import_zone.clock = _created_at(import_zone.bundle(1, 3)) + days * DAY
    (outcome,) = import_zone.run(import_zone.medium(1, 3)).outcomes
    detail = f"its checkpoint is {days} days old, more than 30 days"
    assert (outcome.state.value, outcome.detail) == ("imported", detail if is_old else "")
    (success,) = (audit for audit in import_zone.audits() if audit.KIND == "import.success")
    assert (detail in success.verification_result) == is_old
    import_zone.check([1, 2, 3])


def test_an_old_bundle_that_waits_and_an_old_heartbeat_are_reported_as_such(
    import_zone: Any,
) -> None:
    import_zone.write_settings(importing="warn_age_days = 30")
    import_zone.bundle(1, 6)
    import_zone.clock = _created_at(import_zone.bundle(5, 6)) + 31 * DAY
    (waiting,) = import_zone.run(import_zone.medium(5, 6)).outcomes
    assert waiting.state.value == "waiting"
    assert "not imported yet" in waiting.detail
    assert "31 days old, more than 30 days" in waiting.detail
    checkpoint = import_zone.world.checkpoint()
    ledger = CarrierLedger(bridge_id=h(b"x")).with_heartbeat(checkpoint)
    (heartbeat,) = import_zone.run(import_zone.carry(checkpoint.encode(), ledger=ledger)).outcomes
    assert heartbeat.state.value == "heartbeat"
    assert heartbeat.checkpoint_at == checkpoint.created_at
    assert "more than 30 days" in heartbeat.detail


def test_the_clock_is_read_once_in_a_run(import_zone: Any) -> None:
    """However long a run takes, it has one moment."""
    media, around = [import_zone.medium(1, 3), import_zone.medium(4, 6)], import_zone.around()
    ticking = iter(range(import_zone.clock or 2_000_000_000, 3_000_000_000, DAY))
    around = type(around)(clock=lambda: next(ticking), random=around.random, sleep=around.sleep)
    result = run_import(
        import_zone.settings, ImportRequest(operator=import_zone.name, media=media), around
    )
    moments = {(outcome.checkpoint_at or 0) + (outcome.age_sec or 0) for outcome in result.outcomes}
    assert len(result.outcomes) == 2
    assert len(moments) == 1


def _created_at(raw: bytes) -> int:
    return int(parts(raw)[0].export_checkpoint.created_at)
