"""H21: checkpoints and anchors go on when the last of them is dated ahead."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from recorder.checkpoints.schedule import _LastSeen
from recorder.checkpoints.store import AnchorCadence, CheckpointCadence

NOW, DAY = 1_900_000_000, 86_400
CADENCE = CheckpointCadence(every_minutes=10, every_events=0)


def dated(created_at: int) -> Any:
    return SimpleNamespace(created_at=created_at, names=(), ends=())


@pytest.mark.parametrize("step", [20 * DAY, 0, -20 * DAY])
def test_h21_a_checkpoint_is_due_by_what_was_waited(step: int) -> None:
    last, heads = dated(NOW + step), {"record/a": 1}
    assert (CADENCE.due(NOW, last, heads, waited_sec=0) is None) == (step >= 0)
    assert CADENCE.due(NOW, last, heads, waited_sec=599) is None or step < 0
    assert CADENCE.due(NOW, last, heads, waited_sec=600) is not None


def test_h21_waiting_begins_anew_with_each_checkpoint() -> None:
    seen = _LastSeen()
    assert seen.waited(b"a", 100.0) == 0
    assert seen.waited(b"a", 700.0) == 600
    assert seen.waited(b"b", 800.0) == 0
    assert seen.waited(None, 900.0) == 0


def test_h21_a_checkpoint_that_is_dated_ahead_is_anchored_now() -> None:
    cadence = AnchorCadence(every_checkpoints=0, every_minutes=60)
    assert cadence.is_due(NOW, [dated(NOW + 20 * DAY)])
    assert not cadence.is_due(NOW, [dated(NOW - 60)])
