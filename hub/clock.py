"""The clock of a hub: the host's clock, checked for steps against the time since boot.

Hub time never goes back (ADR 0017), so a single message at a wrong time binds all that follow. A
clock that steps ahead by more than the limit is therefore not followed: messages are refused until
it is set right, or until the hub is restarted, which accepts the clock as it is. A clock that steps
back is followed, and hub time is held until the clock has caught up; both are logged. Until
then the clock may return to where it was: hub time reaches nothing that it would not have reached.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from functools import partial
from typing import Final

from veen.errors import VeenError

_log = logging.getLogger(__name__)
Seconds = Callable[[], float]
CLOCK_STEP_LIMIT_SEC: Final = 3_600
"""The default: no daylight, no leap second and no slewing daemon comes near it."""


class ClockStepped(VeenError):
    """The host's clock was set ahead by more than the hub accepts."""


since_boot: Seconds = partial(time.clock_gettime, time.CLOCK_BOOTTIME)
"""Seconds since boot, time in suspend included; setting the clock does not change them."""


class HubClock:
    """``step_limit_sec`` 0 follows every step. Small steps and drift are always followed."""

    def __init__(
        self, step_limit_sec: int, *, wall: Seconds = time.time, steady: Seconds = since_boot
    ) -> None:
        self._limit = step_limit_sec
        self._wall, self._steady = wall, steady
        self._latest = wall()
        self._offset = self._accepted = self._latest - steady()
        """The last offset from the time since boot, and the offset when hub time last moved."""
        self._ahead = 0

    @property
    def step_ahead_sec(self) -> int:
        """Seconds by which the clock stepped ahead beyond the limit at the last reading, or 0."""
        return self._ahead

    def now(self) -> int:
        """Whole seconds since 1970, or ClockStepped."""
        seconds = self.read()
        if self._ahead:
            raise ClockStepped(
                f"the clock of the hub's host stepped ahead by {self._ahead} s, more than "
                f"clock_step_limit_sec = {self._limit}: set the clock right, or restart the hub "
                "if the new time is the right one"
            )
        return seconds

    def read(self) -> int:
        """The host's clock as it is, for reports; a step is noted and logged once."""
        wall = self._wall()
        offset = wall - self._steady()
        step = offset - self._offset
        if self._limit and offset - self._accepted > self._limit:
            self._report_ahead(int(offset - self._accepted))
            return int(wall)
        if self._ahead:
            _log.warning("the clock is right again; messages are accepted")
        if self._limit and step < -self._limit:
            _log.error(
                "the clock stepped back by %d s; hub time is held until the clock catches up", -step
            )
        self._offset, self._ahead = offset, 0
        if wall >= self._latest:
            self._latest, self._accepted = wall, offset
        return int(wall)

    def _report_ahead(self, step: int) -> None:
        if not self._ahead:
            _log.critical("the clock stepped ahead by %d s; messages are refused", step)
        self._ahead = step
