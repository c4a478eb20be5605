"""A query run over entries in memory: the meaning that every engine must give (Query API 6, 8).

Spans: the part of a stream in which a query looks, and what is said of it afterwards.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import NamedTuple

from recorder.query import evidence as evidences
from recorder.query.descriptor import Descriptor
from recorder.query.digest import ResultDigest, Searched, rows_hash
from recorder.query.filter import Filter
from recorder.query.select import (
    QueryEntry,
    Row,
    RowOrder,
    aggregate_rows,
    gather_cells,
    matches,
    row,
)
from veen.errors import Malformed, Untrusted
from veen.recorder_checkpoint import RecorderCheckpoint, StreamEnd


@dataclass(frozen=True, slots=True)
class Sampled:
    """A matching event to be verified; ``index`` is its number among them, from 0 on."""

    index: int
    entry: QueryEntry


@dataclass(frozen=True, slots=True)
class QueryOutcome:
    """``unread`` counts, by stream, the entries that were no events."""

    rows: tuple[Row, ...]
    event_count: int
    sampled: tuple[Sampled, ...]
    unread: Mapping[str, int]


def run(descriptor: Descriptor, entries: Iterable[QueryEntry], log_root: bytes) -> QueryOutcome:
    """The rows of a query over ``entries``, which are all that was searched, by order key."""
    matching, unread = [], Counter[str]()
    before: RowOrder | None = None
    for entry in entries:
        key = entry.order_key
        if before is not None and before >= key:
            raise Malformed(f"{entry.stream} {entry.seq} comes too late in the order of rows")
        before = key
        unread[entry.stream] += entry.event is None
        if matches(descriptor, entry):
            matching.append(entry)
    return QueryOutcome(
        rows_of(descriptor, matching),
        len(matching),
        tuple(sample(descriptor, matching, log_root)),
        dict(unread),
    )


def rows_of(descriptor: Descriptor, matching: Iterable[QueryEntry]) -> tuple[Row, ...]:
    """The rows made of events that match, in their order."""
    if descriptor.aggregate is None:
        return tuple(row(descriptor, entry) for entry in matching)
    groups = gather_cells(descriptor.aggregate, matching)
    return tuple(aggregate_rows(descriptor.aggregate, groups))


def sample(
    descriptor: Descriptor, matching: Iterable[QueryEntry], log_root: bytes
) -> Iterable[Sampled]:
    for index, entry in enumerate(matching):
        if evidences.is_sampled(descriptor.evidence, descriptor.query_id, log_root, index):
            yield Sampled(index, entry)


def digest_of(
    descriptor: Descriptor,
    outcome: QueryOutcome,
    *,
    result_id: str,
    executed_at_ms: int,
    checkpoint: RecorderCheckpoint,
    searched: Iterable[Searched],
) -> ResultDigest:
    """The digest of an outcome whose sampled events have all been verified."""
    lines = (evidences.verified(sampled.entry, checkpoint) for sampled in outcome.sampled)
    return ResultDigest.of(
        descriptor,
        result_id=result_id,
        rows=rows_hash(outcome.rows),
        event_count=outcome.event_count,
        evidence_hash=evidences.evidence_hash(descriptor, result_id, lines),
        executed_at_ms=executed_at_ms,
        checkpoint=checkpoint,
        searched=searched,
    )


class StreamSpan(NamedTuple):
    """Places ``first`` to ``last``, both included; ``last`` is one less when there are none."""

    first: int
    last: int


def span_of(filter_: Filter, last_seq: int, hub_ts_at: Callable[[int], int]) -> StreamSpan:
    """The places up to ``last_seq`` whose time passes, in O(log n) looks.

    A hub's time never goes back, so those before are too early and those behind too late.
    """
    places = range(1, last_seq + 1)
    first, last = 1, last_seq
    if filter_.from_ms is not None:
        first = bisect_left(places, filter_.first_second, key=hub_ts_at) + 1
    if filter_.last_second is not None:
        last = bisect_right(places, filter_.last_second, key=hub_ts_at)
    return StreamSpan(first, last)


def end_of(stream: str, checkpoint: RecorderCheckpoint) -> StreamEnd:
    result = checkpoint.end(stream)
    if result is None:
        raise Untrusted(f"the checkpoint does not speak of {stream}; take one that does")
    return result


def searched(
    descriptor: Descriptor,
    checkpoint: RecorderCheckpoint,
    spans: Mapping[str, StreamSpan],
    unread: Mapping[str, int],
) -> tuple[Searched, ...]:
    """What the digest says of each stream of the scope, in its order."""
    return tuple(
        Searched(
            stream=stream,
            from_seq=spans[stream].first,
            to_seq=spans[stream].last,
            mmr_root=end_of(stream, checkpoint).mmr_root.hex(),
            unread=unread.get(stream, 0),
        )
        for stream in descriptor.scope
    )
