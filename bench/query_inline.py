"""A query with a result of fixed size, in an index of many events against one of ten thousand.

What is timed is the whole answer of the inline engine to a query by subject: the index opened, the
checkpoint looked up, ranges and counts, the walk, the rows; with evidence full also the messages,
proofs, signatures and bodies of all rows. Both results have as many rows, spread over all of the
stream. How the indexes were made is told in indexed.py.

BENCH_QUERY_EVENTS=100000 measures at fewer than a million, which takes about a minute to make.
"""

from __future__ import annotations

import os
import statistics
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import indexed
from measure import Measurement, compare_timed

from recorder.index.engine import EngineLimits, answer
from recorder.query.descriptor import normalise

SMALL = 10_000
EVENTS = int(os.environ.get("BENCH_QUERY_EVENTS", "1000000"))
ROWS, ROUNDS, CALLS = 100, 15, 9
LIMITS = EngineLimits(row_budget=10_000, max_rows=10_000)
MILLISECONDS = 1e3


class Bench:
    def __init__(self, made: indexed.Indexed, mode: str) -> None:
        self._made = made
        self._queries = indexed.queries(mode)

    def p50(self) -> float:
        """Seconds of a query, in the middle of a few."""
        return statistics.median(self._query() for _ in range(CALLS))

    def _query(self) -> float:
        descriptor = normalise(next(self._queries), query_id_if_missing="")
        begun = time.perf_counter()
        result = answer(self._made.home, descriptor, self._made.checkpoint, self._made.hub, LIMITS)
        seconds = time.perf_counter() - begun
        assert len(result.outcome.rows) == ROWS
        return seconds


def measure() -> Iterator[Measurement]:
    with tempfile.TemporaryDirectory(prefix="veen-bench-", dir="/var/tmp") as root:
        small = indexed.build(Path(root) / "small", SMALL, ROWS)
        large = indexed.build(Path(root) / "large", EVENTS, ROWS)
        for mode in ("none", "full"):
            result = compare_timed(Bench(large, mode).p50, Bench(small, mode).p50, ROUNDS)
            yield Measurement(
                bench=f"query_inline_{mode}",
                value=MILLISECONDS * result.seconds,
                unit=f"ms p50, {ROWS} rows of {EVENTS} events, evidence {mode}",
                against=f"the same at {SMALL} events",
                ratio=result.ratio,
                at_most=1.5,
            )
