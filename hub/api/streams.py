"""The streams a hub knows by name, and how it is told of one more."""

from __future__ import annotations

from flask import Blueprint, Response

from hub.api.edge import SERVER_VERSION, edge
from hub.api.negotiation import answer, no_body, small_body
from hub.api.refused import Refused
from hub.storage.index import LabelRow
from veen.control import StreamRecord
from veen.errors import Code, Malformed, Untrusted
from veen.profile import Profile
from veen.tooling import LabelInfo, RegisterRequest, StreamInfo, StreamsResponse

bp = Blueprint("streams", __name__)


@bp.get("/tooling/streams")
def list_streams() -> Response:
    hub = edge()
    viewer = hub.access.viewer(no_body().raw)
    rows = hub.reader.labels()
    readable = (one for one in hub.names.all() if viewer.may_read_stream(one.name))
    infos = tuple(_info(one, rows) for one in readable)
    return answer(StreamsResponse(streams=infos, server_version=SERVER_VERSION))


@bp.post("/tooling/streams")
def register_stream() -> Response:
    hub, body = edge(), small_body()
    hub.access.manager(body.raw)
    wanted = body.envelope(RegisterRequest)
    profile = Profile(epoch_sec=wanted.epoch_sec or 0, pad_block=wanted.pad_block or 0)
    if profile not in hub.settings.profiles:
        raise Refused(Code.BAD_REQUEST, "no such profile is configured", {"field": "profile"})
    record = _record(wanted.name, profile)
    try:
        hub.sequencer.register(record)
    except Untrusted as error:
        raise Refused(Code.CONFLICT, str(error)) from error
    info = _info(record, hub.reader.labels())
    return answer(StreamsResponse(streams=(info,), server_version=SERVER_VERSION))


def _record(name: str, profile: Profile) -> StreamRecord:
    record = StreamRecord(name=name, profile=profile)
    try:
        record.check()
    except Malformed as error:
        raise Refused(Code.BAD_REQUEST, str(error), {"field": "name"}) from error
    return record


def _info(stream: StreamRecord, rows: list[LabelRow]) -> StreamInfo:
    return StreamInfo(
        name=stream.name,
        stream_id=stream.stream_id(),
        profile_id=stream.profile.profile_id(),
        epoch_sec=stream.profile.epoch_sec,
        pad_block=stream.profile.pad_block,
        labels=tuple(_label(row) for row in rows if row.stream_id == stream.stream_id()),
    )


def _label(row: LabelRow) -> LabelInfo:
    return LabelInfo(
        label=row.label,
        epoch=row.epoch,
        last_stream_seq=row.head_seq,
        last_hub_ts=row.head_ts,
        closed=bool(row.closed),
    )
