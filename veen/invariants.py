"""The invariants of an accepted (MSG, RECEIPT) pair, in one verifier for all callers (spec 7).

A hub checking its own log, a client, a Spark partition and an importer all pass pairs to
``verify_pair``. A caller leaves out of the rules what it does not have: without a capability I7
cannot be checked, and the report of its invariants says so.

I5 concerns the encrypted header and is checked where it is opened (``veen.payload``). I10 is part
of decoding: an object of these types has a single encoding. I13 is that this function, like
admission, depends on its arguments alone.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from veen.captoken import CapToken, TokenBucket
from veen.errors import Untrusted, WrongSize
from veen.hub_identity import HubIdentity
from veen.label import EpochLabels, Profile
from veen.limits import Limits
from veen.mmr import Peaks
from veen.msg import Msg
from veen.payload import check_ciphertext_sizes
from veen.receipt import Receipt


class Violation(Untrusted):
    """A pair that breaks an invariant or has an invalid signature ("SIG")."""

    def __init__(self, invariant: str, stream_seq: int, reason: str) -> None:
        super().__init__(f"{invariant} at stream_seq {stream_seq}: {reason}")
        self.invariant = invariant
        self.stream_seq = stream_seq
        self.reason = reason


@dataclass(frozen=True, slots=True, kw_only=True)
class Rules:
    """What all pairs of a label are verified with; ``stream`` is None if it is unknown."""

    hub: HubIdentity
    profiles: Mapping[bytes, Profile]
    limits: Limits
    stream: EpochLabels | None


@dataclass(frozen=True, slots=True)
class ClientCursor:
    """The last client_seq and prev_ack of one client in one label."""

    client_seq: int
    prev_ack: int


NEW_CLIENT = ClientCursor(0, 0)


@dataclass(frozen=True, slots=True)
class Grant:
    """A capability with its issue time and its bucket.

    The caller has verified the token with ``verify_chain``.
    """

    token: CapToken
    issued_at: int
    bucket: TokenBucket


@dataclass(frozen=True, slots=True, kw_only=True)
class Before:
    """The state of a verifier before a pair.

    ``client`` is None if the client's history is before the range that is read, and NEW_CLIENT
    if it has none. ``grant`` is None if the capability is unknown.
    """

    peaks: Peaks
    client: ClientCursor | None
    grant: Grant | None


@dataclass(frozen=True, slots=True)
class After:
    """The state of a verifier after a pair."""

    peaks: Peaks
    client: ClientCursor
    grant: Grant | None


def verify_pair(msg: Msg, receipt: Receipt, before: Before, rules: Rules) -> After:
    """Check I1 - I4 and I6 - I12 and both signatures; raise the first violation."""
    after = verify_place(msg, receipt, before, rules)
    verify_signatures(msg, receipt, rules)
    return after


def verify_place(msg: Msg, receipt: Receipt, before: Before, rules: Rules) -> After:
    """Check all but the signatures, for a caller that verifies those in parallel."""
    seq = receipt.stream_seq
    _verify_sizes(msg, seq, rules)
    _verify_leaf(msg, receipt, rules)
    peaks = _verify_root(receipt, before.peaks)
    client = _verify_client(msg, seq, before)
    grant = _verify_grant(msg, receipt, before.grant, rules)
    _verify_epoch(msg, receipt, rules)
    return After(peaks, client, grant)


def _verify_sizes(msg: Msg, seq: int, rules: Rules) -> None:
    if len(msg.encode()) > rules.limits.max_msg_bytes:
        raise Violation("I11", seq, f"the message is too large: {len(msg.encode())} bytes")
    try:
        check_ciphertext_sizes(msg.ciphertext, rules.limits)
    except WrongSize as error:
        raise Violation("I11", seq, str(error)) from error


def _verify_leaf(msg: Msg, receipt: Receipt, rules: Rules) -> None:
    seq = receipt.stream_seq
    if not msg.ct_hash_matches():
        raise Violation("I1", seq, "ct_hash is not the hash of the ciphertext")
    if msg.label != receipt.label:
        raise Violation("I2", seq, "message and receipt have different labels")
    if msg.leaf_hash() != receipt.leaf_hash:
        raise Violation("I2", seq, "leaf_hash is not that of the message")
    if msg.profile_id not in rules.profiles:
        raise Violation("I4", seq, f"profile {msg.profile_id.hex()} is not supported")


def _verify_root(receipt: Receipt, peaks: Peaks) -> Peaks:
    seq = receipt.stream_seq
    if seq != peaks.size + 1:
        raise Violation("I3", seq, f"expected stream_seq {peaks.size + 1}, got {seq}")
    after = peaks.append(receipt.leaf_hash)
    if after.root() != receipt.mmr_root:
        raise Violation("I3", seq, "mmr_root is not the root after appending leaf_hash")
    return after


def _verify_client(msg: Msg, seq: int, before: Before) -> ClientCursor:
    if msg.prev_ack >= seq:
        raise Violation("I6", seq, f"prev_ack {msg.prev_ack} is not before this message")
    if msg.client_seq == 0:
        raise Violation("I9", seq, "expected client_seq from 1, got 0")
    if before.client is not None:
        _verify_follows(msg, seq, before.client)
    return ClientCursor(msg.client_seq, msg.prev_ack)


def _verify_follows(msg: Msg, seq: int, last: ClientCursor) -> None:
    if msg.client_seq <= last.client_seq:
        raise Violation("I8", seq, f"client_seq {msg.client_seq} was used before")
    if msg.client_seq != last.client_seq + 1:
        raise Violation(
            "I9", seq, f"expected client_seq {last.client_seq + 1}, got {msg.client_seq}"
        )
    if msg.prev_ack < last.prev_ack:
        raise Violation("I6", seq, f"prev_ack went back from {last.prev_ack} to {msg.prev_ack}")


def _verify_grant(msg: Msg, receipt: Receipt, grant: Grant | None, rules: Rules) -> Grant | None:
    if grant is None:
        return None
    seq, token = receipt.stream_seq, grant.token
    if msg.auth_ref != token.auth_ref() or msg.client_id != token.subject_pk:
        raise Violation("I7", seq, "the capability was issued to another client")
    if rules.stream is not None and not token.allows_stream(rules.stream.stream_id):
        raise Violation("I7", seq, "the capability does not cover this stream")
    if receipt.hub_ts > token.expires_at(grant.issued_at):
        raise Violation("I7", seq, f"the capability expired at {token.expires_at(grant.issued_at)}")
    if token.allow.rate is None:
        return grant
    bucket = grant.bucket.refilled(token.allow.rate, receipt.hub_ts).debited()
    if bucket is None:
        raise Violation("I7", seq, "the rate is above that of the capability")
    return Grant(token, grant.issued_at, bucket)


def _verify_epoch(msg: Msg, receipt: Receipt, rules: Rules) -> None:
    if rules.stream is None:
        return
    if msg.profile_id != rules.stream.profile.profile_id():
        raise Violation("I4", receipt.stream_seq, "the profile is not that of the stream")
    if msg.label not in rules.stream.accepted(receipt.hub_ts, rules.limits.max_epoch_skew_sec):
        raise Violation(
            "I12", receipt.stream_seq, "the label does not belong to an epoch at hub_ts"
        )


def verify_signatures(msg: Msg, receipt: Receipt, rules: Rules) -> None:
    try:
        rules.hub.verify_receipt(receipt)
    except Untrusted as error:
        raise Violation("SIG", receipt.stream_seq, str(error)) from error
    if not msg.signature_is_valid():
        raise Violation("SIG", receipt.stream_seq, "the message is not signed by its client_id")
