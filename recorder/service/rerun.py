"""Rerun of a recorded query over an index: the same digest, or the reason for the difference.

Every position that was searched is read from the signed messages and receipts in the index, and
must lead to the signed roots of the checkpoint. Which messages are not events is taken from the
index (Query API 9.1).

A query of the other zone is taken from its imported streams record/query/requests and
record/query/results (Query API 9.1, 9.2). The index holds those streams up to the first event that
is missing; what a rerun lacks is determined by reading the import streams beyond that event.
"""

from __future__ import annotations

import heapq
import logging
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

from recorder.index import imports, tables
from recorder.index.reader import NotReached, Snapshot, snapshot
from recorder.index.tables import IndexedStream, IndexHome, seq_of
from recorder.query.descriptor import Descriptor, read_descriptor
from recorder.query.digest import ResultDigest, Searched
from recorder.query.evidence import VerifiedStream, receipted
from recorder.query.execute import StreamSpan
from recorder.query.package import REQUESTS, RESULT, RESULTS, SUBMITTED
from recorder.query.rerun import Horizon, ResultDiffers, to_read, verify_complete
from recorder.query.select import QueryEntry
from recorder.service.errors import BadDescriptor
from veen.client.client import Client
from veen.client.log_head import Pair, is_missing
from veen.client.transport import HubRefused
from veen.errors import Malformed, Unopenable, Untrusted, VeenError
from veen.events import (
    ImportedEvent,
    ImportFault,
    NotImported,
    Visibility,
    is_import,
    read_imported,
)
from veen.foreign import Foreign
from veen.hub_identity import HubIdentity
from veen.label import stream_id
from veen.proofs import RangeProof
from veen.receipt import Receipt
from veen.recorder_checkpoint import EMPTY_ROOT, RecorderCheckpoint, StreamEnd

_log = logging.getLogger(__name__)


_EVENTS_NAMING = """
SELECT p.msg, p.receipt, p.body_key FROM events e JOIN pairs p USING (place)
WHERE e.stream_no = ? AND e.event_type = ? AND instr(e.payload, ?) ORDER BY e.place"""
_PLACES = """
SELECT e.place, e.fault, p.msg, p.receipt, p.body_key FROM events e JOIN pairs p USING (place)
WHERE e.place BETWEEN ? AND ? ORDER BY e.place"""
_INCOMPLETE = "SELECT place FROM origins WHERE stream_no = ? AND complete_at > ? AND place <= ?"
_RECEIPTS = "SELECT receipt FROM pairs WHERE place BETWEEN ? AND ? ORDER BY place"

Beyond = Mapping[tuple[bytes, str], Mapping[int, Receipt]]
"""By hub and stream: the verified receipts of imported events, by their position."""


def read_beyond(reader: Client, home: IndexHome) -> Beyond:
    """Read what the import streams of an index have beyond the indexed position.

    Only complete bundles count. Raises Untrusted where the reader cannot open a message.
    """
    configured = imports.read_import(home)
    hubs = {hub.hub_id: hub for hub in configured.hubs}
    with snapshot(home) as held:
        meta = tables.meta(held.db)
    receipts: dict[tuple[bytes, str], dict[int, Receipt]] = defaultdict(dict)
    for target in configured.streams:
        for event in _imported_after(reader, target, int(meta.get(f"imported {target}", 0)), hubs):
            receipt = event.receipt()
            receipts[event.source_hub_id, event.origin_stream][receipt.stream_seq] = receipt
    return receipts


def _imported_after(
    reader: Client, target: str, after: int, hubs: Mapping[bytes, HubIdentity]
) -> Iterator[ImportedEvent]:
    seen: Visibility[ImportedEvent] = Visibility()
    foreign = Foreign(partial(_unopened, target))
    try:
        for pair in reader.read(target, from_seq=after + 1):
            event = _event(reader, pair, foreign)
            if event is not None:
                _verify(event, target, hubs)
                yield from seen.add(event, event)
        foreign.finish()
    except HubRefused as error:
        # Nothing was imported to this stream yet.
        if not is_missing(error):
            raise


def _event(reader: Client, pair: Pair, foreign: Foreign) -> ImportedEvent | None:
    """The event of a message; None for other messages, and those sealed by others."""
    client_id = pair.msg.client_id
    try:
        opened = reader.open_payload(pair.msg)
        event = read_imported(opened.header.schema, opened.body, client_id)
    except Unopenable as error:
        foreign.unread(pair.receipt.stream_seq, client_id, error)
        return None
    except NotImported:
        return None
    foreign.read(client_id)
    return event


