"""How often a request is tried again, and how long it waits in between."""

from __future__ import annotations

import logging
import secrets
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TypeVar

from veen.objects.port import StoreUnavailable

_LOG = logging.getLogger(__name__)
T = TypeVar("T")


class Transient(StoreUnavailable):
    """One request failed in a way that the next may not; it may have been carried out."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Retries:
    """Doubling pauses up to a bound, each cut by chance so that clients do not march in step."""

    attempts: int = 8
    first_pause: float = 0.1
    longest_pause: float = 10.0
    wait: Callable[[float], None] = time.sleep

    def run(self, what: str, attempt: Callable[[], T]) -> T:
        """What ``attempt`` returns; after the last attempt, the Transient it raised."""
        for pause in self._pauses():
            try:
                return attempt()
            except Transient as error:
                _LOG.info("%s: %s; again in %.2f s", what, error, pause)
            self.wait(pause)
        return attempt()

    def _pauses(self) -> Iterator[float]:
        for turn in range(self.attempts - 1):
            longest = min(self.longest_pause, self.first_pause * 2**turn)
            yield longest * (0.5 + secrets.randbelow(1_000) / 2_000)
