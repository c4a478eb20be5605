"""Authorisation, status and the registry of streams (spec 6.1, 12)."""

from __future__ import annotations

import time
from dataclasses import asdict
from typing import Final

from flask import Blueprint, Response

from hub.api.edge import SERVER_VERSION, Edge, edge
from hub.api.heads import head_of
from hub.api.negotiation import answer, no_body, small_body
from hub.api.query import query
from hub.api.refused import Refused
from hub.storage.reader import Missing
from veen.captoken import CapToken
from veen.cbor import UINT_MAX
from veen.control import AUTHORIZE, ControlRecord, control_label
from veen.errors import Code, Failure, Malformed, Rejected
from veen.tooling import (
    AuthorizeResponse,
    CapabilityQuery,
    CapabilityResponse,
    LimitRegistry,
    ProfileStatus,
    StatusResponse,
)

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

bp = Blueprint("tooling", __name__)


@bp.post("/tooling/authorize")
def authorize() -> Response:
    hub, body = edge(), small_body()
    try:
        token = body.parse(CapToken)
    except Malformed as error:
        raise Rejected(Failure.CAP_INVALID, str(error)) from error
    _refuse_unlimited(hub, token)
    _refuse_ungranted(hub, token)
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
    """Whoever can name a capability may know what the hub knows of it."""
    hub = edge()
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
    hub = edge()
    no_body()
    settings, (identity, identity_sig) = hub.settings, hub.identity.signed()
    hub_ts, head = hub.sequencer.hub_ts(), head_of(hub.reader)
    profiles = tuple(
        ProfileStatus(profile_id=one.profile_id(), profile=one, epoch=one.epoch(hub_ts))
        for one in settings.profiles
    )
    return answer(
        StatusResponse(
            server_version=SERVER_VERSION,
            role="standalone",
            hub_id=identity.hub_id,
            hub_pk=identity.current.hub_pk,
            hub_keys=identity.hub_keys,
            profile_ids=tuple(one.profile_id for one in profiles),
            profiles=profiles,
            epoch=profiles[0].epoch,
            hub_ts=hub_ts,
            admission=settings.admission,
            reads=settings.reads,
            stream_scoping="enforced" if settings.gated else "off",
            features=FEATURES,
            limits=LimitRegistry(**asdict(settings.limits)),
            uptime_sec=int(time.monotonic() - hub.started),
            labels=head.labels,
            peaks_count=head.peaks_count,
            last_stream_seq=head.last_stream_seq,
            last_hub_ts=head.last_hub_ts,
            anchoring=identity.anchoring,
            identity_sig=identity_sig,
            last_label=head.latest.label if head.latest else None,
            last_mmr_root=head.root,
        )
    )


def _refuse_unlimited(hub: Edge, token: CapToken) -> None:
    """A capability above the limit registry, or too large for the control log (spec 14.1)."""
    limits, rate = hub.settings.limits, token.allow.rate
    if rate is not None and (
        rate.per_sec > limits.max_cap_rate_per_sec or rate.burst > limits.max_cap_rate_burst
    ):
        raise Rejected(Failure.CAP_INVALID, "the rate is above what this hub allows")
    record = ControlRecord(kind=AUTHORIZE, body=token.encode())
    if len(record.encode()) > limits.max_hdr_bytes:
        raise Refused(
            Code.LIMIT, "the capability is too large", {"max_allowed": limits.max_hdr_bytes}
        )


def _refuse_ungranted(hub: Edge, token: CapToken) -> None:
    """A principal's own key gets a capability only for what its policy lets it write."""
    principal = hub.settings.policy.by_key(token.subject_pk)
    if principal is None:
        return
    for stream_id in token.allow.stream_ids:
        stream = hub.names.known(stream_id)
        if stream is None or not principal.may_write(stream.name):
            raise Refused(
                Code.FORBIDDEN,
                f"{principal.name} must not write stream {stream_id.hex()}",
                {"field": "stream_ids", "actual": stream_id},
            )
