"""Routes outside the data plane: capabilities, status, streams, equivocation (spec 6.1, 12, 14)."""

from __future__ import annotations

import logging
import time
from collections import defaultdict
from dataclasses import asdict, dataclass
from typing import Final

from flask import Blueprint, Response

from hub.api.content import RequestRefused, answer, no_body, query, small_body
from hub.api.context import SERVER_VERSION, HubContext, hub_context
from hub.storage.index import LabelRow
from hub.storage.reader import LogReader, Missing
from veen.captoken import CapToken
from veen.digest import h
from veen.errors import Code, Failure, Malformed, Rejected, Untrusted
from veen.hub_identity import HubIdentity
from veen.label import Profile
from veen.log.entry import AUTHORIZE, ControlRecord, StreamRecord, control_label
from veen.receipt import Receipt
from veen.system.durable import write_once
from veen.wire.api import (
    AuthorizeResponse,
    CapabilityQuery,
    CapabilityResponse,
    EquivocationReport,
    EquivocationResponse,
    LabelInfo,
    LimitRegistry,
    ProfileStatus,
    RegisterRequest,
    StatusResponse,
    StreamInfo,
    StreamsResponse,
)
from veen.wire.cbor import UINT_MAX

_log = logging.getLogger(__name__)
FEATURES: Final = (
    "submit_batch",
    "duplicate_receipt",
    "authorize",
    "inclusion",
    "consistency",
    "range_proof",
    "locate",
    "report_equivocation",
    "recorder_checkpoint",
)
bp = Blueprint("admin", __name__)


@bp.post("/tooling/report_equivocation")
def report_equivocation() -> Response:
    """Store two contradicting receipts. Anyone may report: both must be signed by this hub."""
    hub, body = hub_context(), small_body()
    report = body.envelope(EquivocationReport)
    _verify_contradiction(report, hub.identity.current())
    evidence = EquivocationReport(ver=1, **_ordered(report)).encode()
    evidence_id = h(evidence)
    write_once(hub.datadir.evidence / f"equivocation-{evidence_id.hex()}.cbor", evidence)
    _log.critical(
        "this hub signed two receipts of label %s that contradict, at %d and %d: evidence %s",
        report.first.label.hex(), report.first.stream_seq, report.second.stream_seq,
        evidence_id.hex(),
    )  # fmt: skip
    return answer(EquivocationResponse(evidence_id=evidence_id, server_version=SERVER_VERSION))


def _ordered(report: EquivocationReport) -> dict[str, Receipt]:
    """The two receipts in a fixed order, so that a pair is stored once."""
    first, second = sorted((report.first, report.second), key=Receipt.encode)
    return {"first": first, "second": second}


def _verify_contradiction(report: EquivocationReport, identity: HubIdentity) -> None:
    first, second = report.first, report.second
    if not first.contradicts(second):
        raise RequestRefused(Code.BAD_REQUEST, "the two receipts do not contradict each other")
    try:
        identity.verify_receipt(first)
        identity.verify_receipt(second)
    except Untrusted as error:
        raise RequestRefused(Code.BAD_REQUEST, str(error)) from error


@dataclass(frozen=True, slots=True)
class StreamHead:
    """The label with the latest entry, with its root."""

    latest: LabelRow | None
    root: bytes | None

    @property
    def last_stream_seq(self) -> int:
        return self.latest.head_seq if self.latest else 0

    @property
    def last_hub_ts(self) -> int:
        return self.latest.head_ts if self.latest else 0

    @property
    def peaks_count(self) -> int:
        return self.last_stream_seq.bit_count()


def head_of(reader: LogReader) -> StreamHead:
    latest = reader.index.latest_label()
    root = reader.root(latest.label, latest.head_seq) if latest else None
    return StreamHead(latest, root)


@bp.get("/tooling/streams")
def list_streams() -> Response:
    hub = hub_context()
    viewer = hub.access.viewer(no_body().raw)
    readable = [stream for stream in hub.names.all() if viewer.may_read_stream(stream.name)]
    rows = defaultdict(list)
    for row in hub.reader.labels():
        rows[row.stream_id].append(row)
    infos = tuple(_info(stream, rows[stream.stream_id()]) for stream in readable)
    return answer(StreamsResponse(streams=infos, server_version=SERVER_VERSION))


@bp.post("/tooling/streams")
def register_stream() -> Response:
    hub, body = hub_context(), small_body()
    hub.access.manager(body.raw)
    request = body.envelope(RegisterRequest)
    profile = Profile(epoch_sec=request.epoch_sec or 0, pad_block=request.pad_block or 0)
    if profile not in hub.settings.profiles:
        raise RequestRefused(
            Code.BAD_REQUEST, "the profile is not configured at this hub", {"field": "profile"}
        )
    record = _record(request.name, profile)
    try:
        hub.sequencer.register(record)
    except Untrusted as error:
        raise RequestRefused(Code.CONFLICT, str(error)) from error
    info = _info(record, hub.reader.index.labels_of(record.stream_id()))
    return answer(StreamsResponse(streams=(info,), server_version=SERVER_VERSION))


