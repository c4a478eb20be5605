"""Admission of a message: its stages in the order of the specification (spec 8.1, 8.2, 14.2).

1. ``prefilter``: the size, before anything is parsed.
2. ``structural``: the bytes are decoded to a ``Msg``.
3. ``signed`` and ``authorise``: the client's signature, then its capability (spec 6).
4. ``in_sequence``: the place of the message in its label (spec 7).

HTTP workers run everything up to the signature; the sequencer runs the rest on a ``VerifiedMsg``.
Each stage raises ``Rejected`` with the failure of the specification's table.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Mapping
from dataclasses import dataclass
from typing import NamedTuple

from hub.registry import Routed
from veen.captoken import Rate, TokenBucket
from veen.errors import Failure, Malformed, Rejected, WrongSize, WrongVersion
from veen.invariants import ClientCursor, Grant
from veen.label import Profile
from veen.limits import Limits
from veen.msg import Msg
from veen.payload import check_ciphertext_padding, check_ciphertext_sizes


def prefilter(raw: bytes, limits: Limits) -> bytes:
    if len(raw) > limits.max_msg_bytes:
        raise Rejected(
            Failure.SIZE_PREFILTER,
            f"message too large: expected at most {limits.max_msg_bytes} bytes, got {len(raw)}",
        )
    return raw


def structural(raw: bytes, profiles: Mapping[bytes, Profile], limits: Limits) -> Msg:
    """Checks run in the order of the specification's table; the first failure wins.

    The table does not name the padding, which is checked once the profile is known.
    """
    msg = _decode(raw, limits)
    profile = profiles.get(msg.profile_id)
    if profile is None:
        raise Rejected(Failure.PROFILE, f"profile {msg.profile_id.hex()} is not configured here")
    try:
        check_ciphertext_padding(msg.ciphertext, profile.pad_block)
    except Malformed as error:
        raise Rejected(Failure.PADDING, str(error)) from error
    if not msg.ct_hash_matches():
        raise Rejected(Failure.CT_HASH, "ct_hash is not the hash of the ciphertext")
    return msg


def _decode(raw: bytes, limits: Limits) -> Msg:
    """The message, once the sizes inside its ciphertext are allowed, too."""
    try:
        msg = Msg.decode(raw)
        check_ciphertext_sizes(msg.ciphertext, limits)
    except WrongSize as error:
        raise Rejected(Failure.FIELD_SIZE, str(error)) from error
    except WrongVersion as error:
        raise _wrong_version(raw, limits, error) from error
    except Malformed as error:
        raise Rejected(Failure.CBOR_INVALID, str(error)) from error
    return msg


def _wrong_version(raw: bytes, limits: Limits, error: WrongVersion) -> Rejected:
    """The refusal of a version; all sizes come before it, those inside the ciphertext too."""
    try:
        check_ciphertext_sizes(Msg.read(raw, 0)[0].ciphertext, limits)
    except WrongSize as wrong_size:
        return Rejected(Failure.FIELD_SIZE, str(wrong_size))
    return Rejected(Failure.VERSION, str(error))


class VerifiedMsg(NamedTuple):
    """A message whose structure and signature are valid, as a worker passes it to the sequencer."""

    raw: bytes
    label: bytes
    profile_id: bytes
    client_id: bytes
    client_seq: int
    prev_ack: int
    auth_ref: bytes | None
    leaf_hash: bytes

    @classmethod
    def of(cls, msg: Msg) -> VerifiedMsg:
        """Build it from a message whose structure and signature were checked."""
        return cls(
            msg.encode(),
            msg.label,
            msg.profile_id,
            msg.client_id,
            msg.client_seq,
            msg.prev_ack,
            msg.auth_ref,
            msg.leaf_hash(),
        )


def signed(msg: Msg) -> VerifiedMsg:
    if not msg.signature_is_valid():
        raise Rejected(Failure.SIG_INVALID, "sig is not a signature of client_id over this message")
    return VerifiedMsg.of(msg)


@dataclass(frozen=True, slots=True)
class Gate:
    """The admission policy: whether a capability is required, and which issuers are trusted."""

    required: bool
    issuers: Container[bytes]


def authorise(
    verified: VerifiedMsg, grant: Grant | None, routed: Routed | None, gate: Gate, hub_ts: int
) -> TokenBucket | None:
    """The bucket as it is after the commit; None without a rate.

    ``grant`` is what the hub knows under the message's auth_ref, if anything.
    """
    if verified.auth_ref is None and not gate.required:
        return None
    if grant is None:
        raise Rejected(
            Failure.CAP_MISSING,
            "no capability is registered under this auth_ref; authorize it first",
        )
    _verify_grant(verified, grant, routed, gate)
    token = grant.token
    if hub_ts > token.expires_at(grant.issued_at):
        raise Rejected(
            Failure.CAP_TTL, f"the capability expired at {token.expires_at(grant.issued_at)}"
        )
    return _debit(grant, token.allow.rate, hub_ts) if token.allow.rate else None


def _verify_grant(verified: VerifiedMsg, grant: Grant, routed: Routed | None, gate: Gate) -> None:
    token = grant.token
    if token.issuer_pk not in gate.issuers:
        raise Rejected(Failure.CAP_INVALID, f"issuer {token.issuer_pk.hex()} is not trusted here")
    if token.subject_pk != verified.client_id:
        raise Rejected(Failure.AUTH_REF, "the capability was issued to another client_id")
    if routed is None:
        if gate.required:
            raise Rejected(Failure.AUTH_REF, "the label belongs to no stream of this hub")
    elif not token.allows_stream(routed.stream_id):
        raise Rejected(Failure.AUTH_REF, f"the capability does not cover {routed.stream.name}")


def _debit(grant: Grant, rate: Rate, hub_ts: int) -> TokenBucket:
    refilled = grant.bucket.refilled(rate, hub_ts)
    left = refilled.debited()
    if left is None:
        wait = refilled.seconds_until_token(rate)
        raise Rejected(
            Failure.CAP_RATE, "the rate is above that of the capability", retry_after=wait
        )
    return left


def in_sequence(
    verified: VerifiedMsg,
    cursor: ClientCursor,
    head_seq: int,
    routed: Routed | None,
    seq_of: Callable[[int], int | None],
) -> None:
    """Raise Rejected for a message out of order.

    ``seq_of`` gives the stream_seq of an earlier client_seq of the same client.
    """
    known = verified.client_seq <= cursor.client_seq and verified.client_seq > 0
    if verified.prev_ack > head_seq or verified.prev_ack < cursor.prev_ack:
        raise Rejected(
            Failure.PREV_ACK,
            f"prev_ack: expected {cursor.prev_ack} to {head_seq}, got {verified.prev_ack}",
            stream_seq=seq_of(verified.client_seq) if known else None,
        )
    if known:
        raise Rejected(
            Failure.DUPLICATE,
            f"client_seq {verified.client_seq} is in the log already",
            stream_seq=seq_of(verified.client_seq),
        )
    if verified.client_seq != cursor.client_seq + 1:
        raise Rejected(
            Failure.CLIENT_SEQ,
            f"client_seq: expected {cursor.client_seq + 1}, got {verified.client_seq}",
        )
    if routed is not None and not routed.in_window:
        raise Rejected(Failure.EPOCH, f"epoch {routed.epoch} is outside the accepted window")
