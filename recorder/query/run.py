"""A query run over entries in memory: the meaning that every engine must give (Query API 6, 8)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from recorder.query import aggregate as aggregates
from recorder.query import evidence as evidences
from recorder.query.descriptor import Descriptor
from recorder.query.digest import ResultDigest, Searched, rows_hash
from recorder.query.entry import Entry, OrderKey
from recorder.query.select import Row, matches, row
from veen.errors import Malformed
from veen.recorder_checkpoint import RecorderCheckpoint


@dataclass(frozen=True, slots=True)
class Sampled:
    """A matching event to be verified; ``index`` is its number among them, from 0 on."""

    index: int
    entry: Entry


@dataclass(frozen=True, slots=True)
class Outcome:
    """``unread`` counts, by stream, the entries that were no events."""

    rows: tuple[Row, ...]
    event_count: int
    sampled: tuple[Sampled, ...]
    unread: Mapping[str, int]


def run(descriptor: Descriptor, entries: Iterable[Entry], log_root: bytes) -> Outcome:
    """The rows of a query over ``entries``, which are all that was searched, by order key."""
    matching, unread = [], Counter[str]()
    before: OrderKey | None = None
    for entry in entries:
        key = entry.order_key
        if before is not None and before >= key:
            raise Malformed(f"{entry.stream} {entry.seq} comes too late in the order of rows")
        before = key
        unread[entry.stream] += entry.event is None
        if matches(descriptor, entry):
            matching.append(entry)
    return Outcome(
        rows_of(descriptor, matching),
        len(matching),
        tuple(sample(descriptor, matching, log_root)),
        dict(unread),
    )


def rows_of(descriptor: Descriptor, matching: Iterable[Entry]) -> tuple[Row, ...]:
    """The rows made of events that match, in their order."""
    if descriptor.aggregate is None:
        return tuple(row(descriptor, entry) for entry in matching)
    groups = aggregates.gather(descriptor.aggregate, matching)
    return tuple(aggregates.rows(descriptor.aggregate, groups))


def sample(descriptor: Descriptor, matching: Iterable[Entry], log_root: bytes) -> Iterable[Sampled]:
    for index, entry in enumerate(matching):
        if evidences.is_sampled(descriptor.evidence, descriptor.query_id, log_root, index):
            yield Sampled(index, entry)


def digest_of(
    descriptor: Descriptor,
    outcome: Outcome,
    *,
    result_id: str,
    executed_at_ms: int,
    checkpoint: RecorderCheckpoint,
    searched: Iterable[Searched],
) -> ResultDigest:
    """The digest of an outcome whose sampled events have all been verified."""
    lines = (evidences.verified(one.entry, checkpoint) for one in outcome.sampled)
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