def _unopened(target: str, seq: int, error: VeenError) -> VeenError:
    failure = Untrusted(f"{target}, stream_seq {seq}: {ImportFault.UNOPENED.value}")
    failure.__cause__ = error
    return failure


def _verify(event: ImportedEvent, target: str, hubs: Mapping[bytes, HubIdentity]) -> None:
    hub = hubs.get(event.source_hub_id)
    if hub is None:
        raise Untrusted(f"hub {event.source_hub_id.hex()} is not pinned for {target}")
    event.verify(hub)


class NotRecorded(VeenError):
    """No digest or descriptor of that name is here, or more than one."""


@dataclass(frozen=True, slots=True)
class RerunRequest:
    """A query by its query_id or result_id; of ``hub_id``, or of any hub."""

    field: str
    value: str
    hub_id: bytes | None

    def __str__(self) -> str:
        of = f" of hub {self.hub_id.hex()}" if self.hub_id else ""
        return f"{self.field} {self.value}{of}"


@dataclass(frozen=True, slots=True)
class RecordedQuery:
    """A descriptor and its digest, as ``hub`` has them in its log."""

    hub: HubIdentity
    descriptor: Descriptor
    digest: ResultDigest


def find_recorded(home: IndexHome, request: RerunRequest) -> RecordedQuery:
    """Return the only imported query of that name, or raise NotRecorded."""
    hubs = {hub.hub_id: hub for hub in imports.read_import(home).hubs}
    with snapshot(home) as held:
        digests = list(_digests(held, request, hubs))
        if len(digests) != 1:
            raise NotRecorded(_format_not_unique(request, digests))
        ((hub, digest),) = digests
        return RecordedQuery(hub, _descriptor(held, hub, digest), digest)


def _digests(
    held: Snapshot, request: RerunRequest, hubs: Mapping[bytes, HubIdentity]
) -> Iterator[tuple[HubIdentity, ResultDigest]]:
    for row in held.streams():
        hub = hubs.get(row.hub_id)
        if row.name != RESULTS or hub is None or request.hub_id not in (None, row.hub_id):
            continue
        for value in _values(held, row, hub, RESULT, request.value):
            try:
                digest = ResultDigest.read(value)
            except Malformed as error:
                # Any client that may write there can name any query in an event.
                _log.warning("%s: an event that names %s is no digest: %s", RESULTS, request, error)
                continue
            if getattr(digest, request.field) == request.value:
                yield hub, digest


def _descriptor(held: Snapshot, hub: HubIdentity, digest: ResultDigest) -> Descriptor:
    rows = [
        stream
        for stream in held.streams()
        if (stream.hub_id, stream.name) == (hub.hub_id, REQUESTS)
    ]
    for row in rows:
        for value in _values(held, row, hub, SUBMITTED, digest.query_id):
            try:
                descriptor = read_descriptor(value)
            except BadDescriptor as error:
                _log.warning("%s: an event that names %s: %s", REQUESTS, digest.query_id, error)
                continue
            if descriptor.digest() == digest.descriptor_hash:
                return descriptor
    raise NotRecorded(
        f"the descriptor of {digest.query_id} is missing; import {REQUESTS} of hub "
        f"{hub.hub_id.hex()}, then run veen recorder index imports"
    )


def _values(
    held: Snapshot, row: IndexedStream, hub: HubIdentity, event_type: str, name: str
) -> Iterator[Any]:
    """The payloads of events that contain ``name``, decrypted again from the signed messages."""
    for msg, receipt, body_key in held.db.execute(
        _EVENTS_NAMING, (row.stream_no, event_type, name.encode())
    ):
        event = receipted(msg, receipt, body_key, VerifiedStream(row.name, hub)).event
        if event is None or event.event_type != event_type:
            raise Untrusted(f"{row.name}: the index has another event than was signed")
        yield event.value()


def _format_not_unique(
    request: RerunRequest, digests: list[tuple[HubIdentity, ResultDigest]]
) -> str:
    if not digests:
        return (
            f"no digest of {request} was imported; bring {RESULTS} of the other zone here, and "
            "take "
            "it up with veen recorder index imports"
        )
    names = ", ".join(f"{digest.result_id} of hub {hub.hub_id.hex()}" for hub, digest in digests)
    return f"{request} has more than one result: {names}; give --result-id and --hub-id"


