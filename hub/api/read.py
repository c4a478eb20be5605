"""Read routes of a hub: receipts, proofs, checkpoints, pages and recorder checkpoints.

``/v1/receipt``, ``/v1/proof``, ``/v1/checkpoint`` and ``/v1/stream`` are those of spec 10.4; the
``/tooling`` routes give proofs for later sizes, ranges of checkpoints and the place of a leaf.
Every view checks that the caller may read the label before the log is read.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Final, Generic, TypeVar

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
from veen.wire.objects import WireObject

bp = Blueprint("read", __name__)
PAGE_BYTES: Final = 8_388_608
_PAGE_ITEMS: Final = 100


LabelRequest = (
    ReceiptRequest
    | ProofRequest
    | CheckpointRequest
    | InclusionRequest
    | ConsistencyRequest
    | RangeProofRequest
    | StreamRequest
)
RequestT = TypeVar("RequestT", bound=LabelRequest)


@dataclass(frozen=True, slots=True)
class LabelRead(Generic[RequestT]):
    """A request about a label that the viewer may read."""

    hub: HubContext
    viewer: Viewer
    request: RequestT
    row: LabelRow


View = Callable[[LabelRead[RequestT]], WireObject]


def label_view(route: str, kind: type[RequestT]) -> Callable[[View[RequestT]], View[RequestT]]:
    """Make a function the view of a route: it receives the request of a caller who may read the
    label, and returns the response."""

    def register(view: View[RequestT]) -> View[RequestT]:
        def respond() -> Response:
            hub, body = hub_context(), small_body()
            viewer = hub.access.viewer(body.raw)
            request = body.envelope(kind)
            return answer(view(LabelRead(hub, viewer, request, viewer.label(request.label))))

        bp.add_url_rule(route, view.__name__, respond, methods=["POST"])
        return view

    return register


@label_view("/v1/receipt", ReceiptRequest)
def receipt(read: LabelRead[ReceiptRequest]) -> ReceiptResponse:
    stream_seq = read.request.stream_seq
    verify_in_label(read.row, stream_seq)
    return ReceiptResponse(
        receipt=read.hub.reader.receipt(read.row.label, stream_seq),
        server_version=SERVER_VERSION,
    )


@label_view("/v1/proof", ProofRequest)
def proof(read: LabelRead[ProofRequest]) -> ProofResponse:
    mmr_proof = proof_of(read.hub, read.row, read.request.stream_seq)
    return ProofResponse(mmr_proof=mmr_proof, server_version=SERVER_VERSION)


@label_view("/v1/checkpoint", CheckpointRequest)
def checkpoint(read: LabelRead[CheckpointRequest]) -> CheckpointResponse:
    upto_seq = read.request.upto_seq
    verify_in_label(read.row, upto_seq)
    signed = _checkpoint(read.hub, read.viewer, read.row.label, upto_seq)
    return CheckpointResponse(checkpoint=signed, server_version=SERVER_VERSION)


def proof_of(hub: HubContext, row: LabelRow, stream_seq: int) -> MmrProof:
    with measure_proof(hub):
        return hub.reader.proof(row.label, stream_seq)


@contextmanager
def measure_proof(hub: HubContext) -> Iterator[None]:
    start = time.perf_counter()
    yield
    hub.metrics.proof_latency.observe(1_000 * (time.perf_counter() - start))


def verify_in_label(row: LabelRow, stream_seq: int) -> None:
    """Raise Missing for a stream_seq outside the label, which may not even fit into the index."""
    if not 1 <= stream_seq <= row.head_seq:
        raise Missing(f"label {row.label.hex()} has no stream_seq {stream_seq}")


def _checkpoint(hub: HubContext, viewer: Viewer, label: bytes, upto_seq: int) -> Checkpoint:
    """The stored checkpoint; for a managing principal a new one is made where there is none."""
    try:
        return hub.reader.checkpoint(label, upto_seq)
    except Missing:
        if not viewer.manages():
            raise
    return hub.sequencer.checkpoint(label, upto_seq)


@label_view("/tooling/inclusion", InclusionRequest)
def inclusion(read: LabelRead[InclusionRequest]) -> InclusionResponse:
    asked = read.request
    with measure_proof(read.hub):
        proof = read.hub.reader.inclusion(read.row.label, asked.stream_seq, asked.size)
    return InclusionResponse(proof=proof, server_version=SERVER_VERSION)


@label_view("/tooling/consistency", ConsistencyRequest)
def consistency(read: LabelRead[ConsistencyRequest]) -> RangeProofResponse:
    asked = read.request
    with measure_proof(read.hub):
        proof = read.hub.reader.consistency(read.row.label, asked.old_size, asked.new_size)
    return RangeProofResponse(proof=proof, server_version=SERVER_VERSION)


@label_view("/tooling/range_proof", RangeProofRequest)
def range_proof(read: LabelRead[RangeProofRequest]) -> RangeProofResponse:
    asked, reader = read.request, read.hub.reader
    with measure_proof(read.hub):
        proof = reader.range_proof(read.row.label, asked.from_seq, asked.to_seq, asked.size)
    return RangeProofResponse(proof=proof, server_version=SERVER_VERSION)


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
    request = query(CheckpointRangeQuery)
    row = viewer.label(request.label)
    max_items = hub.settings.max_page_items
    count = max_items if request.limit is None else min(request.limit, max_items)
    start = min(request.from_seq or 0, row.head_seq + 1)
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
    request = body.envelope(LocateRequest)
    places = _by_time(hub, viewer, request) if request.label else _by_leaf(hub, viewer, request)
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


@dataclass(frozen=True, slots=True)
class StreamPage:
    """The part of a label in one response: inclusive bounds and the maximum number of items."""

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
        """As many items as fit into a page, at least one if the range is not empty."""
        last = min(self.end, self.start + self.count - 1)
        if last < self.start:
            return
        left = PAGE_BYTES
        for stored in reader.entries(label, self.start, last):
            left -= len(stored.entry.msg_bytes) + len(stored.entry.receipt_bytes)
            if left < 0 and stored.seq > self.start:
                return
            receipt = stored.entry.receipt_bytes if receipts else None
            yield StreamItem(stream_seq=stored.seq, msg=stored.entry.msg_bytes, receipt=receipt)

    def next_cursor(self, items: tuple[StreamItem, ...]) -> int | None:
        after = items[-1].stream_seq + 1 if items else self.start
        return after if after <= self.end else None


@label_view("/v1/stream", StreamRequest)
def stream(read: LabelRead[StreamRequest]) -> StreamResponse:
    hub, request, row = read.hub, read.request, read.row
    page = StreamPage.of(request, row, hub.settings.max_page_items)
    items = tuple(page.items(hub.reader, row.label, receipts=bool(request.with_receipts)))
    proved = request.with_mmr_proof and items
    return StreamResponse(
        label=row.label,
        from_seq=page.start,
        to_seq=request.to_seq,
        items=items,
        next_cursor=page.next_cursor(items),
        mmr_proof=proof_of(hub, row, items[-1].stream_seq) if proved else None,
        server_version=SERVER_VERSION,
    )


@bp.post("/tooling/recorder_checkpoint")
def recorder_checkpoint() -> Response:
    hub, body = hub_context(), small_body()
    hub.access.manager(body.raw)
    request = body.envelope(RecorderCheckpointRequest)
    _checkpoint_heads(hub)
    document = hub.sequencer.recorder_checkpoint(request.profile_id, force=bool(request.force))
    return answer(RecorderCheckpointResponse(checkpoint=document, server_version=SERVER_VERSION))


@bp.get("/tooling/recorder_checkpoint_latest")
def recorder_checkpoint_latest() -> Response:
    hub = hub_context()
    hub.access.viewer(no_body().raw).verify_reads_recorder_checkpoints()
    document = hub.recorder.latest()
    if document is None:
        raise Missing("no recorder checkpoint was made yet; POST /tooling/recorder_checkpoint")
    return answer(RecorderCheckpointResponse(checkpoint=document, server_version=SERVER_VERSION))


@bp.get("/tooling/recorder_checkpoints")
def recorder_checkpoints() -> Response:
    hub = hub_context()
    hub.access.viewer(no_body().raw).verify_reads_recorder_checkpoints()
    request = query(RecorderCheckpointsQuery)
    count = _PAGE_ITEMS if request.limit is None else min(request.limit, _PAGE_ITEMS)
    page, is_last = _page(hub, request.after or 0, count)
    return answer(
        RecorderCheckpointsResponse(
            checkpoints=tuple(page),
            next_after=None if is_last or not page else page[-1].created_at,
            server_version=SERVER_VERSION,
        )
    )


def _checkpoint_heads(hub: HubContext) -> None:
    """Make a checkpoint at the head of every stream, in separate requests to the sequencer."""
    routing, index = routing_key(hub.identity.current().hub_id), hub.reader.index
    for stream in filter(is_recorded, hub.names.all()):
        row = index.label(derive_label(routing, stream.stream_id(), 0))
        if row is not None and (index.last_checkpoint(row.label_no) or 0) < row.head_seq:
            hub.sequencer.checkpoint(row.label, row.head_seq)


def _page(hub: HubContext, after: int, count: int) -> tuple[list[RecorderCheckpoint], bool]:
    """As many documents as fit, at least one if there is any, and whether they are the last."""
    page: list[RecorderCheckpoint] = []
    left = PAGE_BYTES
    for document in hub.recorder.after(after, count + 1):
        left -= len(document.encode())
        if len(page) == count or (left < 0 and page):
            return page, False
        page.append(document)
    return page, True
