"""Of two faults in one message, the one that stands first in the table is told (spec 8.2)."""

from __future__ import annotations

import struct
from dataclasses import replace
from itertools import combinations
from typing import Any

import pytest

from veen.digest import h
from veen.wire import cbor
from veen.wire.api import ErrorEnvelope

# In the order of the table. Each fault changes fields of a message; what is signed again is
# signed after them. The last pair of columns says whether the signature is left broken.
FAULTS: dict[str, dict[int, Any]] = {
    "SIZE_PREFILTER": {8: b"x" * 5_000},
    "CBOR_INVALID": {4: b"not a number"},
    "FIELD_SIZE": {2: bytes(31)},
    "VERSION": {0: 2},
    "PROFILE": {1: bytes(32)},
    "PADDING": {8: bytes(40) + b"\x01"},
    "CT_HASH": {7: bytes(32)},
    "SIG_INVALID": {9: bytes(64)},
}
LATER: dict[str, dict[str, Any]] = {
    "CAP_MISSING": {"auth_ref": h(b"never authorised")},
    "AUTH_REF": {"label": bytes(32)},
    "PREV_ACK": {"prev_ack": 1_000},
    "CLIENT_SEQ": {"client_seq": 9},
}


@pytest.fixture(scope="module")
def alice(hub: Any) -> Any:
    return hub.writer("alice", "record/a")


@pytest.mark.parametrize(("first", "second"), list(combinations(FAULTS, 2)))
def test_the_worker_tells_the_first_fault(alice: Any, first: str, second: str) -> None:
    fields = cbor.decode(alice.msg(1).encode())
    for index, value in {**FAULTS[second], **FAULTS[first]}.items():
        fields[index] = value
    assert detail(alice.submit(cbor.encode(fields))) == first


@pytest.mark.parametrize(
    "ciphertext",
    [
        bytes(39),
        bytes(35) + b"\x01" + bytes(4),
        struct.pack(">32xII", 16_385, 0) + bytes(10),
        struct.pack(">32xII", 0, 5_000) + bytes(10),
    ],
    ids=["no frame", "cut short", "header", "body"],
)
def test_h29_sizes_are_reported_before_the_version(alice: Any, ciphertext: bytes) -> None:
    """Those inside the ciphertext too, where the table has sizes above versions."""
    fields = cbor.decode(alice.msg(1).encode())
    fields[0], fields[8] = 2, ciphertext
    assert detail(alice.submit(cbor.encode(fields))) == "FIELD_SIZE"
    fields[8] = bytes(40)
    assert detail(alice.submit(cbor.encode(fields))) == "VERSION"


@pytest.mark.parametrize(("first", "second"), list(combinations(LATER, 2)))
def test_the_sequencer_tells_the_first_fault(alice: Any, first: str, second: str) -> None:
    assert detail(alice.submit(alice.msg(1, **LATER[second], **LATER[first]))) == first


@pytest.mark.parametrize("later", LATER)
def test_a_broken_signature_is_reported_before_what_the_sequencer_knows(
    alice: Any, later: str
) -> None:
    message = replace(alice.msg(1, **LATER[later]), sig=bytes(64))
    assert detail(alice.submit(message)) == "SIG_INVALID"


def test_an_expired_capability_is_reported_before_its_rate_and_a_duplicate(hub: Any) -> None:
    hub.set_clock(1_900_000_100)
    brief = hub.writer("brief", "record/a", ttl=0)
    brief.write(1, 1)
    hub.set_clock(1_900_000_101)
    assert detail(brief.submit(brief.msg(1))) == "CAP_TTL"


def test_a_foreign_capability_is_reported_before_it_has_expired(hub: Any) -> None:
    hub.set_clock(1_900_000_200)
    owner, thief = hub.writer("owner", "record/a", ttl=0), hub.writer("thief", "record/a")
    hub.set_clock(1_900_000_201)
    assert detail(thief.submit(thief.msg(1, auth_ref=owner.auth_ref))) == "AUTH_REF"


def test_an_earlier_message_with_an_ack_that_went_back_tells_its_place(hub: Any) -> None:
    """PREV_ACK stands before DUPLICATE, so a retry after progress must still find its receipt."""
    writer = hub.writer("retrying", "record/b")
    writer.write(1, 2)
    assert writer.submit(writer.msg(3, prev_ack=2)).status_code == 200
    detail = ErrorEnvelope.decode(writer.submit(writer.msg(1)).data).detail
    assert detail is not None
    assert (detail["detail_enum"], detail["stream_seq"]) == ("PREV_ACK", 1)


def detail(answer: Any) -> str:
    envelope = ErrorEnvelope.decode(answer.data)
    assert envelope.detail is not None
    result = envelope.detail["detail_enum"]
    assert isinstance(result, str)
    return result
