"""The tasks of one label: its chunks in order, each with what stands beside it."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Collection, Iterator
from contextlib import suppress
from dataclasses import dataclass

from veen import checkpoint_index
from veen.audit.findings import ANY, Kind, Task
from veen.audit.stock import LabelStock, missing
from veen.errors import Malformed
from veen.layout import ChunkName, OpenChunkName


@dataclass(frozen=True, slots=True, kw_only=True)
class LabelPlan:
    label: bytes
    tasks: tuple[Task, ...]
    claimed: frozenset[int]
    """Every stream_seq at which there is a checkpoint, or is said to be."""
    promised: int
    summaries: frozenset[ChunkName]

    def missing(self, first: int, last: int) -> list[str]:
        """The chunks that ought to hold these entries, by the summaries they left."""
        return missing(self.label, self.summaries, first, last)


def plan(
    files: LabelStock,
    index: bytes | None,
    bound: Collection[tuple[bytes, int]],
    acknowledged: int,
) -> LabelPlan:
    """``acknowledged`` is the last stream_seq for which a receipt is known to have gone out.

    Checkpoints that both the index and the binding manifest name must be there too.
    """
    claimed = set(files.checkpoints)
    with suppress(Malformed):
        listed = checkpoint_index.decode(index or b"")
        claimed |= {upto for upto in listed if (files.label, upto) in bound}
    promised = max(acknowledged, *claimed, 0)
    return LabelPlan(
        label=files.label,
        tasks=tuple(_tasks(files, frozenset(claimed), promised)),
        claimed=frozenset(claimed),
        promised=promised,
        summaries=frozenset(files.summaries),
    )


def _tasks(files: LabelStock, claimed: frozenset[int], promised: int) -> Iterator[Task]:
    """Whatever has a stream_seq stands beside one chunk: that which holds it, or the last before.

    So a chunk whose name is wrong still finds what it left, and nothing is left over.
    """
    segments = files.segments() or [OpenChunkName(files.label, 1)]
    ends = {one.end_seq for one in files.chunks | files.tombstones}
    due, known, peaks = sorted(claimed | ends), sorted(claimed), sorted(files.peaks)
    summaries = sorted(files.summaries)
    taken = 0
    for place, segment in enumerate(segments):
        end = segment.end_seq if isinstance(segment, ChunkName) else 0
        following = segments[place + 1].start_seq - 1 if place + 1 < len(segments) else ANY
        upto = max(end, following, taken)
        begin = min(taken + 1, segment.start_seq)
        yield Task(
            kind=_kind(segment, files),
            segment=segment,
            due=frozenset(_between(due, taken, upto)),
            claimed=frozenset(_between(known, taken, upto)),
            snapshots=frozenset(_between(peaks, taken, upto)),
            summaries=frozenset(_starting(summaries, begin, upto)),
            promised=promised,
        )
        taken = upto


def _between(found: list[int], after: int, upto: int) -> list[int]:
    return found[bisect_right(found, after) : bisect_right(found, upto)]


def _starting(found: list[ChunkName], first: int, last: int) -> list[ChunkName]:
    begin = bisect_left(found, first, key=_start_seq)
    return found[begin : bisect_right(found, last, key=_start_seq)]


def _start_seq(name: ChunkName) -> int:
    return name.start_seq


def _kind(segment: ChunkName | OpenChunkName, files: LabelStock) -> Kind:
    if segment in files.chunks:
        return Kind.SEALED
    if segment in files.opened:
        return Kind.OPEN
    return Kind.PRUNED if segment in files.tombstones else Kind.ABSENT
