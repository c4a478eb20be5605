"""Histories that really happen: the report is what was done to each carrier, event by event."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from bridge.reconcile.ranges import Ranges
from bridge.reconcile.report import Class, ReconcileReport, StreamReport
from support.bridge.reconcile_real_history import RealHistory
from support.bridge.reconcile_real_sides import Side, hub_toml
from support.hub.hub_process import hub_in
from support.long_form import LONG

pytestmark = pytest.mark.e2e

HISTORIES = 100 if LONG else 12


@pytest.fixture(scope="module")
def sides(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Side, Side]]:
    folder = tmp_path_factory.mktemp("sides")
    with (
        hub_in(folder / "z1-hub", hub_toml(folder / "z1")) as online,
        hub_in(folder / "z2-hub") as offline,
    ):
        yield Side(folder / "z1", online, "online"), Side(folder / "z2", offline, "offline")


def played(history: RealHistory) -> None:
    """Carriers are lost, come twice, late, damaged or unwanted, and some are exported again."""
    random = history.random
    for _ in range(random.randint(1, 2)):
        history.record_and_export()
    for _ in range(random.randint(1, 3)):
        sound = [bundle for bundle in history.bundles if random.random() < 0.4]
        damaged = [bundle for bundle in history.bundles if random.random() < 0.15]
        unwanted = [
            bundle_row
            for bundle_row in sound
            if random.random() < 0.1 and not bundle_row.is_imported
        ]
        random.shuffle(sound)
        history.bring(sound, damaged, unwanted)
    lost = [bundle for bundle in history.bundles if not (bundle.is_here or bundle.is_rejected)]
    if lost and random.random() < 0.5:
        again = random.choice(lost)
        history.export_again(again)
        history.bring([again], [], [])
    if random.random() < 0.7:
        history.beat()
        history.bring_heartbeat()


def test_reports_of_real_histories_equal_what_was_done(
    sides: tuple[Side, Side], tmp_path: Path
) -> None:
    seen: set[str] = set()
    for number in range(HISTORIES):
        history = RealHistory(number, *sides, tmp_path / f"history-{number}")
        played(history)
        report = history.report()
        result, due = of_stream(report, history.stream), history.due()
        classes = {kind.value: numbers(spans) for kind, spans in result.classes.items()}
        assert classes == {"partial": set(), "excluded": set(), **due}, number
        assert numbers(result.exported) == set().union(*due.values()), number
        assert result.closed.to_seq == history.closed_to(), number
        assert not result.duplicate, number
        assert not result.unfulfilled, number
        seen |= {name for name, events in due.items() if events}
    # What no history shows is tested by none of them.
    assert seen == {"imported", "waiting", "quarantined", "missing"}


def numbers(spans: Ranges) -> set[int]:
    return {n for first, last in spans for n in range(first, last + 1)}


def of_stream(report: ReconcileReport, stream: str) -> StreamReport:
    return next(item for item in report.streams if item.stream == stream)


def test_a_damaged_carrier_is_quarantined_and_not_missing(
    sides: tuple[Side, Side], tmp_path: Path
) -> None:
    history = RealHistory(150, *sides, tmp_path / "history")
    history.record_and_export()
    first = history.bundles[0]
    history.bring([], [first], [])
    result = of_stream(history.report(), history.stream)
    assert result.classes[Class.QUARANTINED] == Ranges([(first.first, first.last)])
    assert not result.classes[Class.MISSING]
    # Another carrier of it goes in, and what is in quarantine no longer matters.
    history.bring([first], [], [])
    result = of_stream(history.report(), history.stream)
    assert result.classes[Class.IMPORTED] == Ranges([(first.first, first.last)])
    assert not result.classes[Class.QUARANTINED]


def test_a_rejected_bundle_is_quarantined_and_not_waiting(
    sides: tuple[Side, Side], tmp_path: Path
) -> None:
    history = RealHistory(151, *sides, tmp_path / "history")
    history.record_and_export()
    first = history.bundles[0]
    history.bring([first], [], [first])
    result = of_stream(history.report(), history.stream)
    assert result.classes[Class.QUARANTINED] == Ranges([(first.first, first.last)])
    assert not result.classes[Class.WAITING]


def test_a_bundle_of_a_stream_that_is_in_no_settings_is_quarantined(
    sides: tuple[Side, Side], tmp_path: Path
) -> None:
    history = RealHistory(152, *sides, tmp_path / "history")
    history.mapped = "export/other"
    history.record_and_export()
    first = history.bundles[0]
    history.bring([first], [], [])
    result = of_stream(history.report(), history.stream)
    assert result.classes[Class.QUARANTINED] == Ranges([(first.first, first.last)])
