"""What a log of a million entries costs a hub, against one of ten thousand.

The entries are committed by a real committer, but their client signatures are dummies: the
committer takes them as verified, and neither proofs nor a restart look at them again.
Both logs have equally many entries in their open chunk, which is what a restart reads.
"""

from __future__ import annotations

import os
import random
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass

import feed
import inside
import sample
from measure import Measurement, compare_timed

from hub.admission import VerifiedMsg
from hub.storage.datadir import DataDir, DataDirLock
from hub.storage.reader import LogReader

SMALL = 10_000
ENTRIES = int(os.environ.get("BENCH_HUB_ENTRIES", "1000000"))
GROUP = 4_096
PROOFS = 200  # in a round, each of another entry
ROUNDS = 15
RESTARTS = 7
MILLISECONDS = 1e3


def _grown(entries: int) -> int:
    """The first size from ``entries`` up whose open chunk is as full as the small log's."""
    interval = sample.LIMITS.max_checkpoint_interval
    return entries + (SMALL - entries) % interval


@dataclass(slots=True)
class Grown:
    """A log of some size, at rest, and its entries in an order that no cache foresees."""

    datadir: DataDir
    label: bytes
    size: int
    seqs: Iterator[int]

    def proof(self, reader: LogReader, seq: int) -> object:
        return reader.proof(self.label, seq)

    def inclusion(self, reader: LogReader, seq: int) -> object:
        return reader.inclusion(self.label, seq, self.size)

    def round(self, prove: Prove) -> float:
        """Seconds of one proof of an entry that was not asked for before."""
        reader = LogReader(self.datadir, sample.LIMITS)
        reader.label(self.label)
        expected = [next(self.seqs) for _ in range(PROOFS)]
        begun = time.perf_counter()
        for seq in expected:
            prove(self, reader, seq)
        return (time.perf_counter() - begun) / PROOFS

    def restart(self) -> float:
        """Seconds until the log can be written to again."""
        begun = time.perf_counter()
        log = inside.open_log(self.datadir)
        seconds = time.perf_counter() - begun
        log.close()
        return seconds

    def verify(self) -> None:
        """That the proofs hold against the roots in the hub's receipts."""
        reader = LogReader(self.datadir, sample.LIMITS)
        root = reader.receipt(self.label, self.size).mmr_root
        for seq in random.Random(0).sample(range(1, self.size + 1), PROOFS):
            receipt = reader.receipt(self.label, seq)
            leaf = receipt.leaf_hash
            proof = reader.proof(self.label, seq)
            proof.verify(leaf_hash=leaf, stream_seq=seq, root=receipt.mmr_root)
            inclusion = reader.inclusion(self.label, seq, self.size)
            inclusion.verify(leaf_hash=leaf, stream_seq=seq, size=self.size, root=root)


Prove = Callable[[Grown, LogReader, int], object]


def measure() -> Iterator[Measurement]:
    with ExitStack() as stack:
        small, large = (
            _grow(stack.enter_context(inside.directory()), size)
            for size in (SMALL, _grown(ENTRIES))
        )
        for grown in (small, large):
            grown.verify()
        yield _proving("proof", small, large, Grown.proof)
        yield _proving("inclusion", small, large, Grown.inclusion)
        yield _restarting(small, large)


def _proving(name: str, small: Grown, large: Grown, prove: Prove) -> Measurement:
    # The small side comes first: how often the large fits into it is the ratio of the rates.
    result = compare_timed(lambda: small.round(prove), lambda: large.round(prove), ROUNDS)
    return Measurement(
        bench=f"hub_{name}_at_{large.size}",
        value=1 / result.other_seconds,
        unit="proofs/s",
        against=f"the same at {small.size} entries; proofs verified outside the timed window",
        ratio=result.ratio,
        at_least=0.5,
    )


def _restarting(small: Grown, large: Grown) -> Measurement:
    locks = [DataDirLock(item.datadir) for item in (small, large)]
    result = compare_timed(large.restart, small.restart, RESTARTS)
    for lock in locks:
        lock.release()
    open_entries = small.size % sample.LIMITS.max_checkpoint_interval
    return Measurement(
        bench=f"hub_restart_at_{large.size}",
        value=result.seconds * MILLISECONDS,
        unit="ms",
        against=f"the same at {small.size} entries; {open_entries} in either open chunk",
        ratio=result.ratio,
        at_most=1.5,
    )


def _grow(datadir: DataDir, size: int) -> Grown:
    with inside.committing(datadir) as committer:
        (writer,) = inside.writers(committer, 1)
        for start in range(0, size, GROUP):
            group = [VerifiedMsg.of(writer.unsigned()) for _ in range(min(GROUP, size - start))]
            outcomes = committer.commit(group, inside.CLOCK)
            if not all(isinstance(outcome, bytes) for outcome in outcomes):
                raise AssertionError(f"a message was refused: {outcomes[0]}")
    seqs = random.Random(size).sample(range(1, size + 1), min(size, 2 * ROUNDS * PROOFS))
    return Grown(datadir, feed.label_of(committer.log.keys.hub_id), size, iter(seqs))
