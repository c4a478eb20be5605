"""receipt, proof and checkpoint: what the hub has signed about a place (spec 10.4.3 - 10.4.5).

Proofs against later sizes, checkpoints by range, and where a leaf stands.

stream: a page of a label, with receipts and a proof if asked for (spec 10.4.2, 10.5).

Recorder checkpoints: one document over the ends of all product streams (SDR0 3.2.4).
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Final

from flask import Blueprint, Response

from hub.api.content import answer, no_body, query, small_body
from hub.api.context import SERVER_VERSION, HubContext, Viewer, hub_context
from hub.registry import is_recorded
from hub.storage.index import LabelRow
from hub.storage.reader import LogReader, Missing
from veen.checkpoint import Checkpoint
from veen.label import derive_label, routing_key
from veen.proofs import MmrProof
from veen.recorder_checkpoint import RecorderCheckpoint
from veen.wire.api import (
    CheckpointLatestQuery,
    CheckpointRangeQuery,
    CheckpointRangeResponse,
    CheckpointRequest,
    CheckpointResponse,
    ConsistencyRequest,
    EntryPlace,
    InclusionRequest,
    InclusionResponse,
    LocateRequest,
    LocateResponse,
    ProofRequest,
    ProofResponse,
    RangeProofRequest,
    RangeProofResponse,
    ReceiptRequest,
    ReceiptResponse,
    RecorderCheckpointRequest,
    RecorderCheckpointResponse,
    RecorderCheckpointsQuery,
    RecorderCheckpointsResponse,
    StreamItem,
    StreamRequest,
    StreamResponse,
)

bp = Blueprint("read", __name__)


@bp.post("/v1/receipt")
def receipt() -> Response:
    hub, body = hub_context(), small_body()
    viewer = hub.access.viewer(body.raw)
    t = body.envelope(ReceiptRequest)
    row = viewer.label(t.label)
    refuse_outside(row, t.stream_seq)
    result = hub.reader.receipt(row.label, t.stream_seq)
    return answer(ReceiptResponse(receipt=result, server_version=SERVER_VERSION))


@bp.post("/v1/proof")
def proof() -> Response:
    hub, body = hub_context(), small_body()
    viewer = hub.access.viewer(body.raw)
    t = body.envelope(ProofRequest)
    mmr_proof = proof_of(hub, viewer.label(t.label), t.stream_seq)
    return answer(ProofResponse(mmr_proof=mmr_proof, server_version=SERVER_VERSION))


@bp.post("/v1/checkpoint")
def checkpoint() -> Response:
    hub, body = hub_context(), small_body()
    viewer = hub.access.viewer(body.raw)
    t = body.envelope(CheckpointRequest)
    row = viewer.label(t.label)
    refuse_outside(row, t.upto_seq)
    result = _checkpoint(hub, viewer, row.label, t.upto_seq)
    return answer(CheckpointResponse(checkpoint=result, server_version=SERVER_VERSION))


def proof_of(hub: HubContext, row: LabelRow, stream_seq: int) -> MmrProof:
    with proof_timed(hub):
        return hub.reader.proof(row.label, stream_seq)


@contextmanager
def proof_timed(hub: HubContext) -> Iterator[None]:
    start = time.perf_counter()
    yield
    hub.metrics.proof_latency.observe(1_000 * (time.perf_counter() - start))


def refuse_outside(row: LabelRow, stream_seq: int) -> None:
    """Before the index is asked: its numbers are smaller than those of the wire."""
    if not 1 <= stream_seq <= row.head_seq:
        raise Missing(f"label {row.label.hex()} has no stream_seq {stream_seq}")


def _checkpoint(hub: HubContext, viewer: Viewer, label: bytes, upto_seq: int) -> Checkpoint:
    """The one on disk; who manages the hub gets one made where there is none."""
    try:
        return hub.reader.checkpoint(label, upto_seq)
    except Missing:
        if not viewer.manages():
            raise
    return hub.sequencer.checkpoint(label, upto_seq)


@bp.post("/tooling/inclusion")
def inclusion() -> Response:
    hub, body = hub_context(), small_body()
    viewer = hub.access.viewer(body.raw)
    t = body.envelope(InclusionRequest)
    row = viewer.label(t.label)
    with proof_timed(hub):
        proof = hub.reader.inclusion(row.label, t.stream_seq, t.size)
    return answer(InclusionResponse(proof=proof, server_version=SERVER_VERSION))


@bp.post("/tooling/consistency")
def consistency() -> Response:
    hub, body = hub_context(), small_body()
    viewer = hub.access.viewer(body.raw)
    t = body.envelope(ConsistencyRequest)
    row = viewer.label(t.label)
    with proof_timed(hub):
        proof = hub.reader.consistency(row.label, t.old_size, t.new_size)
    return answer(RangeProofResponse(proof=proof, server_version=SERVER_VERSION))


@bp.post("/tooling/range_proof")
def range_proof() -> Response:
    hub, body = hub_context(), small_body()
    viewer = hub.access.viewer(body.raw)
    t = body.envelope(RangeProofRequest)
    row = viewer.label(t.label)
    with proof_timed(hub):
        proof = hub.reader.range_proof(row.label, t.from_seq, t.to_seq, t.size)
    return answer(RangeProofResponse(proof=proof, server_version=SERVER_VERSION))


@bp.get("/tooling/checkpoint_latest")
def checkpoint_latest() -> Response:
    hub = hub_context()
    viewer = hub.access.viewer(no_body().raw)
    row = viewer.label(query(CheckpointLatestQuery).label)
    checkpoint = hub.reader.latest_checkpoint(row.label)
    return answer(CheckpointResponse(checkpoint=checkpoint, server_version=SERVER_VERSION))


@bp.get("/tooling/checkpoint_range")
def checkpoint_range() -> Response:
    hub = hub_context()
    viewer = hub.access.viewer(no_body().raw)
    expected = query(CheckpointRangeQuery)
    row = viewer.label(expected.label)
    most = hub.settings.max_page_items
    count = most if expected.limit is None else min(expected.limit, most)
    start = min(expected.from_seq or 0, row.head_seq + 1)
    checkpoints = tuple(hub.reader.checkpoints(row.label, start, count))
    full = len(checkpoints) == count and count > 0
    return answer(
        CheckpointRangeResponse(
            checkpoints=checkpoints,
            next_from_seq=checkpoints[-1].upto_seq + 1 if full else None,
            server_version=SERVER_VERSION,
        )
    )


@bp.post("/tooling/locate")
def locate() -> Response:
    hub, body = hub_context(), small_body()
    viewer = hub.access.viewer(body.raw)
    t = body.envelope(LocateRequest)
    places = _by_time(hub, viewer, t) if t.label else _by_leaf(hub, viewer, t)
    return answer(LocateResponse(places=places, server_version=SERVER_VERSION))


def _by_leaf(hub: HubContext, viewer: Viewer, request: LocateRequest) -> tuple[EntryPlace, ...]:
    places = hub.reader.find_leaf(request.leaf_hash or b"")
    return tuple(
        EntryPlace(label=label, stream_seq=seq)
        for label, seq in places
        if viewer.may_read(hub.reader.label(label))
    )


def _by_time(hub: HubContext, viewer: Viewer, request: LocateRequest) -> tuple[EntryPlace, ...]:
    row = viewer.label(request.label or b"")
    seq = hub.reader.first_at(row.label, request.hub_ts or 0)
    return (EntryPlace(label=row.label, stream_seq=seq),) if seq <= row.head_seq else ()


PAGE_BYTES: Final = 8_388_608


@dataclass(frozen=True, slots=True)
class StreamPage:
    """The part of a label that one answer may hold: inclusive bounds and a count."""

    start: int
    end: int
    count: int

    @classmethod
    def of(cls, request: StreamRequest, row: LabelRow, max_items: int) -> StreamPage:
        start = request.from_seq if request.cursor is None else request.cursor
        end = row.head_seq if request.to_seq is None else min(request.to_seq, row.head_seq)
        count = max_items if request.max_items is None else min(request.max_items, max_items)
        return cls(max(start, 1), end, count)

    def items(self, reader: LogReader, label: bytes, *, receipts: bool) -> Iterator[StreamItem]:
        """At least one item if there is one, and no more than fit into a page."""
        last = min(self.end, self.start + self.count - 1)
        if last < self.start:
            return
        left = PAGE_BYTES
        for result in reader.entries(label, self.start, last):
            left -= len(result.entry.msg_bytes) + len(result.entry.receipt_bytes)
            if left < 0 and result.seq > self.start:
                return
            receipt = result.entry.receipt_bytes if receipts else None
            yield StreamItem(stream_seq=result.seq, msg=result.entry.msg_bytes, receipt=receipt)

    def next_cursor(self, items: tuple[StreamItem, ...]) -> int | None:
        after = items[-1].stream_seq + 1 if items else self.start
        return after if after <= self.end else None


@bp.post("/v1/stream")
def stream() -> Response:
    hub, body = hub_context(), small_body()
    viewer = hub.access.viewer(body.raw)
    t = body.envelope(StreamRequest)
    row = viewer.label(t.label)
    page = StreamPage.of(t, row, hub.settings.max_page_items)
    items = tuple(page.items(hub.reader, row.label, receipts=bool(t.with_receipts)))
    proved = t.with_mmr_proof and items
    return answer(
        StreamResponse(
            label=row.label,
            from_seq=page.start,
            to_seq=t.to_seq,
            items=items,
            next_cursor=page.next_cursor(items),
            mmr_proof=proof_of(hub, row, items[-1].stream_seq) if proved else None,
            server_version=SERVER_VERSION,
        )
    )


_PAGE_ITEMS: Final = 100


@bp.post("/tooling/recorder_checkpoint")
def recorder_checkpoint() -> Response:
    hub, body = hub_context(), small_body()
    hub.access.manager(body.raw)
    t = body.envelope(RecorderCheckpointRequest)
    _checkpoint_heads(hub)
    result = hub.sequencer.recorder_checkpoint(t.profile_id, force=bool(t.force))
    return answer(RecorderCheckpointResponse(checkpoint=result, server_version=SERVER_VERSION))


@bp.get("/tooling/recorder_checkpoint_latest")
def recorder_checkpoint_latest() -> Response:
    hub = hub_context()
    hub.access.viewer(no_body().raw).refuse_without_recorder_checkpoints()
    result = hub.recorder.latest()
    if result is None:
        raise Missing("no recorder checkpoint was made yet; POST /tooling/recorder_checkpoint")
    return answer(RecorderCheckpointResponse(checkpoint=result, server_version=SERVER_VERSION))


@bp.get("/tooling/recorder_checkpoints")
def recorder_checkpoints() -> Response:
    hub = hub_context()
    hub.access.viewer(no_body().raw).refuse_without_recorder_checkpoints()
    expected = query(RecorderCheckpointsQuery)
    count = _PAGE_ITEMS if expected.limit is None else min(expected.limit, _PAGE_ITEMS)
    page, is_last = _page(hub, expected.after or 0, count)
    return answer(
        RecorderCheckpointsResponse(
            checkpoints=tuple(page),
            next_after=None if is_last or not page else page[-1].created_at,
            server_version=SERVER_VERSION,
        )
    )


def _checkpoint_heads(hub: HubContext) -> None:
    """A checkpoint at the head of every stream, one by one: messages go on in between."""
    routing, index = routing_key(hub.identity.current().hub_id), hub.reader.index
    for stream in filter(is_recorded, hub.names.all()):
        row = index.label(derive_label(routing, stream.stream_id(), 0))
        if row is not None and (index.last_checkpoint(row.label_no) or 0) < row.head_seq:
            hub.sequencer.checkpoint(row.label, row.head_seq)


def _page(hub: HubContext, after: int, count: int) -> tuple[list[RecorderCheckpoint], bool]:
    """At least one document if there is one, no more than fit, and whether those are all."""
    page: list[RecorderCheckpoint] = []
    left = PAGE_BYTES
    for item in hub.recorder.after(after, count + 1):
        left -= len(item.encode())
        if len(page) == count or (left < 0 and page):
            return page, False
        page.append(item)
    return page, True
