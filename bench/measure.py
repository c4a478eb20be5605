"""One measurement, and the timer that compares two ways of doing a thing."""

from __future__ import annotations

import json
import statistics
import timeit
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

Work = Callable[[], object]
Timed = Callable[[], float]
ROUNDS = 15


@dataclass(frozen=True, slots=True, kw_only=True)
class Measurement:
    """A value; and, where it was compared, its ratio to the other and what that should be."""

    bench: str
    value: float
    unit: str
    against: str | None = None
    ratio: float | None = None
    at_most: float | None = None
    at_least: float | None = None

    def to_json(self) -> str:
        return json.dumps(
            {
                "bench": self.bench,
                "value": round(self.value, 2),
                "unit": self.unit,
                "against": self.against,
                "ratio": None if self.ratio is None else round(self.ratio, 3),
                "aim": self._aim(),
                "met": self.is_met(),
            }
        )

    def is_met(self) -> bool | None:
        """Whether the aim is met; None where there is none."""
        if self.ratio is None or (self.at_most is None and self.at_least is None):
            return None
        low = self.at_least is None or self.ratio >= self.at_least
        return low and (self.at_most is None or self.ratio <= self.at_most)

    def _aim(self) -> str | None:
        if self.at_most is not None:
            return f"<= {self.at_most:g}"
        return None if self.at_least is None else f">= {self.at_least:g}"


@dataclass(frozen=True, slots=True)
class Comparison:
    """Seconds of one call of either side, and how often the second fits into the first."""

    seconds: float
    other_seconds: float
    ratio: float


def compare(work: Work, other: Work, calls: int) -> Comparison:
    """Time both in turns, so that a slow spell of the machine falls on both alike."""
    return compare_timed(partial(_timed, work, calls), partial(_timed, other, calls))


def compare_timed(work: Timed, other: Timed, rounds: int = ROUNDS) -> Comparison:
    """The same for work that times itself, because not all of it counts.

    The ratio is the median of the ratios of each round, not the ratio of the medians.
    """
    pairs = [_round(work, other, number) for number in range(rounds)]
    return Comparison(
        statistics.median(mine for mine, _ in pairs),
        statistics.median(others for _, others in pairs),
        statistics.median(mine / others for mine, others in pairs),
    )


def _round(work: Timed, other: Timed, number: int) -> tuple[float, float]:
    if number % 2:
        others = other()
        return work(), others
    return work(), other()


def _timed(work: Work, calls: int) -> float:
    return timeit.timeit(work, number=calls) / calls
