"""Rows of old results are removed; what became of their queries stays known for ever."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from typing import Final

from recorder.service.home import ServiceHome
from recorder.service.results import Results

_DAY_MS: Final = 86_400_000
_EVERY_MS: Final = 3_600_000


class Expiry:
    """``keep_days`` None keeps all."""

    def __init__(
        self,
        results: Results,
        home: ServiceHome,
        keep_days: int | None,
        clock_ms: Callable[[], int],
    ) -> None:
        self._results = results
        self._home = home
        self._keep_days = keep_days
        self._clock_ms = clock_ms
        self._due = 0

    def turn(self) -> None:
        """Now and then: a result is marked first, so that nobody is shown half of its rows."""
        now = self._clock_ms()
        if now < self._due:
            return
        self._due = now + _EVERY_MS
        if self._keep_days is not None:
            self._results.expire(now - self._keep_days * _DAY_MS, now)
        for folder in (self._home.rows, self._home.spark):
            for one in folder.iterdir():
                if self._results.is_expired(one.name):
                    shutil.rmtree(one)
