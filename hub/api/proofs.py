"""Proofs against later sizes, checkpoints by range, and where a leaf stands."""

from __future__ import annotations

from flask import Blueprint, Response

from hub.api.access import Viewer
from hub.api.edge import SERVER_VERSION, Edge, edge
from hub.api.negotiation import answer, no_body, small_body
from hub.api.query import query
from hub.api.receipts import proof_timed
from veen.envelope import CheckpointResponse
from veen.tooling import (
    CheckpointLatestQuery,
    CheckpointRangeQuery,
    CheckpointRangeResponse,
    ConsistencyRequest,
    InclusionRequest,
    InclusionResponse,
    LocateRequest,
    LocateResponse,
    Place,
    RangeProofRequest,
    RangeProofResponse,
)

bp = Blueprint("proofs", __name__)


@bp.post("/tooling/inclusion")
def inclusion() -> Response:
    hub, body = edge(), small_body()
    viewer = hub.access.viewer(body.raw)
    wanted = body.envelope(InclusionRequest)
    row = viewer.label(wanted.label)
    with proof_timed(hub):
        proof = hub.reader.inclusion(row.label, wanted.stream_seq, wanted.size)
    return answer(InclusionResponse(proof=proof, server_version=SERVER_VERSION))


@bp.post("/tooling/consistency")
def consistency() -> Response:
    hub, body = edge(), small_body()
    viewer = hub.access.viewer(body.raw)
    wanted = body.envelope(ConsistencyRequest)
    row = viewer.label(wanted.label)
    with proof_timed(hub):
        proof = hub.reader.consistency(row.label, wanted.old_size, wanted.new_size)
    return answer(RangeProofResponse(proof=proof, server_version=SERVER_VERSION))


@bp.post("/tooling/range_proof")
def range_proof() -> Response:
    hub, body = edge(), small_body()
    viewer = hub.access.viewer(body.raw)
    wanted = body.envelope(RangeProofRequest)
    row = viewer.label(wanted.label)
    with proof_timed(hub):
        proof = hub.reader.range_proof(row.label, wanted.from_seq, wanted.to_seq, wanted.size)
    return answer(RangeProofResponse(proof=proof, server_version=SERVER_VERSION))


@bp.get("/tooling/checkpoint_latest")
def checkpoint_latest() -> Response:
    hub = edge()
    viewer = hub.access.viewer(no_body().raw)
    row = viewer.label(query(CheckpointLatestQuery).label)
    found = hub.reader.latest_checkpoint(row.label)
    return answer(CheckpointResponse(checkpoint=found, server_version=SERVER_VERSION))


@bp.get("/tooling/checkpoint_range")
def checkpoint_range() -> Response:
    hub = edge()
    viewer = hub.access.viewer(no_body().raw)
    wanted = query(CheckpointRangeQuery)
    row = viewer.label(wanted.label)
    most = hub.settings.max_page_items
    count = most if wanted.limit is None else min(wanted.limit, most)
    start = min(wanted.from_seq or 0, row.head_seq + 1)
    found = tuple(hub.reader.checkpoints(row.label, start, count))
    full = len(found) == count and count > 0
    return answer(
        CheckpointRangeResponse(
            checkpoints=found,
            next_from_seq=found[-1].upto_seq + 1 if full else None,
            server_version=SERVER_VERSION,
        )
    )


@bp.post("/tooling/locate")
def locate() -> Response:
    hub, body = edge(), small_body()
    viewer = hub.access.viewer(body.raw)
    wanted = body.envelope(LocateRequest)
    places = _by_time(hub, viewer, wanted) if wanted.label else _by_leaf(hub, viewer, wanted)
    return answer(LocateResponse(places=places, server_version=SERVER_VERSION))


def _by_leaf(hub: Edge, viewer: Viewer, wanted: LocateRequest) -> tuple[Place, ...]:
    places = hub.reader.find_leaf(wanted.leaf_hash or b"")
    return tuple(
        Place(label=label, stream_seq=seq)
        for label, seq in places
        if viewer.may_read(hub.reader.label(label))
    )


def _by_time(hub: Edge, viewer: Viewer, wanted: LocateRequest) -> tuple[Place, ...]:
    row = viewer.label(wanted.label or b"")
    seq = hub.reader.first_at(row.label, wanted.hub_ts or 0)
    return (Place(label=row.label, stream_seq=seq),) if seq <= row.head_seq else ()
