"""The reference execution of a query, over entries in memory (Query API 6, 8).

Every engine must give the same result. A span is the part of a stream that a query searches.
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
    """A matching event to be verified.

    ``index`` is its number among the matching events, from 0.
    """

    index: int
    entry: QueryEntry


@dataclass(frozen=True, slots=True)
class QueryOutcome:
    """The result of a query; ``unread`` counts, by stream, the entries that are not events."""

    rows: tuple[Row, ...]
    event_count: int
    sampled: tuple[Sampled, ...]
    unread: Mapping[str, int]


def run(descriptor: Descriptor, entries: Iterable[QueryEntry], log_root: bytes) -> QueryOutcome:
    """Run a query over ``entries``, which are everything that was searched, sorted by order key."""
    matching, unread = [], Counter[str]()
    last_key: RowOrder | None = None
    for entry in entries:
        key = entry.order_key
        if last_key is not None and last_key >= key:
            raise Malformed(f"{entry.stream} {entry.seq} is out of the order of rows")
        last_key = key
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
    """The rows of matching events, in order."""
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
    """Positions ``first`` to ``last``, both included; ``last`` is one less when there are none."""

    first: int
    last: int


def span_of(filter_: Filter, last_seq: int, hub_ts_at: Callable[[int], int]) -> StreamSpan:
    """The positions up to ``last_seq`` within the time filter, found by binary search.

    The hub's time never goes back, so earlier positions are too early and later ones too late.
    """
    places = range(1, last_seq + 1)
    first, last = 1, last_seq
    if filter_.from_ms is not None:
        first = bisect_left(places, filter_.first_second, key=hub_ts_at) + 1
    if filter_.last_second is not None:
        last = bisect_right(places, filter_.last_second, key=hub_ts_at)
    return StreamSpan(first, last)


def end_of(stream: str, checkpoint: RecorderCheckpoint) -> StreamEnd:
    end = checkpoint.end(stream)
    if end is None:
        raise Untrusted(f"the checkpoint does not cover {stream}; use one that does")
    return end


def searched(
    descriptor: Descriptor,
    checkpoint: RecorderCheckpoint,
    spans: Mapping[str, StreamSpan],
    unread: Mapping[str, int],
) -> tuple[Searched, ...]:
    """The searched ranges of the digest, in the order of the scope."""
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
