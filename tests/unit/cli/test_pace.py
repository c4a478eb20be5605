"""Rates and percentiles, from a clock that the test sets."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from cli.bench import Pace


class Work:
    """Results that take as long as it is said, on a clock of their own."""

    def __init__(self, *seconds: float) -> None:
        self.now = 0.0
        self._seconds = seconds

    def clock(self) -> float:
        return self.now

    def results(self) -> Iterator[float]:
        for second in self._seconds:
            self.now += second
            yield second


def test_counts_only_what_was_waited_for() -> None:
    work = Work(1.0, 3.0)
    pace = Pace(work.clock, window=1)
    for _ in pace.timed(work.results()):
        work.now += 100.0
    summary = pace.summary()
    assert (summary.count, summary.seconds, summary.per_sec) == (2, 4.0, 0.5)


def test_percentiles_are_steps_that_were_taken() -> None:
    work = Work(*(n / 1000 for n in range(1, 101)))
    pace = Pace(work.clock, window=1)
    assert len(list(pace.timed(work.results()))) == 100
    summary = pace.summary()
    assert (summary.p50_ms, summary.p95_ms, summary.p99_ms, summary.max_ms) == pytest.approx(
        (50.0, 95.0, 99.0, 100.0)
    )


def test_a_window_spreads_a_batch_over_its_results() -> None:
    work = Work(4.0, 0.0, 0.0, 0.0, 2.0)
    pace = Pace(work.clock, window=4)
    list(pace.timed(work.results()))
    summary = pace.summary()
    assert (summary.p50_ms, summary.max_ms, summary.seconds) == (1000.0, 2000.0, 6.0)


def test_nothing_has_no_rate() -> None:
    pace = Pace(lambda: 0.0, window=1)
    assert list(pace.timed([])) == []
    assert (pace.summary().count, pace.summary().per_sec, pace.summary().max_ms) == (0, 0.0, 0.0)
