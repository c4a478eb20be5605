"""What the index follower reports of itself, for the HTTP workers, which are other processes.

The report is a small file. Its times are those of CLOCK_MONOTONIC, which all processes of a host
share and which nobody sets: a clock that was changed makes no follower look alive.
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
"""Longer than the follower may wait for one answer of the hub with all attempts."""
_EVERY_SEC: Final = 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class FollowerReport:
    """``state``: it follows, another process does, it failed and is to be restarted, it ended."""

    state: str
    detail: str
    restarts: int
    beat: float

    def problem(self, now: float) -> str | None:
        """Why nobody follows the index; None while somebody does."""
        if self.state in (FAILED, ENDED):
            return f"the index follower {self.state}: {self.detail}"
        silent = now - self.beat
        if not 0 <= silent <= SILENT_SEC:
            return f"the index follower has not reported for {SILENT_SEC:.0f} s or longer"
        return None


class Reporter:
    """Written by the follower's thread alone. A report that cannot be written grows old."""

    def __init__(self, path: Path, clock: Callable[[], float] = time.monotonic) -> None:
        self._path = path
        self._clock = clock
        self._restarts = 0
        self._last: tuple[str, float] | None = None

    def alive(self, state: str = FOLLOWING) -> None:
        """That the thread runs; on disk at most once a second while nothing changes."""
        now = self._clock()
        if self._last is None or self._last[0] != state or now - self._last[1] >= _EVERY_SEC:
            self._write(state, "", now)

    def failed(self, value: str) -> None:
        self._restarts += 1
        self._write(FAILED, value, self._clock())

    def ended(self) -> None:
        self._write(ENDED, "the service stops", self._clock())

    def _write(self, state: str, value: str, now: float) -> None:
        self._last = state, now
        report = FollowerReport(state=state, detail=value, restarts=self._restarts, beat=now)
        beside = self._path.with_suffix(".new")
        with suppress(OSError):
            beside.write_text(json.dumps(asdict(report)))
            beside.replace(self._path)


def read(path: Path) -> FollowerReport | None:
    """The last report; None where there is none that can be read."""
    try:
        return FollowerReport(**json.loads(path.read_text()))
    except (OSError, ValueError, TypeError):
        return None


def problem(path: Path) -> str | None:
    """Why nobody follows the index, by the last report; a missing report is a reason too."""
    result = read(path)
    return "no index follower has reported" if result is None else result.problem(time.monotonic())
