"""What an operation of a hub costs in processor time as its history grows.

Histories are written by the hub's own committer, in memory (/dev/shm) where there is one: a sync
costs no processor time. Each measurement is the median of some calls; its ratio is that to the
smallest size. ``BENCH_HISTORY`` multiplies the sizes, 10 for the long form.
"""

from __future__ import annotations

import os
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import inside
import sample
from measure import Measurement

from hub.admission import VerifiedMsg
from hub.sequencer.committer import Committer
from hub.storage.datadir import DataDir
from hub.storage.reader import LogReader
from veen.msg import Msg

SCALE = int(os.environ.get("BENCH_HISTORY", "1"))
CALLS = 15
GROUP = 4_096
MILLISECONDS = 1e3
MICROSECONDS = 1e6
_MEMORY = Path("/dev/shm")


def measure() -> Iterator[Measurement]:
    yield from _table("checkpoint", "checkpoints", "ms", checkpoint_costs())
    yield from _table("find_leaf", "entries", "us", find_leaf_costs())


def _table(
    name: str, of: str, unit: str, costs: Mapping[int, float], at_most: float = 3.0
) -> Iterator[Measurement]:
    """A measurement for each size, with its ratio to the first."""
    scale = MILLISECONDS if unit == "ms" else MICROSECONDS
    first = next(iter(costs))
    for size, seconds in costs.items():
        yield Measurement(
            bench=f"hub_history_{name}_at_{size}",
            value=seconds * scale,
            unit=f"{unit} of CPU",
            against=f"the same at {first} {of}",
            ratio=seconds / costs[first],
            at_most=at_most,
        )


@contextmanager
def directory() -> Iterator[DataDir]:
    where = _MEMORY if _MEMORY.is_dir() else None
    with tempfile.TemporaryDirectory(prefix="veen-bench-", dir=where) as root:
        datadir = DataDir(Path(root) / "hub")
        datadir.create()
        yield datadir


def seconds_of(work: Callable[[], object], calls: int = CALLS) -> float:
    """The median processor time of a call in this process."""
    return statistics.median(_timed(work) for _ in range(calls))


def _timed(work: Callable[[], object]) -> float:
    begun = time.process_time()
    work()
    return time.process_time() - begun


def checkpoint_costs() -> dict[int, float]:
    """One checkpoint at the head, of a label that has so many."""
    costs = {}
    with directory() as datadir, inside.committing(datadir) as committer:
        (writer,) = inside.writers(committer, 1)

        def checkpoint() -> None:
            commit(committer, [writer.unsigned()])
            committer.checkpoint(writer.label, _head(committer, writer.label), inside.CLOCK)

        for size in (1_000, 10_000 * SCALE):
            while _head(committer, writer.label) < size:
                checkpoint()
            costs[size] = seconds_of(checkpoint)
    return costs


def find_leaf_costs() -> dict[int, float]:
    """The place of a leaf of the open chunk, in a log of so many entries."""
    costs = {}
    with directory() as datadir, inside.committing(datadir) as committer:
        (writer,) = inside.writers(committer, 1)
        for size in (10_000, 100_000 * SCALE):
            while (missing := size - _head(committer, writer.label)) > 0:
                last = [writer.unsigned() for _ in range(min(GROUP, missing))]
                commit(committer, last)
            reader = LogReader(datadir, sample.LIMITS)
            leaf = last[-1].leaf_hash()
            if reader.find_leaf(leaf) != [(writer.label, size)]:
                raise AssertionError(f"the leaf of entry {size} is not where it was written")
            costs[size] = seconds_of(partial(reader.find_leaf, leaf))
            reader.close()
    return costs


def commit(committer: Committer, messages: list[Msg]) -> None:
    outcomes = committer.commit([VerifiedMsg.of(msg) for msg in messages], inside.CLOCK)
    if not all(isinstance(outcome, bytes) for outcome in outcomes):
        raise AssertionError(f"a message was refused: {outcomes[0]}")


def _head(committer: Committer, label: bytes) -> int:
    label_log = committer.log.label(label)
    return 0 if label_log is None else label_log.head_seq
