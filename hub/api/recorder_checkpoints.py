"""Recorder checkpoints: one document over the ends of all product streams (SDR0 3.2.4)."""

from __future__ import annotations

from typing import Final

from flask import Blueprint, Response

from hub.api.edge import SERVER_VERSION, Edge, edge
from hub.api.negotiation import answer, no_body, small_body
from hub.api.query import query
from hub.api.stream import PAGE_BYTES
from hub.registry import is_recorded
from hub.storage.reader import Missing
from veen.label import label, routing_key
from veen.recorder_checkpoint import RecorderCheckpoint
from veen.tooling import (
    RecorderCheckpointRequest,
    RecorderCheckpointResponse,
    RecorderCheckpointsQuery,
    RecorderCheckpointsResponse,
)

_PAGE_ITEMS: Final = 100
bp = Blueprint("recorder_checkpoints", __name__)


@bp.post("/tooling/recorder_checkpoint")
def recorder_checkpoint() -> Response:
    hub, body = edge(), small_body()
    hub.access.manager(body.raw)
    wanted = body.envelope(RecorderCheckpointRequest)
    _checkpoint_heads(hub)
    found = hub.sequencer.recorder_checkpoint(wanted.profile_id, force=bool(wanted.force))
    return answer(RecorderCheckpointResponse(checkpoint=found, server_version=SERVER_VERSION))


@bp.get("/tooling/recorder_checkpoint_latest")
def recorder_checkpoint_latest() -> Response:
    hub = edge()
    hub.access.viewer(no_body().raw).refuse_without_recorder_checkpoints()
    found = hub.recorder.latest()
    if found is None:
        raise Missing("no recorder checkpoint was made yet; POST /tooling/recorder_checkpoint")
    return answer(RecorderCheckpointResponse(checkpoint=found, server_version=SERVER_VERSION))


@bp.get("/tooling/recorder_checkpoints")
def recorder_checkpoints() -> Response:
    hub = edge()
    hub.access.viewer(no_body().raw).refuse_without_recorder_checkpoints()
    wanted = query(RecorderCheckpointsQuery)
    count = _PAGE_ITEMS if wanted.limit is None else min(wanted.limit, _PAGE_ITEMS)
    page, is_last = _page(hub, wanted.after or 0, count)
    return answer(
        RecorderCheckpointsResponse(
            checkpoints=tuple(page),
            next_after=None if is_last or not page else page[-1].created_at,
            server_version=SERVER_VERSION,
        )
    )


def _checkpoint_heads(hub: Edge) -> None:
    """A checkpoint at the head of every stream, one by one: messages go on in between."""
    routing, index = routing_key(hub.identity.current().hub_id), hub.reader.index
    for stream in filter(is_recorded, hub.names.all()):
        row = index.label(label(routing, stream.stream_id(), 0))
        if row is not None and (index.last_checkpoint(row.label_no) or 0) < row.head_seq:
            hub.sequencer.checkpoint(row.label, row.head_seq)


def _page(hub: Edge, after: int, count: int) -> tuple[list[RecorderCheckpoint], bool]:
    """At least one document if there is one, no more than fit, and whether those are all."""
    page: list[RecorderCheckpoint] = []
    left = PAGE_BYTES
    for one in hub.recorder.after(after, count + 1):
        left -= len(one.encode())
        if len(page) == count or (left < 0 and page):
            return page, False
        page.append(one)
    return page, True
