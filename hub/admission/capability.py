"""Stage 3 of admission, its second part: what the client's capability allows now (spec 6)."""

from __future__ import annotations

from collections.abc import Container
from dataclasses import dataclass

from hub.admission.verified import Verified
from hub.registry import Routed
from veen.errors import Failure, Rejected
from veen.invariants import Grant
from veen.rate import Bucket


@dataclass(frozen=True, slots=True)
class Gate:
    """The policy of admission: whether capabilities are required, and whose count."""

    required: bool
    issuers: Container[bytes]


@dataclass(frozen=True, slots=True)
class Authorised:
    """A message that may be committed, with the bucket to be debited when it is."""

    verified: Verified
    bucket: Bucket | None


def authorise(
    verified: Verified, grant: Grant | None, routed: Routed | None, gate: Gate, hub_ts: int
) -> Authorised:
    """``grant`` is what the hub knows under the message's auth_ref, if anything."""
    if verified.auth_ref is None and not gate.required:
        return Authorised(verified, None)
    if grant is None:
        raise Rejected(Failure.CAP_MISSING, "no capability is known under this auth_ref")
    _refuse_foreign(verified, grant, routed, gate)
    token = grant.token
    if hub_ts > token.expires_at(grant.issued_at):
        raise Rejected(Failure.CAP_TTL, f"expired at {token.expires_at(grant.issued_at)}")
    return Authorised(verified, _debit(grant, hub_ts))


def _refuse_foreign(verified: Verified, grant: Grant, routed: Routed | None, gate: Gate) -> None:
    token = grant.token
    if token.issuer_pk not in gate.issuers:
        raise Rejected(Failure.CAP_INVALID, f"issuer {token.issuer_pk.hex()} is not trusted here")
    if token.subject_pk != verified.client_id:
        raise Rejected(Failure.AUTH_REF, "the capability is for another client_id")
    if routed is None:
        if gate.required:
            raise Rejected(Failure.AUTH_REF, "the label is of no stream known to this hub")
    elif not token.allows_stream(routed.stream_id):
        raise Rejected(Failure.AUTH_REF, f"the capability is not for {routed.stream.name}")


def _debit(grant: Grant, hub_ts: int) -> Bucket | None:
    rate = grant.token.allow.rate
    if rate is None:
        return None
    refilled = grant.bucket.refilled(rate, hub_ts)
    left = refilled.debited()
    if left is None:
        wait = refilled.seconds_until_token(rate)
        raise Rejected(Failure.CAP_RATE, "faster than the capability allows", retry_after=wait)
    return left
