"""How fast something goes: a rate, and how long single steps took."""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import TypeVar

T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class Summary:
    """Milliseconds are for one result, on average over a window of them."""

    count: int
    seconds: float
    per_sec: float
    p50_ms: float
    p95_ms: float
    p99_ms: float
    max_ms: float


class Pace:
    """``clock`` gives seconds, and never goes back. What comes in batches needs a ``window``."""

    def __init__(self, clock: Callable[[], float], window: int) -> None:
        self._clock = clock
        self._window = window
        self._steps = array("d")
        self._count = 0
        self._seconds = 0.0

    def timed(self, results: Iterable[T]) -> Iterator[T]:
        """The same results, with the time noted that was spent on waiting for them."""
        waiting = iter(results)
        spent = 0.0
        while True:
            began = self._clock()
            try:
                found = next(waiting)
            except StopIteration:
                break
            spent += self._clock() - began
            self._count += 1
            if self._count % self._window == 0:
                self._note(spent, self._window)
                spent = 0.0
            yield found
        if self._count % self._window:
            self._note(spent, self._count % self._window)

    def summary(self) -> Summary:
        steps = sorted(self._steps)
        return Summary(
            count=self._count,
            seconds=round(self._seconds, 3),
            per_sec=round(self._count / self._seconds, 1) if self._seconds else 0.0,
            p50_ms=_percentile(steps, 50),
            p95_ms=_percentile(steps, 95),
            p99_ms=_percentile(steps, 99),
            max_ms=_percentile(steps, 100),
        )

    def _note(self, spent: float, results: int) -> None:
        self._steps.append(spent / results)
        self._seconds += spent


def _percentile(ordered: list[float], percent: int) -> float:
    """The smallest step that so many percent of all do not exceed."""
    if not ordered:
        return 0.0
    rank = -(-len(ordered) * percent // 100)
    return round(1000 * ordered[max(rank, 1) - 1], 3)
