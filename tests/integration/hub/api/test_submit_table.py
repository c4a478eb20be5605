"""Every row of the admission table over HTTP: code, stage, detail_enum and status (spec 8.2).

ATT_ROOT cannot arise at the hub, which never sees payload_hdr, and PREFILTER_REJECT has no
policy that would give rise to it: neither has a row here.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from veen.captoken import Rate, issue
from veen.digest import h
from veen.errors import Failure
from veen.payload import Ciphertext
from veen.receipt import Receipt
from veen.wire import cbor
from veen.wire.api import ErrorEnvelope

NOON = 1_900_000_000
MSG_FIELDS = 10


@pytest.fixture(scope="module")
def alice(hub: Any) -> Any:
    """A client with three messages in record/a, the last two of which acknowledge the first."""
    writer = hub.writer("alice", "record/a")
    for seq, ack in ((1, 0), (2, 1), (3, 1)):
        assert writer.submit(writer.msg(seq, prev_ack=ack)).status_code == 200
    return writer


def too_large(alice: Any) -> bytes:
    result: bytes = alice.msg(4, b"x" * 4096).encode()
    return result


def overlong_integer(alice: Any) -> bytes:
    raw = alice.msg(4).encode()
    result: bytes = raw[:1] + b"\x18\x01" + raw[2:]
    return result


def short_label(alice: Any) -> bytes:
    return with_field(alice.msg(4).encode(), 2, bytes(31))


def other_version(alice: Any) -> bytes:
    return with_field(alice.msg(4).encode(), 0, 2)


def other_profile(alice: Any) -> bytes:
    result: bytes = alice.msg(4, profile_id=bytes(32)).encode()
    return result


def h07_padding_that_is_not_zero(alice: Any) -> bytes:
    whole = Ciphertext(bytes(32), b"header", b"body").encode(0)
    result: bytes = alice.msg(4, ciphertext=whole + b"\x00\x01").encode()
    return result


def h07_padding_of_another_length(alice: Any) -> bytes:
    (padded,) = (profile for profile in alice.hub.settings.profiles if profile.pad_block)
    result: bytes = alice.msg(4, profile_id=padded.profile_id()).encode()
    return result


def wrong_ct_hash(alice: Any) -> bytes:
    result: bytes = alice.msg(4, ct_hash=bytes(32)).encode()
    return result


def foreign_signature(alice: Any) -> bytes:
    result: bytes = replace(alice.msg(4), sig=bytes(64)).encode()
    return result


def unknown_capability(alice: Any) -> bytes:
    result: bytes = alice.msg(4, auth_ref=h(b"never authorised")).encode()
    return result


def no_capability(alice: Any) -> bytes:
    result: bytes = alice.msg(4, auth_ref=None).encode()
    return result


def foreign_capability(alice: Any) -> bytes:
    hub = alice.hub
    result: bytes = alice.msg(4, auth_ref=hub.writer("bob", "record/a").auth_ref).encode()
    return result


def other_stream(alice: Any) -> bytes:
    result: bytes = alice.msg(1, label=alice.hub.label("record/b")).encode()
    return result


def unknown_label(alice: Any) -> bytes:
    result: bytes = alice.msg(1, label=bytes(32)).encode()
    return result


def ack_of_the_future(alice: Any) -> bytes:
    result: bytes = alice.msg(4, prev_ack=1_000).encode()
    return result


def ack_going_back(alice: Any) -> bytes:
    result: bytes = alice.msg(4, prev_ack=0).encode()
    return result


def repeated(alice: Any) -> bytes:
    result: bytes = alice.msg(2, prev_ack=1).encode()
    return result


def gap(alice: Any) -> bytes:
    result: bytes = alice.msg(9, prev_ack=1).encode()
    return result


def seq_zero(alice: Any) -> bytes:
    result: bytes = alice.msg(0, prev_ack=1).encode()
    return result


ROWS = [
    (too_large, Failure.SIZE_PREFILTER, 413),
    (overlong_integer, Failure.CBOR_INVALID, 400),
    (short_label, Failure.FIELD_SIZE, 413),
    (other_version, Failure.VERSION, 400),
    (other_profile, Failure.PROFILE, 400),
    (h07_padding_that_is_not_zero, Failure.PADDING, 400),
    (h07_padding_of_another_length, Failure.PADDING, 400),
    (wrong_ct_hash, Failure.CT_HASH, 400),
    (foreign_signature, Failure.SIG_INVALID, 409),
    (unknown_capability, Failure.CAP_MISSING, 403),
    (no_capability, Failure.CAP_MISSING, 403),
    (foreign_capability, Failure.AUTH_REF, 403),
    (other_stream, Failure.AUTH_REF, 403),
    (unknown_label, Failure.AUTH_REF, 403),
    (ack_of_the_future, Failure.PREV_ACK, 409),
    (ack_going_back, Failure.PREV_ACK, 409),
    (repeated, Failure.DUPLICATE, 409),
    (gap, Failure.CLIENT_SEQ, 409),
    (seq_zero, Failure.CLIENT_SEQ, 409),
]


@pytest.mark.parametrize(
    ("fault", "failure", "status"), ROWS, ids=lambda item: getattr(item, "__name__", None)
)
def test_each_fault_has_its_row(alice: Any, fault: Any, failure: Failure, status: int) -> None:
    assert refused(alice.submit(fault(alice))) == (row(failure), status)


def test_h07_zeros_behind_a_ciphertext_are_ignored(hub: Any) -> None:
    writer = hub.writer("padding", "record/a")
    whole = Ciphertext(bytes(32), b"header", b"body").encode(0)
    assert writer.submit(writer.msg(1, ciphertext=whole + bytes(3))).status_code == 200
    padded = hub.writer("padding", "padded/a")
    profile = next(profile for profile in hub.settings.profiles if profile.pad_block)
    whole = Ciphertext(bytes(32), b"header", b"body").encode(profile.pad_block)
    message = padded.msg(1, ciphertext=whole, profile_id=profile.profile_id())
    assert padded.submit(message).status_code == 200


def test_refuses_an_expired_capability(hub: Any) -> None:
    writer = hub.writer("mayfly", "record/a", ttl=10)
    hub.set_clock(NOON + 11)
    assert refused(writer.submit(writer.msg(1))) == (row(Failure.CAP_TTL), 400)


def test_a_capability_holds_in_its_last_second(hub: Any) -> None:
    hub.set_clock(NOON + 20)
    writer = hub.writer("dayfly", "record/a", ttl=10)
    hub.set_clock(NOON + 30)
    assert writer.submit(writer.msg(1)).status_code == 200


def test_refuses_what_is_faster_than_the_capability_allows(hub: Any) -> None:
    writer = hub.writer("hasty", "record/a", rate=Rate(per_sec=1, burst=1))
    writer.write(1, 1)
    answer = writer.submit(writer.msg(2))
    assert refused(answer) == (row(Failure.CAP_RATE), 429)
    assert answer.headers["Retry-After"] == "1"
    assert ErrorEnvelope.decode(answer.data).retry_after == 1


def test_refuses_an_epoch_outside_the_window(hub: Any) -> None:
    writer = hub.writer("late", "record/roll")
    rolling = next(profile for profile in hub.settings.profiles if profile.epoch_sec)
    stale = hub.label("record/roll", rolling.epoch(NOON) - 20)
    message = writer.msg(1, label=stale, profile_id=rolling.profile_id())
    assert refused(writer.submit(message)) == (row(Failure.EPOCH), 400)


def test_refuses_an_untrusted_issuer(hub: Any) -> None:
    stranger, subject = hub.key("stranger"), hub.key("alice").public
    token = issue(stranger, subject_pk=subject, stream_ids=[bytes(32)], ttl=1)
    assert refused(hub.post("/tooling/authorize", token)) == (row(Failure.CAP_INVALID), 403)


def test_a_duplicate_gets_the_receipt_of_the_original_again(hub: Any, alice: Any) -> None:
    detail = ErrorEnvelope.decode(alice.submit(repeated(alice)).data).detail
    assert detail is not None
    receipt = Receipt.decode(detail.pop("receipt"))
    assert detail == {"stage": "commit", "detail_enum": "DUPLICATE", "stream_seq": 2}
    hub.identity.verify_receipt(receipt)
    assert (receipt.stream_seq, receipt.leaf_hash) == (2, alice.msg(2, prev_ack=1).leaf_hash())


def row(failure: Failure) -> tuple[str, str, str]:
    return failure.code.value, failure.stage.value, failure.detail_enum


def refused(answer: Any) -> tuple[tuple[str, str, str], int]:
    envelope = ErrorEnvelope.decode(answer.data)
    assert envelope.request_id == answer.headers["X-Request-Id"]
    assert envelope.detail is not None
    return (
        envelope.code,
        envelope.detail["stage"],
        envelope.detail["detail_enum"],
    ), answer.status_code


def with_field(raw: bytes, index: int, value: object) -> bytes:
    fields = cbor.decode(raw)
    fields[index] = value
    assert len(fields) == MSG_FIELDS
    return cbor.encode(fields)
