"""Imports in which an operator says which bundles may go in, and which must not."""

from __future__ import annotations

import json
from typing import Any

from support.bridge import bridge_world


def name_of(zone: Any, first: int, last: int) -> tuple[Any, str]:
    raw = zone.bundle(first, last)
    return zone.carry(raw), bridge_world.bundle_id_of(raw).hex()


def here(zone: Any) -> list[int]:
    return sorted(event.receipt().stream_seq for event in zone.imported())


def test_only_what_is_named_goes_in(import_zone: Any) -> None:
    medium, expected = name_of(import_zone, 1, 3)
    other, unwanted = name_of(import_zone, 4, 5)
    outcomes = import_zone.run(medium, other, only=(expected,)).outcomes
    assert [outcome.state.value for outcome in outcomes] == ["imported", "blocked"]
    assert here(import_zone) == [1, 2, 3]
    assert import_zone.states(only=(unwanted,)) == ["imported"]
    import_zone.check([1, 2, 3, 4, 5], only=("none",))


def test_with_nothing_named_nothing_goes_in_and_what_waits_stays(import_zone: Any) -> None:
    medium, _ = name_of(import_zone, 1, 3)
    assert import_zone.states(medium, only=("none",)) == ["blocked"]
    assert import_zone.states(only=("none",)) == []
    import_zone.check([], only=("none",))
    assert import_zone.files("waiting") != []


def test_a_rejected_bundle_goes_to_quarantine_and_says_why(import_zone: Any) -> None:
    medium, name = name_of(import_zone, 1, 3)
    (outcome,) = import_zone.run(medium, only=(), rejected=(name,), reason="not asked for").outcomes
    assert (outcome.state.value, outcome.code) == ("rejected", "REJECTED")
    document = json.loads((import_zone.import_dir.quarantine(name) / "reason.json").read_text())
    assert document["detail"] == f"rejected by {import_zone.name}: not asked for"
    (entry,) = (audit for audit in import_zone.audits() if audit.KIND == "import.blocked")
    assert (entry.by, entry.decision, entry.is_excluded) == ("operator", "rejected", True)
    import_zone.check([])


def test_a_rejected_bundle_does_not_wait_behind_a_gap(import_zone: Any) -> None:
    import_zone.bundle(1, 3)
    medium, name = name_of(import_zone, 4, 5)
    assert import_zone.states(medium, only=(), rejected=(name,), reason="no") == ["rejected"]
    import_zone.check([])
