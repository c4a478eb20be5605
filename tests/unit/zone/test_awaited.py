"""What a start of a zone says while it waits."""

from __future__ import annotations

import pytest

from veen.system.child_process import Born
from zone.state import Running, Unstarted, ZoneStage, ZoneState

HUB = Running("hub", Born(1, 2), "/z/logs/hub.log")
QUERY = Running("query", Born(3, 4), "/z/logs/query.log", is_ready=True)


@pytest.mark.parametrize(
    ("state", "line"),
    [
        (ZoneState(ZoneStage.STARTING), "waiting for the supervisor"),
        (
            ZoneState(ZoneStage.STARTING, running=(HUB, QUERY)),
            "waiting for hub (log: /z/logs/hub.log)",
        ),
        (
            ZoneState(ZoneStage.STARTING, running=(HUB,), waiting=("scheduler", "triggerer")),
            "waiting for hub (log: /z/logs/hub.log); then scheduler, triggerer",
        ),
        (
            ZoneState(ZoneStage.STARTING, unstarted=(Unstarted("hub", False, "no Flask"),)),
            "waiting for hub (no Flask)",
        ),
    ],
)
def test_names_the_parts_that_a_start_waits_for(state: ZoneState, line: str) -> None:
    assert state.awaited() == line