BeyondReader = Callable[[], Beyond | None]
"""Reads import streams beyond the indexed position; None where they cannot be read."""


def nothing_beyond() -> None:
    return None


@dataclass(frozen=True, slots=True)
class MissingPlaces:
    """Positions of a stream that are not here, within what the query covers."""

    stream: str
    from_seq: int
    to_seq: int

    def document(self) -> dict[str, Any]:
        return {"stream": self.stream, "from_seq": self.from_seq, "to_seq": self.to_seq}


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplayVerdict:
    """The result of a rerun; ``field`` is the first that differs, ``missing`` the absent events."""

    query_id: str
    result_id: str
    hub_id: str
    checkpoint_id: str
    rows_hash: str
    matches: bool
    field: str | None = None
    detail: str
    missing: tuple[MissingPlaces, ...] = ()

    def document(self) -> dict[str, Any]:
        return {
            "query_id": self.query_id,
            "result_id": self.result_id,
            "hub_id": self.hub_id,
            "checkpoint_id": self.checkpoint_id,
            "rows_hash": self.rows_hash,
            "verdict": "matches" if self.matches else "differs",
            "field": self.field,
            "detail": self.detail,
            "missing": [places.document() for places in self.missing],
        }


def replay(
    home: IndexHome,
    descriptor: Descriptor,
    digest: ResultDigest,
    checkpoint: RecorderCheckpoint,
    hub: HubIdentity,
    beyond: BeyondReader = nothing_beyond,
) -> ReplayVerdict:
    """Rerun a query over the index; ``checkpoint`` has been verified to be of ``hub``.

    ``beyond`` is called only where the index does not reach far enough.
    """
    with snapshot(home) as held:
        horizon = Horizon.of(checkpoint, descriptor)
        return _rerun(held, RecordedQuery(hub, descriptor, digest), horizon, beyond)


def replay_recorded(
    home: IndexHome, asked: RecordedQuery, beyond: BeyondReader = nothing_beyond
) -> ReplayVerdict:
    """Rerun an imported query without the checkpoint it names: the end of each stream follows from
    the receipt that the hub has signed for that root."""
    with snapshot(home) as held:
        ends = {
            searched.stream: _end(held, asked.hub, searched) for searched in asked.digest.searched
        }
        unknown = [searched for searched in asked.digest.searched if ends[searched.stream] is None]
        if unknown:
            looked = beyond()
            behind = {
                searched.stream: _least(held, asked.hub, searched, looked) for searched in unknown
            }
            return _unreached(asked, held, behind, looked)
        horizon = Horizon(
            spoken=asked.digest.checkpoint,
            hub_id=asked.hub.hub_id.hex(),
            profile_id=asked.digest.profile_id,
            ends={name: end for name, end in ends.items() if end is not None},
        )
        return _rerun(held, asked, horizon, beyond)


def _rerun(
    held: Snapshot, asked: RecordedQuery, horizon: Horizon, beyond: BeyondReader
) -> ReplayVerdict:
    descriptor, digest, hub = asked.descriptor, asked.digest, asked.hub
    try:
        spans = to_read(descriptor, digest, horizon)
        # The proof of a span needs every leaf up to the end of its stream.
        ends = {name: horizon.ends[name].last_seq for name in spans}
        if any(_reached(held, hub, name) < last for name, last in ends.items()):
            return _unreached(asked, held, ends, beyond())
        rows = {name: _row(held, hub.hub_id, name) for name in spans}
        streams = [_entries(held, rows[name], spans[name], hub) for name in spans]
        entries = heapq.merge(*streams, key=lambda entry: entry.order_key)
        proofs = {
            name: RangeProof.build(held.nodes(rows[name]), span.first, span.last, ends[name])
            for name, span in spans.items()
        }
        imports = [name for name in spans if is_import(name)]
        half = frozenset(
            position for name in imports for position in _incomplete(held, rows[name], ends[name])
        )
        outcome = verify_complete(descriptor, digest, horizon, entries, proofs, half)
    except ResultDiffers as error:
        return _verdict(digest, field=error.field, detail=str(error))
    detail = f"{outcome.event_count} events, {len(outcome.rows)} rows, the same digest"
    return _verdict(digest, detail=detail)


def _verdict(
    digest: ResultDigest,
    *,
    detail: str,
    field: str | None = None,
    missing: tuple[MissingPlaces, ...] = (),
) -> ReplayVerdict:
    return ReplayVerdict(
        query_id=digest.query_id,
        result_id=digest.result_id,
        hub_id=digest.hub_id,
        checkpoint_id=digest.checkpoint.checkpoint_id,
        rows_hash=digest.rows_hash,
        matches=field is None,
        field=field,
        detail=detail,
        missing=missing,
    )


