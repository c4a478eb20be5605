"""One measurement, and the timer that compares two ways of doing a thing."""

from __future__ import annotations

import json
import statistics
import timeit
from collections.abc import Callable
from dataclasses import dataclass

Work = Callable[[], object]
ROUNDS = 15


@dataclass(frozen=True, slots=True, kw_only=True)
class Measurement:
    """A value; and, where it was compared, the ratio of its time to the other's."""

    bench: str
    value: float
    unit: str
    against: str | None = None
    ratio: float | None = None
    at_most: float | None = None

    def to_json(self) -> str:
        return json.dumps(
            {
                "bench": self.bench,
                "value": round(self.value, 2),
                "unit": self.unit,
                "against": self.against,
                "ratio": None if self.ratio is None else round(self.ratio, 3),
                "aim": None if self.at_most is None else f"<= {self.at_most:g}",
                "met": self.is_met(),
            }
        )

    def is_met(self) -> bool | None:
        """Whether the aim is met; None where there is none."""
        if self.ratio is None or self.at_most is None:
            return None
        return self.ratio <= self.at_most


@dataclass(frozen=True, slots=True)
class Comparison:
    """Seconds of one call of either side, and how often the second fits into the first."""

    seconds: float
    other_seconds: float
    ratio: float


def compare(work: Work, other: Work, calls: int) -> Comparison:
    """Time both in turns, so that a slow spell of the machine falls on both alike.

    The ratio is the median of the ratios of each round, not the ratio of the medians.
    """
    pairs = [_round(work, other, calls, number) for number in range(ROUNDS)]
    return Comparison(
        statistics.median(mine for mine, _ in pairs),
        statistics.median(others for _, others in pairs),
        statistics.median(mine / others for mine, others in pairs),
    )


def _round(work: Work, other: Work, calls: int, number: int) -> tuple[float, float]:
    if number % 2:
        others = timeit.timeit(other, number=calls)
        mine = timeit.timeit(work, number=calls)
    else:
        mine = timeit.timeit(work, number=calls)
        others = timeit.timeit(other, number=calls)
    return mine / calls, others / calls
