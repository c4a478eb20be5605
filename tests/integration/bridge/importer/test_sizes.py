"""How large a bundle may be that is held in memory, and what is said of a larger one (I8)."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from bridge.bundle import BundleLimits
from bridge.carrier.format import Packing
from bridge.settings import EXPORT_BUNDLE_BYTES, EXPORT_BUNDLE_EVENTS
from support.bridge import importing_zone

SMALL = Packing(volume_bytes=1200)


def _again(zone: Any) -> None:
    """What the reason tells to do: back to the inbox."""
    (place,) = (zone.import_dir.root / "quarantine").iterdir()
    shutil.move(place / "1", zone.import_dir.inbox / "again")
    shutil.rmtree(place)


def test_the_usual_bounds_hold_what_an_exporter_cuts_and_not_much_more(import_zone: Any) -> None:
    limits = import_zone.settings.importing.limits
    assert EXPORT_BUNDLE_BYTES < limits.max_bytes <= 4 * EXPORT_BUNDLE_BYTES
    assert EXPORT_BUNDLE_EVENTS < limits.max_events <= 4 * EXPORT_BUNDLE_EVENTS
    assert limits.max_bytes < BundleLimits().max_bytes


@pytest.mark.parametrize("bound", ["max_bundle_bytes = 2000", "max_bundle_events = 4"])
def test_i08_a_bundle_beyond_the_bounds_is_refused_and_says_what_to_do(
    import_zone: Any, bound: str
) -> None:
    import_zone.write_settings(importing=bound)
    (outcome,) = import_zone.run(import_zone.medium(1, 5)).outcomes
    assert (outcome.state.value, outcome.code) == ("quarantined", "E.SIZE/BUNDLE_SIZE")
    assert outcome.detail.count("smaller bundles") == 1
    assert "raise max_bundle_bytes" in import_zone.reason()["detail"]
    import_zone.check([])
    import_zone.write_settings()
    _again(import_zone)
    assert import_zone.states() == ["imported"]
    import_zone.check([1, 2, 3, 4, 5])


def test_i08_a_carrier_that_says_it_unpacks_to_more_is_not_unpacked(import_zone: Any) -> None:
    """More than the bound and the largest ledger together."""
    import_zone.world.body_bytes = 4_000
    medium = import_zone.carry(
        import_zone.bundle(1, 100), Packing(volume_bytes=1 << 20, compress=True)
    )
    unpacked: list[bool] = []
    watch = importing_zone.when_it_begins("unpacking", lambda: unpacked.append(True))
    import_zone.write_settings(importing="max_bundle_bytes = 50000")
    (outcome,) = import_zone.run(medium, watch=watch).outcomes
    assert (outcome.state.value, outcome.code) == ("quarantined", "E.SIZE/BUNDLE_SIZE")
    assert not unpacked
    import_zone.check([])
    import_zone.write_settings()
    _again(import_zone)
    assert import_zone.states(watch=watch) == ["imported"]
    assert unpacked


def test_parity_beside_a_bundle_does_not_count_against_its_bound(import_zone: Any) -> None:
    raw = import_zone.bundle(1, 5)
    import_zone.write_settings(importing=f"max_bundle_bytes = {len(raw)}")
    medium: Path = import_zone.carry(raw, replace(SMALL, parity=6))
    assert import_zone.states(medium) == ["imported"]
    import_zone.check([1, 2, 3, 4, 5])
