"""Each stage of admission by itself: the bound, the message just beyond it, and the order (8.2)."""

from __future__ import annotations

import struct
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from hub.admission import (
    Gate,
    VerifiedMsg,
    authorise,
    in_sequence,
    prefilter,
    signed,
    structural,
)
from hub.registry import Routed
from hub.sequencer import ipc
from veen.captoken import Rate, TokenBucket, issue
from veen.crypto import SigningKey
from veen.digest import h
from veen.errors import Failure, Malformed, Rejected, WrongSize, WrongVersion
from veen.invariants import ClientCursor, Grant
from veen.label import DEFAULT_PROFILE, Profile
from veen.limits import Limits
from veen.log.entry import StreamRecord
from veen.msg import Msg
from veen.wire import cbor

CLIENT, ISSUER, OTHER = (SigningKey(h(name)) for name in (b"client", b"issuer", b"other"))
LABEL = h(b"label")
STREAM = StreamRecord(name="record/a", profile=DEFAULT_PROFILE)
PADDED = Profile(pad_block=64)
PROFILES = {profile.profile_id(): profile for profile in (DEFAULT_PROFILE, PADDED)}
LIMITS = Limits(max_msg_bytes=1_000, max_hdr_bytes=20, max_body_bytes=30)
NOON = 1_700_000_000
ISSUED_AT, TTL = NOON - 60, 100


def ciphertext(header: int = 0, body: int = 0, padding: bytes = b"") -> bytes:
    """A frame that announces a header and a body of these sizes and has them."""
    return struct.pack(">32sII", b"enc", header, body) + b"x" * (header + body) + padding


def a_msg(**changes: Any) -> Msg:
    frame = changes.get("ciphertext", ciphertext())
    plain = Msg(
        profile_id=DEFAULT_PROFILE.profile_id(), label=LABEL, client_id=CLIENT.public,
        client_seq=1, prev_ack=0, auth_ref=None, ct_hash=h(frame), ciphertext=frame,
    )  # fmt: skip
    return replace(plain, **changes).signed(CLIENT)


def verified(**changes: Any) -> VerifiedMsg:
    return VerifiedMsg.of(a_msg(**changes))


def refusal(stage: Callable[[], Any]) -> Rejected:
    with pytest.raises(Rejected) as caught:
        stage()
    return caught.value


def test_a_message_of_just_the_allowed_size_passes_the_prefilter() -> None:
    assert prefilter(bytes(1_000), LIMITS) == bytes(1_000)


def test_a_message_one_byte_too_large_is_refused_before_it_is_parsed() -> None:
    assert refusal(lambda: prefilter(bytes(1_001), LIMITS)).failure is Failure.SIZE_PREFILTER


def test_a_message_within_every_bound_is_decoded() -> None:
    msg = a_msg(ciphertext=ciphertext(20, 30))
    assert structural(msg.encode(), PROFILES, LIMITS) == msg


def test_a_padded_message_of_a_padded_profile_is_decoded() -> None:
    msg = a_msg(profile_id=PADDED.profile_id(), ciphertext=ciphertext(padding=bytes(24)))
    assert structural(msg.encode(), PROFILES, LIMITS) == msg


def with_field(index: int, value: Any) -> bytes:
    fields = cbor.decode(a_msg().encode())
    assert isinstance(fields, list)
    fields[index] = value
    return cbor.encode(fields)


@pytest.mark.parametrize(
    ("raw", "failure", "cause"),
    [
        (b"\xff", Failure.CBOR_INVALID, Malformed),
        (with_field(2, bytes(31)), Failure.FIELD_SIZE, WrongSize),
        (a_msg(ciphertext=bytes(39)).encode(), Failure.FIELD_SIZE, WrongSize),
        (a_msg(ciphertext=ciphertext(21)).encode(), Failure.FIELD_SIZE, WrongSize),
        (a_msg(ciphertext=ciphertext(0, 31)).encode(), Failure.FIELD_SIZE, WrongSize),
        (with_field(0, 2), Failure.VERSION, WrongVersion),
        (a_msg(profile_id=h(b"unknown")).encode(), Failure.PROFILE, None),
        (a_msg(ciphertext=ciphertext(padding=b"\x01")).encode(), Failure.PADDING, Malformed),
        (a_msg(profile_id=PADDED.profile_id()).encode(), Failure.PADDING, Malformed),
        (a_msg(ct_hash=h(b"other")).encode(), Failure.CT_HASH, None),
    ],
    ids=[
        "bytes", "label", "frame", "header", "body", "version", "profile", "padding", "unpadded",
        "hash",
    ],
)  # fmt: skip
def test_a_malformed_message_is_refused_with_its_row_of_the_table(
    raw: bytes, failure: Failure, cause: type[Exception] | None
) -> None:
    error = refusal(lambda: structural(raw, PROFILES, LIMITS))
    assert error.failure is failure
    assert type(error.__cause__) is (cause or type(None))
    assert str(error.__cause__ or "") in error.message


