"""receipt, proof and checkpoint: what the hub has signed about a place (spec 10.4.3 - 10.4.5)."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager

from flask import Blueprint, Response

from hub.api.access import Viewer
from hub.api.edge import SERVER_VERSION, Edge, edge
from hub.api.negotiation import answer, small_body
from hub.storage.index import LabelRow
from hub.storage.reader import Missing
from veen.checkpoint import Checkpoint
from veen.envelope import (
    CheckpointRequest,
    CheckpointResponse,
    ProofRequest,
    ProofResponse,
    ReceiptRequest,
    ReceiptResponse,
)
from veen.proof import MmrProof

bp = Blueprint("receipts", __name__)


@bp.post("/v1/receipt")
def receipt() -> Response:
    hub, body = edge(), small_body()
    viewer = hub.access.viewer(body.raw)
    wanted = body.envelope(ReceiptRequest)
    row = viewer.label(wanted.label)
    refuse_outside(row, wanted.stream_seq)
    found = hub.reader.receipt(row.label, wanted.stream_seq)
    return answer(ReceiptResponse(receipt=found, server_version=SERVER_VERSION))


@bp.post("/v1/proof")
def proof() -> Response:
    hub, body = edge(), small_body()
    viewer = hub.access.viewer(body.raw)
    wanted = body.envelope(ProofRequest)
    found = proof_of(hub, viewer.label(wanted.label), wanted.stream_seq)
    return answer(ProofResponse(mmr_proof=found, server_version=SERVER_VERSION))


@bp.post("/v1/checkpoint")
def checkpoint() -> Response:
    hub, body = edge(), small_body()
    viewer = hub.access.viewer(body.raw)
    wanted = body.envelope(CheckpointRequest)
    row = viewer.label(wanted.label)
    refuse_outside(row, wanted.upto_seq)
    found = _checkpoint(hub, viewer, row.label, wanted.upto_seq)
    return answer(CheckpointResponse(checkpoint=found, server_version=SERVER_VERSION))


def proof_of(hub: Edge, row: LabelRow, stream_seq: int) -> MmrProof:
    with proof_timed(hub):
        return hub.reader.proof(row.label, stream_seq)


@contextmanager
def proof_timed(hub: Edge) -> Iterator[None]:
    start = time.perf_counter()
    yield
    hub.metrics.proof_latency.observe(1_000 * (time.perf_counter() - start))


def refuse_outside(row: LabelRow, stream_seq: int) -> None:
    """Before the index is asked: its numbers are smaller than those of the wire."""
    if not 1 <= stream_seq <= row.head_seq:
        raise Missing(f"label {row.label.hex()} has no stream_seq {stream_seq}")


def _checkpoint(hub: Edge, viewer: Viewer, label: bytes, upto_seq: int) -> Checkpoint:
    """The one on disk; who manages the hub gets one made where there is none."""
    try:
        return hub.reader.checkpoint(label, upto_seq)
    except Missing:
        if not viewer.manages():
            raise
    return hub.sequencer.checkpoint(label, upto_seq)