def _unreached(
    asked: RecordedQuery, held: Snapshot, ends: Mapping[str, int], beyond: Beyond | None
) -> ReplayVerdict:
    """The verdict with what is missing, or NotReached where everything is here but not indexed."""
    hub, missing = asked.hub, []
    for name, last in ends.items():
        here = (beyond or {}).get((hub.hub_id, name), {})
        holes = _holes(_reached(held, hub, name) + 1, last, here)
        missing += [MissingPlaces(name, *hole) for hole in holes]
    ranges = ", ".join(f"{gap.stream} {gap.from_seq} to {gap.to_seq}" for gap in missing)
    if not missing:
        raise NotReached(
            f"{', '.join(ends)}: imported, but not indexed yet; wait, or run veen "
            "recorder index imports again"
        )
    if beyond is None:
        detail = f"not in the index: {ranges}; what stands here behind a gap was not looked at"
    else:
        detail = f"not here: {ranges}; bring these events here and replay again"
    return _verdict(asked.digest, field="searched", missing=tuple(missing), detail=detail)


def _holes(first: int, last: int, here: Iterable[int]) -> Iterator[tuple[int, int]]:
    for seq in sorted(seq for seq in here if first <= seq <= last):
        if first < seq:
            yield first, seq - 1
        first = seq + 1
    if first <= last:
        yield first, last


def _reached(held: Snapshot, hub: HubIdentity, name: str) -> int:
    rows = [
        stream for stream in held.streams() if (stream.hub_id, stream.name) == (hub.hub_id, name)
    ]
    return rows[0].position if rows else 0


def _end(held: Snapshot, hub: HubIdentity, searched: Searched) -> StreamEnd | None:
    """Where a stream had the root of the digest, by an indexed receipt; None if unknown."""
    root = bytes.fromhex(searched.mmr_root)
    if root == EMPTY_ROOT:
        return StreamEnd(stream_id=stream_id(searched.stream), last_seq=0, mmr_root=root)
    reached = _reached(held, hub, searched.stream)
    if not reached:
        return None
    row = _row(held, hub.hub_id, searched.stream)
    bounds = row.place(max(1, searched.to_seq)), row.place(reached)
    for (raw,) in held.db.execute(_RECEIPTS, bounds):
        receipt = Receipt.decode(raw)
        if receipt.mmr_root == root:
            hub.verify_receipt(receipt)
            return StreamEnd(
                stream_id=stream_id(searched.stream), last_seq=receipt.stream_seq, mmr_root=root
            )
    return None


def _least(held: Snapshot, hub: HubIdentity, searched: Searched, beyond: Beyond | None) -> int:
    """The minimum end of a stream whose end at that root is not indexed."""
    here = (beyond or {}).get((hub.hub_id, searched.stream), {})
    ends = [seq for seq, receipt in here.items() if receipt.mmr_root.hex() == searched.mmr_root]
    return max(*ends, searched.to_seq, _reached(held, hub, searched.stream) + 1)


def _row(held: Snapshot, hub_id: bytes, name: str) -> IndexedStream:
    return next(
        stream for stream in held.streams() if (stream.hub_id, stream.name) == (hub_id, name)
    )


def _entries(
    held: Snapshot, row: IndexedStream, span: StreamSpan, hub: HubIdentity
) -> Iterator[QueryEntry]:
    bounds = row.place(span.first), row.place(span.last)
    for _, fault, msg, receipt, body_key in held.db.execute(_PLACES, bounds):
        if fault is None:
            yield receipted(msg, receipt, body_key, VerifiedStream(row.name, hub))
        else:
            yield _no_event(row.name, receipt, hub)


def _incomplete(held: Snapshot, row: IndexedStream, last: int) -> Iterator[tuple[str, int]]:
    """Positions of an import stream whose bundle was completed only after ``last``."""
    for (place,) in held.db.execute(_INCOMPLETE, (row.stream_no, last, row.place(last))):
        yield row.name, seq_of(place)


def _no_event(stream: str, raw: bytes, hub: HubIdentity) -> QueryEntry:
    receipt = Receipt.decode(raw)
    hub.verify_receipt(receipt)
    return QueryEntry(stream, receipt.stream_seq, receipt.hub_ts, receipt.leaf_hash, None)