def test_a_size_inside_the_ciphertext_ranks_before_the_version() -> None:
    raw = with_field(0, 2)
    assert refusal(lambda: structural(raw, PROFILES, LIMITS)).failure is Failure.VERSION
    fields = cbor.decode(raw)
    assert isinstance(fields, list)
    fields[8] = ciphertext(21)
    oversized = cbor.encode(fields)
    assert refusal(lambda: structural(oversized, PROFILES, LIMITS)).failure is Failure.FIELD_SIZE


@pytest.mark.parametrize("auth_ref", [None, h(b"capability")])
def test_a_signed_message_is_handed_on_with_all_its_fields(auth_ref: bytes | None) -> None:
    msg = a_msg(client_seq=7, prev_ack=5, auth_ref=auth_ref)
    result = signed(msg)
    assert result._asdict() == {
        "raw": msg.encode(),
        "label": LABEL,
        "profile_id": DEFAULT_PROFILE.profile_id(),
        "client_id": CLIENT.public,
        "client_seq": 7,
        "prev_ack": 5,
        "auth_ref": auth_ref,
        "leaf_hash": msg.leaf_hash(),
    }


def test_a_message_signed_by_another_key_is_refused() -> None:
    forged = a_msg().signed(OTHER)
    assert refusal(lambda: signed(forged)).failure is Failure.SIG_INVALID


def test_a_message_changed_after_it_was_signed_is_refused() -> None:
    forged = replace(a_msg(), client_seq=2)
    assert refusal(lambda: signed(forged)).failure is Failure.SIG_INVALID


@pytest.mark.parametrize("auth_ref", [None, h(b"capability"), bytes(32)])
def test_verified_messages_in_a_row_are_unpacked_as_they_were_packed(
    auth_ref: bytes | None,
) -> None:
    first = verified(client_seq=2**40, prev_ack=2**33, auth_ref=auth_ref)
    second = verified(ciphertext=ciphertext(3, 4))
    assert ipc.unpack_submit(ipc.pack_submit([first, second])) == [first, second]


OPEN = Gate(required=False, issuers=frozenset({ISSUER.public}))
CLOSED = replace(OPEN, required=True)
ROUTED = Routed(STREAM, STREAM.stream_id(), DEFAULT_PROFILE.profile_id(), 0, in_window=True)


def a_grant(
    *, issuer: SigningKey = ISSUER, subject: SigningKey = CLIENT, stream: StreamRecord = STREAM,
    rate: Rate | None = None, tokens: int = 5,
) -> Grant:  # fmt: skip
    token = issue(
        issuer, subject_pk=subject.public, stream_ids=[stream.stream_id()], ttl=TTL, rate=rate
    )
    return Grant(token, ISSUED_AT, TokenBucket(tokens, NOON))


def with_capability() -> VerifiedMsg:
    return verified(auth_ref=h(b"capability"))


def test_without_a_capability_a_hub_that_requires_none_admits() -> None:
    assert authorise(verified(), None, ROUTED, OPEN, NOON) is None


@pytest.mark.parametrize(
    ("message", "gate"),
    [(verified(), CLOSED), (with_capability(), CLOSED), (with_capability(), OPEN)],
    ids=["none", "unknown", "unknown to an open hub"],
)
def test_a_capability_that_is_not_known_is_refused(message: VerifiedMsg, gate: Gate) -> None:
    error = refusal(lambda: authorise(message, None, ROUTED, gate, NOON))
    assert error.failure is Failure.CAP_MISSING


