"""The status that the index follower reports to the HTTP workers, which are other processes.

The report is a small file. Its times are those of CLOCK_MONOTONIC, which all processes of a host
share and which cannot be set, so that a changed clock never makes a dead follower look alive.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Final

FOLLOWING: Final = "following"
ELSEWHERE: Final = "elsewhere"
FAILED: Final = "failed"
ENDED: Final = "ended"

SILENT_SEC: Final = 60.0
"""Longer than the follower waits for an answer of the hub, including retries."""
_REPORT_SEC: Final = 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class FollowerReport:
    """``state``: it follows, another process does, it failed and restarts, or it ended."""

    state: str
    detail: str
    restarts: int
    beat: float

    def problem(self, now: float) -> str | None:
        """Why the index is not followed; None while it is."""
        if self.state in (FAILED, ENDED):
            return f"the index follower {self.state}: {self.detail}"
        silent = now - self.beat
        if not 0 <= silent <= SILENT_SEC:
            return f"the index follower has not reported for {SILENT_SEC:.0f} s or longer"
        return None


class Reporter:
    """Writes reports, from the follower's thread only.

    A report that cannot be written becomes stale.
    """

    def __init__(self, path: Path, clock: Callable[[], float] = time.monotonic) -> None:
        self._path = path
        self._clock = clock
        self._restarts = 0
        self._last: tuple[str, float] | None = None

    def alive(self, state: str = FOLLOWING) -> None:
        """Report that the thread runs; written at most once a second while nothing changes."""
        now = self._clock()
        if self._last is None or self._last[0] != state or now - self._last[1] >= _REPORT_SEC:
            self._write(state, "", now)

    def failed(self, detail: str) -> None:
        self._restarts += 1
        self._write(FAILED, detail, self._clock())

    def ended(self) -> None:
        self._write(ENDED, "the service stops", self._clock())

    def _write(self, state: str, detail: str, now: float) -> None:
        self._last = state, now
        report = FollowerReport(state=state, detail=detail, restarts=self._restarts, beat=now)
        temporary = self._path.with_suffix(".new")
        with suppress(OSError):
            temporary.write_text(json.dumps(asdict(report)))
            temporary.replace(self._path)


def read(path: Path) -> FollowerReport | None:
    """The last report; None if there is none that can be read."""
    try:
        return FollowerReport(**json.loads(path.read_text()))
    except (OSError, ValueError, TypeError):
        return None


def problem(path: Path) -> str | None:
    """Why the index is not followed, by the last report; a missing report is a reason too."""
    report = read(path)
    return "no index follower has reported" if report is None else report.problem(time.monotonic())
