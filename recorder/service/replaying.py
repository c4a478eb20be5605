"""A recorded query run again over an index: the same digest, or what explains why not.

Every place that was searched is read from the signed messages and receipts that the index keeps,
and must lead to the signed roots of the checkpoint. Which messages are no events is the index's
word (Query API 9.1).
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from recorder.index.home import IndexHome
from recorder.index.snapshot import NotReached, Snapshot, snapshot
from recorder.index.tables import StreamRow, seq_of
from recorder.query.descriptor import Descriptor
from recorder.query.digest import ResultDigest, Searched
from recorder.query.entry import Entry
from recorder.query.evidence import Placed, receipted
from recorder.query.replay import Horizon, ResultDiffers, to_read, verify_complete
from recorder.query.span import Span
from recorder.service.replay_beyond import Beyond
from recorder.service.replay_recorded import Asked
from veen.hub_identity import HubIdentity
from veen.import_event import is_import
from veen.range_proof import RangeProof
from veen.receipt import Receipt
from veen.recorder_checkpoint import EMPTY_ROOT, RecorderCheckpoint, StreamEnd
from veen.stream import stream_id

_PLACES = """
SELECT e.place, e.fault, p.msg, p.receipt, p.body_key FROM events e JOIN pairs p USING (place)
WHERE e.place BETWEEN ? AND ? ORDER BY e.place"""
_HALF = "SELECT place FROM origins WHERE stream_no = ? AND complete_at > ? AND place <= ?"
_RECEIPTS = "SELECT receipt FROM pairs WHERE place BETWEEN ? AND ? ORDER BY place"

LookBeyond = Callable[[], Beyond | None]
"""Reads what stands in import streams beyond the index; None where that cannot be read."""


def not_looked() -> None:
    return None


@dataclass(frozen=True, slots=True)
class Missing:
    """Places of a stream that are not here, up to where the query speaks."""

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
    beyond: LookBeyond = not_looked,
) -> ReplayVerdict:
    """Judge a digest by the index; ``checkpoint`` has been verified to be of ``hub``.

    ``beyond`` is asked only where the index does not reach far enough.
    """
    with snapshot(home) as held:
        horizon = Horizon.of(checkpoint, descriptor)
        return _judged(held, Asked(hub, descriptor, digest), horizon, beyond)


def replay_recorded(
    home: IndexHome, asked: Asked, beyond: LookBeyond = not_looked
) -> ReplayVerdict:
    """Judge a digest that was imported, without the checkpoint that it names: where each stream
    ended then is told by the receipt that the hub has signed for that root.
    """
    with snapshot(home) as held:
        ends = {one.stream: _end(held, asked.hub, one) for one in asked.digest.searched}
        unknown = [one for one in asked.digest.searched if ends[one.stream] is None]
        if unknown:
            looked = beyond()
            behind = {one.stream: _least(held, asked.hub, one, looked) for one in unknown}
            return _unreached(asked, held, behind, looked)
        horizon = Horizon(
            spoken=asked.digest.checkpoint,
            hub_id=asked.hub.hub_id.hex(),
            profile_id=asked.digest.profile_id,
            ends={name: end for name, end in ends.items() if end is not None},
        )
        return _judged(held, asked, horizon, beyond)


def _judged(held: Snapshot, asked: Asked, horizon: Horizon, beyond: LookBeyond) -> ReplayVerdict:
    descriptor, digest, hub = asked.descriptor, asked.digest, asked.hub
    try:
        spans = to_read(descriptor, digest, horizon)
        # The proof of a span takes every leaf up to the end of its stream.
        ends = {name: horizon.ends[name].last_seq for name in spans}
        if any(_reached(held, hub, name) < last for name, last in ends.items()):
            return _unreached(asked, held, ends, beyond())
        rows = {name: _row(held, hub.hub_id, name) for name in spans}
        streams = [_entries(held, rows[name], spans[name], hub) for name in spans]
        entries = heapq.merge(*streams, key=lambda one: one.order_key)
        proofs = {
            name: RangeProof.build(held.nodes(rows[name]), span.first, span.last, ends[name])
            for name, span in spans.items()
        }
        imports = [name for name in spans if is_import(name)]
        half = frozenset(one for name in imports for one in _half(held, rows[name], ends[name]))
        outcome = verify_complete(descriptor, digest, horizon, entries, proofs, half)
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


def _unreached(
    asked: Asked, held: Snapshot, ends: Mapping[str, int], beyond: Beyond | None
) -> ReplayVerdict:
    """Why the index does not reach the ends: what is missing, or NotReached where all is here."""
    hub, missing = asked.hub, []
    for name, last in ends.items():
        here = (beyond or {}).get((hub.hub_id, name), {})
        holes = _holes(_reached(held, hub, name) + 1, last, here)
        missing += [Missing(name, *hole) for hole in holes]
    ranges = ", ".join(f"{one.stream} {one.from_seq} to {one.to_seq}" for one in missing)
    if not missing:
        raise NotReached(
            f"all of {', '.join(ends)} is here and not yet in the index; wait for it, or run veen "
            "recorder index imports again"
        )
    if beyond is None:
        told = f"not in the index: {ranges}; what stands here behind a gap was not looked at"
    else:
        told = f"not here: {ranges}; bring these events here and replay again"
    return _verdict(asked.digest, field="searched", missing=tuple(missing), told=told)


def _holes(first: int, last: int, here: Iterable[int]) -> Iterator[tuple[int, int]]:
    for seq in sorted(one for one in here if first <= one <= last):
        if first < seq:
            yield first, seq - 1
        first = seq + 1
    if first <= last:
        yield first, last


def _reached(held: Snapshot, hub: HubIdentity, name: str) -> int:
    rows = [one for one in held.streams() if (one.hub_id, one.name) == (hub.hub_id, name)]
    return rows[0].position if rows else 0


def _end(held: Snapshot, hub: HubIdentity, one: Searched) -> StreamEnd | None:
    """Where a stream had the root of the digest, by a receipt in the index; None if not here."""
    root = bytes.fromhex(one.mmr_root)
    if root == EMPTY_ROOT:
        return StreamEnd(stream_id=stream_id(one.stream), last_seq=0, mmr_root=root)
    reached = _reached(held, hub, one.stream)
    if not reached:
        return None
    row = _row(held, hub.hub_id, one.stream)
    given = row.place(max(1, one.to_seq)), row.place(reached)
    for (raw,) in held.db.execute(_RECEIPTS, given):
        receipt = Receipt.decode(raw)
        if receipt.mmr_root == root:
            hub.verify_receipt(receipt)
            return StreamEnd(
                stream_id=stream_id(one.stream), last_seq=receipt.stream_seq, mmr_root=root
            )
    return None


def _least(held: Snapshot, hub: HubIdentity, one: Searched, beyond: Beyond | None) -> int:
    """Up to where a stream is wanted at least, of which nothing indexed tells where it ended."""
    here = (beyond or {}).get((hub.hub_id, one.stream), {})
    ends = [seq for seq, receipt in here.items() if receipt.mmr_root.hex() == one.mmr_root]
    return max(*ends, one.to_seq, _reached(held, hub, one.stream) + 1)


def _row(held: Snapshot, hub_id: bytes, name: str) -> StreamRow:
    return next(one for one in held.streams() if (one.hub_id, one.name) == (hub_id, name))


def _entries(held: Snapshot, row: StreamRow, span: Span, hub: HubIdentity) -> Iterator[Entry]:
    given = row.place(span.first), row.place(span.last)
    for _, fault, msg, receipt, body_key in held.db.execute(_PLACES, given):
        if fault is None:
            yield receipted(msg, receipt, body_key, Placed(row.name, hub))
        else:
            yield _no_event(row.name, receipt, hub)


def _half(held: Snapshot, row: StreamRow, last: int) -> Iterator[tuple[str, int]]:
    """Places of an import stream whose bundle was whole only after ``last``."""
    for (place,) in held.db.execute(_HALF, (row.stream_no, last, row.place(last))):
        yield row.name, seq_of(place)


def _no_event(stream: str, raw: bytes, hub: HubIdentity) -> Entry:
    receipt = Receipt.decode(raw)
    hub.verify_receipt(receipt)
    return Entry(stream, receipt.stream_seq, receipt.hub_ts, receipt.leaf_hash, None)