@pytest.mark.parametrize("gate", [OPEN, CLOSED], ids=["open", "closed"])
@pytest.mark.parametrize(
    ("changes", "failure"),
    [
        ({"issuer": OTHER}, Failure.CAP_INVALID),
        ({"subject": OTHER}, Failure.AUTH_REF),
        ({"stream": StreamRecord(name="record/b", profile=DEFAULT_PROFILE)}, Failure.AUTH_REF),
    ],
    ids=["issuer", "subject", "stream"],
)
def test_a_capability_of_another_issuer_client_or_stream_is_refused(
    changes: dict[str, Any], failure: Failure, gate: Gate
) -> None:
    grant = a_grant(**changes)
    error = refusal(lambda: authorise(with_capability(), grant, ROUTED, gate, NOON))
    assert error.failure is failure


def test_a_capability_without_a_rate_admits_and_leaves_no_bucket() -> None:
    assert authorise(with_capability(), a_grant(), ROUTED, CLOSED, NOON) is None


def test_a_label_of_no_stream_is_admitted_only_where_no_capability_is_required() -> None:
    message = with_capability()
    assert authorise(message, a_grant(), None, OPEN, NOON) is None
    error = refusal(lambda: authorise(message, a_grant(), None, CLOSED, NOON))
    assert error.failure is Failure.AUTH_REF


def test_a_capability_is_valid_up_to_its_last_second() -> None:
    message, last = with_capability(), ISSUED_AT + TTL
    assert authorise(message, a_grant(), ROUTED, CLOSED, last) is None
    error = refusal(lambda: authorise(message, a_grant(), ROUTED, CLOSED, last + 1))
    assert error.failure is Failure.CAP_TTL


def test_the_bucket_is_refilled_to_the_time_of_the_commit_and_debited() -> None:
    grant = a_grant(rate=Rate(per_sec=2, burst=9), tokens=3)
    bucket = authorise(with_capability(), grant, ROUTED, CLOSED, NOON + 2)
    assert bucket == TokenBucket(3 + 2 * 2 - 1, NOON + 2)


@pytest.mark.parametrize(("per_sec", "wait"), [(2, 1), (0, None)])
def test_an_empty_bucket_refuses_and_says_when_to_try_again(per_sec: int, wait: int | None) -> None:
    grant = a_grant(rate=Rate(per_sec=per_sec, burst=9), tokens=0)
    error = refusal(lambda: authorise(with_capability(), grant, ROUTED, CLOSED, NOON))
    assert (error.failure, error.retry_after) == (Failure.CAP_RATE, wait)


CURSOR = ClientCursor(client_seq=4, prev_ack=10)
HEAD = 20


def place(client_seq: int = 5, prev_ack: int = 15, routed: Routed | None = ROUTED) -> None:
    """Place a message of a client whose last one is CURSOR in a label that ends at HEAD."""
    message = verified(client_seq=client_seq, prev_ack=prev_ack)
    in_sequence(message, CURSOR, HEAD, routed, lambda seq: 100 + seq)


@pytest.mark.parametrize("prev_ack", [10, 20])
@pytest.mark.parametrize("routed", [ROUTED, None], ids=["stream", "no stream"])
def test_the_next_message_is_in_sequence(prev_ack: int, routed: Routed | None) -> None:
    place(prev_ack=prev_ack, routed=routed)


@pytest.mark.parametrize("prev_ack", [9, 21])
@pytest.mark.parametrize(
    ("client_seq", "stream_seq"), [(5, None), (4, 104), (1, 101), (0, None), (6, None)]
)
def test_an_acknowledgement_outside_the_log_ranks_first_and_finds_a_duplicate(
    prev_ack: int, client_seq: int, stream_seq: int | None
) -> None:
    error = refusal(lambda: place(client_seq, prev_ack))
    assert (error.failure, error.stream_seq) == (Failure.PREV_ACK, stream_seq)


@pytest.mark.parametrize("client_seq", [1, 4])
def test_a_replayed_message_is_refused_with_its_place_in_the_log(client_seq: int) -> None:
    error = refusal(lambda: place(client_seq))
    assert (error.failure, error.stream_seq) == (Failure.DUPLICATE, 100 + client_seq)


@pytest.mark.parametrize("client_seq", [0, 6])
def test_a_message_that_leaves_a_hole_is_refused(client_seq: int) -> None:
    assert refusal(lambda: place(client_seq)).failure is Failure.CLIENT_SEQ


def test_a_message_of_a_closed_epoch_is_refused_after_all_else() -> None:
    closed = ROUTED._replace(in_window=False)
    assert refusal(lambda: place(routed=closed)).failure is Failure.EPOCH
    assert refusal(lambda: place(4, routed=closed)).failure is Failure.DUPLICATE
