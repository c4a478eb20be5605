"""Rows of a query with evidence full, against two bare verifications for each of them.

What is timed is the whole answer of the inline engine: plan, walk, rows, messages and proofs of
inclusion read, both signatures, the leaf, the proof and the re-opened body of each row verified.
Every row is a real sealed and signed event; they are every other one of their stream.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import bare
import indexed
from measure import Measurement, compare_timed

from recorder.index.engine import EngineLimits, answer
from recorder.query.descriptor import normalise
from veen.system.process_pool import WorkerPool, pool

ROWS, ROUNDS = 4_000, 9
LIMITS = EngineLimits(row_budget=4 * ROWS, max_rows=ROWS)


class Bench:
    def __init__(self, made: indexed.Indexed, beside: WorkerPool) -> None:
        self._made = made
        self._beside = beside
        self._queries = indexed.queries("full")

    def full(self) -> float:
        """Seconds of one verified row."""
        descriptor = normalise(next(self._queries), query_id_if_missing="")
        begun = time.perf_counter()
        result = answer(
            self._made.home, descriptor, self._made.checkpoint, self._made.hub, LIMITS, self._beside
        )
        seconds = time.perf_counter() - begun
        assert len(result.witnesses) == ROWS
        return seconds / ROWS


def measure() -> Iterator[Measurement]:
    with tempfile.TemporaryDirectory(prefix="veen-bench-", dir="/var/tmp") as root:
        made = indexed.build(Path(root) / "index", 2 * ROWS, ROWS)
        for processes in (0, 2):
            yield _measured(made, processes)


def _measured(made: indexed.Indexed, processes: int) -> Measurement:
    """With two processes beside, as the service runs it, the two cores of the machine are used."""
    with pool(processes) as beside:
        bench = Bench(made, beside)
        bench.full()
        result = compare_timed(lambda: 2 * bare.verify(ROWS), bench.full, ROUNDS)
    return Measurement(
        bench=f"query_evidence_{processes}_beside",
        value=1 / result.other_seconds,
        unit="rows/s, evidence full",
        against="two bare Ed25519 verifications, one after another on one core",
        ratio=result.ratio,
        at_least=0.6,
    )
