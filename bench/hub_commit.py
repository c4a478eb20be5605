"""Admission and commit of messages in one thread, which is one core, stage by stage.

Nothing is faked: messages are signed, capabilities are required, every group of 256 is on disk
before its receipts count. The receipts are verified after the last timed window.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Iterator
from itertools import chain
from typing import TypeVar

import bare
import feed
import inside
import sample
from measure import Measurement, compare_timed

from hub.admission import prefilter, signed, structural
from hub.sequencer import ipc
from hub.sequencer.committer import Committer
from veen.msg import Msg

T = TypeVar("T")
GROUP = 256
GROUPS = 4  # in a round
ROUNDS = 15
WRITERS = 8
PROFILES = {sample.PLACE.profile.profile_id(): sample.PLACE.profile}
MICROSECONDS = 1e6
STAGES = ("prefilter", "structural", "signature", "sequencer")
CEILING = "one bare Ed25519 verify and sign; receipts verified outside the timed window"


class Bench:
    """A committer, groups of messages for it, and the CPU time of each stage for a message."""

    def __init__(self, committer: Committer) -> None:
        self.committer = committer
        self.spent: dict[str, list[float]] = {name: [] for name in (*STAGES, "wire", "bare")}
        self.receipts: list[tuple[Msg, bytes]] = []
        writers = inside.writers(committer, WRITERS)
        self._groups = iter([_group(writers) for _ in range(ROUNDS * GROUPS)])

    def cpu(self, *names: str) -> float:
        return sum(statistics.median(self.spent[name]) for name in names)

    def ceiling(self) -> float:
        """Seconds of the primitives that a message cannot do without."""
        return statistics.fmean(
            self._clock("bare", lambda: bare.both(GROUP)) for _ in range(GROUPS)
        )

    def round(self) -> float:
        """Seconds, waiting for the disk among them, a message takes through every stage."""
        return statistics.fmean(self._take(next(self._groups)) for _ in range(GROUPS))

    def _take(self, group: list[Msg]) -> float:
        raws, limits = [msg.encode() for msg in group], sample.LIMITS
        passed, first = self._keep("prefilter", lambda: [prefilter(raw, limits) for raw in raws])
        sound, second = self._keep(
            "structural", lambda: [structural(raw, PROFILES, limits) for raw in passed]
        )
        checked, third = self._keep("signature", lambda: [signed(msg) for msg in sound])
        outcomes, last = self._keep(
            "sequencer", lambda: self.committer.commit(checked, inside.CLOCK)
        )
        self._keep("wire", lambda: _over_the_wire(checked, outcomes))
        self.receipts += zip(group, outcomes, strict=True)
        return first + second + third + last

    def _clock(self, stage: str, work: Callable[[], object]) -> float:
        return self._keep(stage, work)[1]

    def _keep(self, stage: str, work: Callable[[], T]) -> tuple[T, float]:
        """What a stage makes of a group, and the seconds of one message."""
        wall, cpu = time.perf_counter(), time.process_time()
        outcomes = work()
        self.spent[stage].append((time.process_time() - cpu) / GROUP)
        return outcomes, (time.perf_counter() - wall) / GROUP


def measure() -> Iterator[Measurement]:
    with inside.directory() as datadir, inside.committing(datadir) as committer:
        bench = Bench(committer)
        # The bare side comes first: how often a message fits into it is the ratio of the rates.
        result = compare_timed(bench.ceiling, bench.round, ROUNDS)
        feed.verify(bench.receipts, committer.log.keys.current.public)
        yield Measurement(
            bench="hub_commit_per_core",
            value=1 / result.other_seconds,
            unit="messages/s",
            against=f"1 / {CEILING}",
            ratio=result.ratio,
            at_least=0.70,
        )
        yield from _breakdown(bench)


def _breakdown(bench: Bench) -> Iterator[Measurement]:
    """CPU time, which neither the disk nor other work on the machine disturbs much."""
    ceiling, whole = bench.cpu("bare"), bench.cpu(*STAGES)
    yield Measurement(
        bench="hub_commit_per_cpu_second",
        value=1 / whole,
        unit="messages/s",
        against=f"the same in CPU time: 1 / {CEILING}",
        ratio=ceiling / whole,
    )
    for name in (*STAGES, "wire"):
        yield _line(name, bench.cpu(name), ceiling)
    yield _line("seal", _seal(bench), ceiling)


def _seal(bench: Bench) -> float:
    """What sealing its chunk adds to each message of it."""
    log = bench.committer.log
    label_log = log.label(bench.receipts[0][0].label)
    assert label_log is not None
    entries, begun = label_log.tally.entries, time.process_time()
    log.seal(label_log, inside.CLOCK)
    return (time.process_time() - begun) / entries


def _line(name: str, seconds: float, ceiling: float) -> Measurement:
    return Measurement(
        bench=f"hub_commit_{name}",
        value=seconds * MICROSECONDS,
        unit="us of CPU a message",
        against=f"CPU time of {CEILING}",
        ratio=seconds / ceiling,
    )


def _group(writers: list[feed.Writer]) -> list[Msg]:
    """Messages of every client in turns, as requests that arrive together give them."""
    return list(chain(*zip(*(writer.write(GROUP // WRITERS) for writer in writers), strict=True)))


def _over_the_wire(checked: list, outcomes: list) -> None:
    """What worker and sequencer add to these stages when they are two processes."""
    ipc.unpack_submit(ipc.pack_submit(checked))
    ipc.unpack_outcomes(ipc.pack_outcomes(outcomes))
