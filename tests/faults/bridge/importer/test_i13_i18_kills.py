"""Imports that are killed: at named steps, and at every operation on disk and network (I13-I18).

After each, one more run makes everything whole: nothing lost, doubled or unaudited.
"""

from __future__ import annotations

import signal
from typing import Any

import pytest

from support.bridge import importing_zone
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
    import_zone: Any, import_runner: Any, point: list[Any]
) -> None:
    assert _dies_and_recovers(import_zone, import_runner, point) == ["imported"]


@pytest.mark.parametrize("point", ["submit", "settle"])
@pytest.mark.parametrize("when", ["before", "after"])
@pytest.mark.parametrize("turn", [2, 3])
def test_i14_killed_inside_a_batch_or_between_two(
    import_zone: Any, import_runner: Any, point: str, when: str, turn: int
) -> None:
    """The first turn is that of the audit entry; the first event goes alone, then the others."""
    assert _dies_and_recovers(import_zone, import_runner, [point, when, turn]) == ["imported"]
    (success,) = (audit for audit in import_zone.audits() if audit.KIND == "import.success")
    assert success.resumed_from is not None


def test_i16_killed_after_the_last_event_and_before_the_success(
    import_zone: Any, import_runner: Any
) -> None:
    assert _dies_and_recovers(import_zone, import_runner, ["conclude", "before", 1]) == ["imported"]


def test_i16_killed_with_the_success_written_down_and_not_audited(
    import_zone: Any, import_runner: Any
) -> None:
    _dies_and_recovers(import_zone, import_runner, ["audit", "before", 2])


def test_i17_killed_after_the_success_was_audited(import_zone: Any, import_runner: Any) -> None:
    _dies_and_recovers(import_zone, import_runner, ["audit", "after", 2])


@pytest.mark.parametrize("when", ["before", "after"])
def test_i18_killed_around_the_move_to_the_archive(
    import_zone: Any, import_runner: Any, when: str
) -> None:
    _dies_and_recovers(import_zone, import_runner, ["move", when, 2])
    assert len(import_zone.files("archive")) == 1


@pytest.mark.parametrize(
    "point",
    [
        ["take", "before", 1],
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
    import_zone: Any, import_runner: Any, point: list[Any]
) -> None:
    medium = import_zone.medium(1, 5)
    assert import_runner.run(import_zone, medium, point=point, lose="dropped")[0] == KILLED
    assert import_runner.run(import_zone)[0] == 0
    assert import_runner.run(import_zone, medium)[0] == 0
    import_zone.check([1, 2, 3, 4, 5])
    assert len(import_zone.files("archive")) == 1


@pytest.mark.parametrize("how", ["dropped", "torn"])
def test_a_power_cut_that_takes_what_was_not_synced_loses_doubles_and_hides_nothing(
    import_zone: Any, import_runner: Any, how: str
) -> None:
    """One bundle of two events for each place at which the power goes."""
    code, detail = import_runner.run(import_zone, import_zone.medium(1, 2), count=True)
    assert (code, detail[0]) == (0, ["imported"])
    count, last = detail[2], 2
    step = 1 if LONG else max(1, count // 8)
    first = 1 if how == "dropped" else 1 + step // 2
    for number in range(first, count + 1, step):
        medium = import_zone.medium(last + 1, last + 2)
        code, detail = import_runner.run(import_zone, medium, die_at=number, lose=how)
        assert code in (KILLED, 0), number
        code, detail = import_runner.run(import_zone, medium)
        assert (code, detail[1]) == (0, False), number
        last += 2
    import_zone.check(list(range(1, last + 1)))


def test_killed_at_every_operation_nothing_is_lost_doubled_or_unaudited(
    import_zone: Any, import_runner: Any
) -> None:
    """One bundle of two events for each operation; the log goes on through all the kills."""
    code, detail = import_runner.run(import_zone, import_zone.medium(1, 2), count=True)
    assert (code, detail[0]) == (0, ["imported"])
    count, last = detail[2], 2
    assert count > 100
    step = 1 if LONG else max(1, count // 12)
    for number in range(1, count + 1, step):
        medium = import_zone.medium(last + 1, last + 2)
        before = importing_zone.tree(medium)
        code, detail = import_runner.run(import_zone, medium, die_at=number)
        assert code in (KILLED, 0)
        code, detail = import_runner.run(import_zone, medium)
        assert (code, detail[1]) == (0, False)
        assert importing_zone.tree(medium) == before
        last += 2
    import_zone.check(list(range(1, last + 1)))