def _record(name: str, profile: Profile) -> StreamRecord:
    record = StreamRecord(name=name, profile=profile)
    try:
        record.check()
    except Malformed as error:
        raise RequestRefused(Code.BAD_REQUEST, str(error), {"field": "name"}) from error
    return record


def _info(stream: StreamRecord, labels: list[LabelRow]) -> StreamInfo:
    return StreamInfo(
        name=stream.name,
        stream_id=stream.stream_id(),
        profile_id=stream.profile.profile_id(),
        epoch_sec=stream.profile.epoch_sec,
        pad_block=stream.profile.pad_block,
        labels=tuple(map(_label, labels)),
    )


def _label(row: LabelRow) -> LabelInfo:
    return LabelInfo(
        label=row.label,
        epoch=row.epoch,
        last_stream_seq=row.head_seq,
        last_hub_ts=row.head_ts,
        closed=bool(row.closed),
    )


@bp.post("/tooling/authorize")
def authorize() -> Response:
    hub, body = hub_context(), small_body()
    try:
        token = body.parse(CapToken)
    except Malformed as error:
        raise Rejected(Failure.CAP_INVALID, str(error)) from error
    _verify_limits(hub, token)
    _verify_policy(hub, token)
    row = hub.sequencer.authorize(token)
    label = control_label(hub.identity.current().hub_id)
    return answer(
        AuthorizeResponse(
            auth_ref=row.auth_ref,
            issued_at=row.issued_at,
            expires_at=min(token.expires_at(row.issued_at), UINT_MAX),
            receipt=hub.reader.receipt(label, row.seq),
            server_version=SERVER_VERSION,
        )
    )


@bp.get("/tooling/capability")
def capability() -> Response:
    """Show a capability to anyone who knows its auth_ref."""
    hub = hub_context()
    no_body()
    row = hub.reader.index.token(query(CapabilityQuery).auth_ref)
    if row is None:
        raise Missing("the hub knows no such capability; POST it to /tooling/authorize")
    token = CapToken.decode(row.token)
    return answer(
        CapabilityResponse(
            token=token,
            issued_at=row.issued_at,
            expires_at=min(token.expires_at(row.issued_at), UINT_MAX),
            hub_ts=hub.sequencer.hub_ts(),
            server_version=SERVER_VERSION,
        )
    )


@bp.get("/tooling/status")
def status() -> Response:
    hub = hub_context()
    no_body()
    settings, (identity, identity_sig) = hub.settings, hub.identity.signed()
    hub_ts, head = hub.sequencer.hub_ts(), head_of(hub.reader)
    profiles = tuple(
        ProfileStatus(profile_id=profile.profile_id(), profile=profile, epoch=profile.epoch(hub_ts))
        for profile in settings.profiles
    )
    return answer(
        StatusResponse(
            server_version=SERVER_VERSION,
            role="standalone",
            hub_id=identity.hub_id,
            hub_pk=identity.current.hub_pk,
            hub_keys=identity.hub_keys,
            profile_ids=tuple(profile.profile_id for profile in profiles),
            profiles=profiles,
            epoch=profiles[0].epoch,
            hub_ts=hub_ts,
            admission=settings.admission,
            reads=settings.reads,
            stream_scoping="enforced" if settings.gated else "off",
            features=FEATURES,
            limits=LimitRegistry(**asdict(settings.limits)),
            uptime_sec=int(time.monotonic() - hub.started),
            labels=hub.reader.index.count_labels(),
            peaks_count=head.peaks_count,
            last_stream_seq=head.last_stream_seq,
            last_hub_ts=head.last_hub_ts,
            anchoring=identity.anchoring,
            identity_sig=identity_sig,
            last_label=head.latest.label if head.latest else None,
            last_mmr_root=head.root,
        )
    )


def _verify_limits(hub: HubContext, token: CapToken) -> None:
    """Raise for a capability above the limit registry or too large to log (spec 14.1)."""
    limits, rate = hub.settings.limits, token.allow.rate
    if rate is not None and (
        rate.per_sec > limits.max_cap_rate_per_sec or rate.burst > limits.max_cap_rate_burst
    ):
        raise Rejected(Failure.CAP_INVALID, "the rate is above what this hub allows")
    record = ControlRecord(kind=AUTHORIZE, body=token.encode())
    if len(record.encode()) > limits.max_hdr_bytes:
        raise RequestRefused(
            Code.LIMIT,
            "the capability is larger than this hub accepts",
            {"max_allowed": limits.max_hdr_bytes},
        )


def _verify_policy(hub: HubContext, token: CapToken) -> None:
    """Raise where a principal's key would get a stream that the policy does not let it write."""
    principal = hub.settings.policy.by_key(token.subject_pk)
    if principal is None:
        return
    for stream_id in token.allow.stream_ids:
        stream = hub.names.known(stream_id)
        if stream is None or not principal.may_write(stream.name):
            raise RequestRefused(
                Code.FORBIDDEN,
                f"{principal.name} must not write stream {stream_id.hex()}",
                {"field": "stream_ids", "actual": stream_id},
            )
