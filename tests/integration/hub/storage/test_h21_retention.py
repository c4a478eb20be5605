"""H21: chunks are let go by hub time, never by a clock that is ahead of it."""

from __future__ import annotations

from pathlib import Path

from hub.storage.datadir import DataDir
from hub.storage.retention import hub_time
from support.hub import driven_hub

DAY = 86_400


def test_h21_a_clock_that_is_ahead_lets_nothing_go(golden_hub: Path) -> None:
    datadir = DataDir(golden_hub)
    latest = hub_time(datadir, driven_hub.START + 1_000 * DAY)
    assert latest < driven_hub.START + DAY
    assert hub_time(datadir, latest + 50 * DAY) == latest
    assert hub_time(datadir, latest - 5) == latest - 5
