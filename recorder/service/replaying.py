"""A recorded query run again over an index: the same digest, or what explains why not.

Every place that was searched is read from the signed messages and receipts that the index keeps,
and must lead to the signed roots of the checkpoint. Which messages are no events is the index's
word (Query API 9.1).
"""

from __future__ import annotations

import heapq
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from recorder.index.home import IndexHome
from recorder.index.snapshot import Snapshot, snapshot
from recorder.index.tables import StreamRow
from recorder.query.descriptor import Descriptor
from recorder.query.digest import ResultDigest
from recorder.query.entry import Entry
from recorder.query.evidence import Placed, receipted
from recorder.query.replay import ResultDiffers, to_read, verify_complete
from recorder.query.span import Span, end_of
from veen.errors import Untrusted
from veen.hub_identity import HubIdentity
from veen.range_proof import RangeProof
from veen.receipt import Receipt
from veen.recorder_checkpoint import RecorderCheckpoint

_PLACES = """
SELECT e.place, e.fault, p.msg, p.receipt, p.body_key FROM events e JOIN pairs p USING (place)
WHERE e.place BETWEEN ? AND ? ORDER BY e.place"""


@dataclass(frozen=True, slots=True)
class Missing:
    """Places of a stream that are not here, and that the query had searched."""

    stream: str
    from_seq: int
    to_seq: int

    def document(self) -> dict[str, Any]:
        return {"stream": self.stream, "from_seq": self.from_seq, "to_seq": self.to_seq}


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplayVerdict:
    """``field`` is the first of the digest that differs; ``missing`` explains what is not here."""

    query_id: str
    result_id: str
    hub_id: str
    checkpoint_id: str
    rows_hash: str
    matches: bool
    field: str | None = None
    told: str
    missing: tuple[Missing, ...] = ()

    def document(self) -> dict[str, Any]:
        return {
            "query_id": self.query_id,
            "result_id": self.result_id,
            "hub_id": self.hub_id,
            "checkpoint_id": self.checkpoint_id,
            "rows_hash": self.rows_hash,
            "verdict": "matches" if self.matches else "differs",
            "field": self.field,
            "told": self.told,
            "missing": [one.document() for one in self.missing],
        }


def replay(
    home: IndexHome,
    descriptor: Descriptor,
    digest: ResultDigest,
    checkpoint: RecorderCheckpoint,
    hub: HubIdentity,
) -> ReplayVerdict:
    """Judge a digest by the index; ``checkpoint`` has been verified to be of ``hub``."""
    with snapshot(home) as held:
        try:
            spans = to_read(descriptor, digest, checkpoint)
            missing = tuple(_missing(held, hub.hub_id, spans))
            if missing:
                return _verdict(digest, field="searched", missing=missing, told=_lacking(missing))
            rows = {name: _row(held, hub.hub_id, name) for name in spans}
            streams = [_entries(held, rows[name], spans[name], hub) for name in spans]
            entries = heapq.merge(*streams, key=lambda one: one.order_key)
            proofs = _proofs(held, rows, spans, checkpoint)
            outcome = verify_complete(descriptor, digest, checkpoint, entries, proofs)
        except ResultDiffers as error:
            return _verdict(digest, field=error.field, told=str(error))
    told = f"{outcome.event_count} events, {len(outcome.rows)} rows, the same digest"
    return _verdict(digest, told=told)


def _verdict(
    digest: ResultDigest, *, told: str, field: str | None = None, missing: tuple[Missing, ...] = ()
) -> ReplayVerdict:
    return ReplayVerdict(
        query_id=digest.query_id,
        result_id=digest.result_id,
        hub_id=digest.hub_id,
        checkpoint_id=digest.checkpoint.checkpoint_id,
        rows_hash=digest.rows_hash,
        matches=field is None,
        field=field,
        told=told,
        missing=missing,
    )


def _missing(held: Snapshot, hub_id: bytes, spans: Mapping[str, Span]) -> Iterator[Missing]:
    for name, span in spans.items():
        row = next(
            (one for one in held.streams() if (one.hub_id, one.name) == (hub_id, name)), None
        )
        reached = row.position if row else 0
        if reached < span.last:
            yield Missing(name, max(reached + 1, span.first), span.last)


def _lacking(missing: tuple[Missing, ...]) -> str:
    ranges = ", ".join(f"{one.stream} {one.from_seq} to {one.to_seq}" for one in missing)
    return f"not here: {ranges}; bring these events here and replay again"


def _row(held: Snapshot, hub_id: bytes, name: str) -> StreamRow:
    return next(one for one in held.streams() if (one.hub_id, one.name) == (hub_id, name))


def _entries(held: Snapshot, row: StreamRow, span: Span, hub: HubIdentity) -> Iterator[Entry]:
    given = row.place(span.first), row.place(span.last)
    for _, fault, msg, receipt, body_key in held.db.execute(_PLACES, given):
        if fault is None:
            yield receipted(msg, receipt, body_key, Placed(row.name, hub))
        else:
            yield _no_event(row.name, receipt, hub)


def _no_event(stream: str, raw: bytes, hub: HubIdentity) -> Entry:
    receipt = Receipt.decode(raw)
    hub.verify_receipt(receipt)
    return Entry(stream, receipt.stream_seq, receipt.hub_ts, receipt.leaf_hash, None)


def _proofs(
    held: Snapshot,
    rows: Mapping[str, StreamRow],
    spans: Mapping[str, Span],
    checkpoint: RecorderCheckpoint,
) -> dict[str, RangeProof]:
    found = {}
    for name, span in spans.items():
        size = end_of(name, checkpoint).last_seq
        if rows[name].position < size:
            raise Untrusted(
                f"{name} is indexed up to {rows[name].position}, the checkpoint ends at {size}: "
                "wait for the index, or bring the rest of the stream here"
            )
        found[name] = RangeProof.build(held.nodes(rows[name]), span.first, span.last, size)
    return found
