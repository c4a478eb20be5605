"""Imports that are killed: at named steps, and at every operation on disk and network (I13-I18).

After each, one more run makes everything whole: nothing lost, doubled or unaudited.
"""

from __future__ import annotations

import signal
from typing import Any

import pytest

from support.bridge import import_yard
from support.long_form import LONG

pytestmark = pytest.mark.e2e

KILLED = -signal.SIGKILL


def _dies_and_recovers(zone: Any, zygote: Any, point: list[Any]) -> Any:
    medium = zone.medium(1, 5)
    assert zygote.run(zone, medium, point=point)[0] == KILLED
    code, detail = zygote.run(zone)
    assert code == 0
    zone.check([1, 2, 3, 4, 5])
    return detail[0]


@pytest.mark.parametrize(
    "point",
    [
        pytest.param(["begin", "after", 1], id="after the plan"),
        pytest.param(["hand_over", "before", 1], id="before the beginning is audited"),
        pytest.param(["audit", "after", 1], id="after the beginning is audited"),
        pytest.param(["emit", "before", 2], id="before the events are handed over"),
    ],
)
def test_i13_killed_after_the_plan_and_before_the_first_event(
    zone: Any, zygote: Any, point: list[Any]
) -> None:
    assert _dies_and_recovers(zone, zygote, point) == ["imported"]


@pytest.mark.parametrize("point", ["submit", "settle"])
@pytest.mark.parametrize("when", ["before", "after"])
@pytest.mark.parametrize("turn", [2, 3])
def test_i14_killed_inside_a_batch_or_between_two(
    zone: Any, zygote: Any, point: str, when: str, turn: int
) -> None:
    """The first turn is that of the audit entry; the first event goes alone, then the others."""
    assert _dies_and_recovers(zone, zygote, [point, when, turn]) == ["imported"]
    (success,) = (audit for audit in zone.audits() if audit.KIND == "import.success")
    assert success.resumed_from is not None


def test_i16_killed_after_the_last_event_and_before_the_success(zone: Any, zygote: Any) -> None:
    assert _dies_and_recovers(zone, zygote, ["conclude", "before", 1]) == ["imported"]


def test_i16_killed_with_the_success_written_down_and_not_audited(zone: Any, zygote: Any) -> None:
    _dies_and_recovers(zone, zygote, ["audit", "before", 2])


def test_i17_killed_after_the_success_was_audited(zone: Any, zygote: Any) -> None:
    _dies_and_recovers(zone, zygote, ["audit", "after", 2])


@pytest.mark.parametrize("when", ["before", "after"])
def test_i18_killed_around_the_move_to_the_archive(zone: Any, zygote: Any, when: str) -> None:
    _dies_and_recovers(zone, zygote, ["move", when, 2])
    assert len(zone.files("archive")) == 1


@pytest.mark.parametrize(
    "point",
    [
        ["take", "after", 1],
        ["begin", "after", 1],
        ["move", "after", 1],
        ["emit", "after", 2],
        ["conclude", "after", 1],
        ["audit", "after", 2],
        ["move", "after", 2],
        ["applied", "after", 1],
    ],
    ids=lambda item: "-".join(map(str, item)),
)
def test_a_power_cut_right_after_a_step_undoes_none_that_counts(
    zone: Any, zygote: Any, point: list[Any]
) -> None:
    medium = zone.medium(1, 5)
    assert zygote.run(zone, medium, point=point, lose="dropped")[0] == KILLED
    assert zygote.run(zone)[0] == 0
    assert zygote.run(zone, medium)[0] == 0
    zone.check([1, 2, 3, 4, 5])
    assert len(zone.files("archive")) == 1


@pytest.mark.parametrize("how", ["dropped", "torn"])
def test_a_power_cut_that_takes_what_was_not_synced_loses_doubles_and_hides_nothing(
    zone: Any, zygote: Any, how: str
) -> None:
    """One bundle of two events for each place at which the power goes."""
    code, detail = zygote.run(zone, zone.medium(1, 2), count=True)
    assert (code, detail[0]) == (0, ["imported"])
    count, last = detail[2], 2
    step = 1 if LONG else max(1, count // 8)
    first = 1 if how == "dropped" else 1 + step // 2
    for number in range(first, count + 1, step):
        medium = zone.medium(last + 1, last + 2)
        code, detail = zygote.run(zone, medium, die_at=number, lose=how)
        assert code in (KILLED, 0), number
        code, detail = zygote.run(zone, medium)
        assert (code, detail[1]) == (0, False), number
        last += 2
    zone.check(list(range(1, last + 1)))


def test_killed_at_every_operation_nothing_is_lost_doubled_or_unaudited(
    zone: Any, zygote: Any
) -> None:
    """One bundle of two events for each operation; the log goes on through all the kills."""
    code, detail = zygote.run(zone, zone.medium(1, 2), count=True)
    assert (code, detail[0]) == (0, ["imported"])
    count, last = detail[2], 2
    assert count > 100
    step = 1 if LONG else max(1, count // 12)
    for number in range(1, count + 1, step):
        medium = zone.medium(last + 1, last + 2)
        before = import_yard.tree(medium)
        code, detail = zygote.run(zone, medium, die_at=number)
        assert code in (KILLED, 0)
        code, detail = zygote.run(zone, medium)
        assert (code, detail[1]) == (0, False)
        assert import_yard.tree(medium) == before
        last += 2
    zone.check(list(range(1, last + 1)))
