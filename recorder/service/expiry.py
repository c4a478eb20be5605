"""Rows of old results are removed; what became of their queries stays known for ever."""

from __future__ import annotations

import logging
import shutil
import time
from collections.abc import Callable
from typing import Final

from recorder.service.home import ServiceHome
from recorder.service.results import Results

_DAY_MS: Final = 86_400_000
_EVERY_SEC: Final = 3_600
_STEP_MS: Final = 3_600_000
_log = logging.getLogger(__name__)


class Expiry:
    """``keep_days`` None keeps all.

    When to look again goes by ``steady``, which no setting of the clock moves. While the clock is
    more than an hour ahead of where it was at the start plus the time since, nothing is removed:
    rows would go before their time.
    """

    def __init__(
        self,
        results: Results,
        home: ServiceHome,
        keep_days: int | None,
        clock_ms: Callable[[], int],
        steady: Callable[[], float] = time.monotonic,
    ) -> None:
        self._results = results
        self._home = home
        self._keep_days = keep_days
        self._clock_ms = clock_ms
        self._steady = steady
        self._due = steady()
        self._started = (clock_ms(), steady())

    def turn(self) -> None:
        """Now and then: a result is marked first, so that nobody is shown half of its rows."""
        now, steady = self._clock_ms(), self._steady()
        if steady < self._due:
            return
        self._due = steady + _EVERY_SEC
        if self._is_ahead(now, steady):
            _log.error("rows of old results stay: the clock stepped ahead; restart if it is right")
            return
        if self._keep_days is not None:
            self._results.expire(now - self._keep_days * _DAY_MS, now)
        for folder in (self._home.rows, self._home.spark):
            for one in folder.iterdir():
                if self._results.is_expired(one.name):
                    shutil.rmtree(one)

    def _is_ahead(self, now_ms: int, steady: float) -> bool:
        clock_ms, since = self._started
        step = now_ms - clock_ms - int(1000 * (steady - since))
        if abs(step) <= _STEP_MS:
            self._started = (now_ms, steady)
        return step > _STEP_MS
