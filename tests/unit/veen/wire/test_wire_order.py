"""Which of two faults of a wire object wins, and what encoding itself refuses (spec 8.2)."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import cbor2
import pytest

from support.broken import built, changed
from veen.captoken import Allow, CapToken, Rate
from veen.checkpoint import Checkpoint
from veen.errors import Malformed, WrongSize, WrongVersion
from veen.hub_identity import new_identity
from veen.label import Profile
from veen.msg import Msg
from veen.receipt import Receipt
from veen.wire.api import BatchResult, ErrorEnvelope, StreamResponse, SubmitRequest
from veen.wire.objects import WireMap
from veen.wire.schema import Bytes32, Version

A, B, SIG = b"a" * 32, b"b" * 32, b"s" * 64
MSG = Msg(
    profile_id=A, label=B, client_id=A, client_seq=1, prev_ack=0, auth_ref=B, ct_hash=A,
    ciphertext=b"ct", sig=SIG,
)  # fmt: skip
CHECKPOINT = Checkpoint(
    label_prev=A, label_curr=A, upto_seq=1, mmr_root=B, epoch=0, hub_sig=SIG, witness_sigs=(SIG,)
)
ALLOW = Allow(stream_ids=(A, B), ttl=1, rate=Rate(per_sec=1, burst=2))
TOKEN = CapToken(issuer_pk=A, subject_pk=B, allow=ALLOW, sig_chain=(SIG,))


def a_raw_msg(**changes: Any) -> bytes:
    """The bytes of a message, with elements that its class might refuse."""
    names = list(Msg.__dataclass_fields__)
    elements = cbor2.loads(MSG.encode())
    for name, value in changes.items():
        elements[names.index(name)] = value
    return cbor2.dumps(elements)


@pytest.mark.parametrize(
    ("raw", "fault"),
    [
        pytest.param(a_raw_msg(label=b"short", sig=1), Malformed, id="type after size"),
        pytest.param(a_raw_msg(profile_id=1, sig=b"short"), Malformed, id="type before size"),
        pytest.param(a_raw_msg(ver=2, sig="text"), Malformed, id="type over version"),
        pytest.param(a_raw_msg(label=b"short") + b"\x00", Malformed, id="trailing byte over size"),
        pytest.param(a_raw_msg(label=b"short")[:-1], Malformed, id="truncation over size"),
        pytest.param(a_raw_msg(ver=2) + b"\x00", Malformed, id="trailing byte over version"),
        pytest.param(a_raw_msg(sig=b"short"), WrongSize, id="size"),
        pytest.param(a_raw_msg(ver=2, profile_id=B), WrongVersion, id="version"),
    ],
)
def test_the_worse_fault_wins(raw: bytes, fault: type[Malformed]) -> None:
    with pytest.raises(Malformed) as refusal:
        Msg.decode(raw)
    assert type(refusal.value) is fault


@pytest.mark.parametrize(
    "field", ["profile_id", "label", "client_id", "auth_ref", "ct_hash", "sig"]
)
def test_a_wrong_size_wins_over_a_wrong_version(field: str) -> None:
    with pytest.raises(WrongSize):
        Msg.decode(a_raw_msg(ver=2, **{field: b"short"}))


@dataclass(frozen=True, slots=True, kw_only=True)
class Late(WireMap):
    """An object whose sizes come after the version, in its fields and by their names."""

    ver: Version = 1
    z: Bytes32


def test_a_wrong_size_wins_whatever_the_order_of_the_fields() -> None:
    with pytest.raises(WrongSize):
        Late.decode(cbor2.dumps({1: 2, 2: b"short"}))
    with pytest.raises(WrongVersion):
        Late.decode(cbor2.dumps({1: 2, 2: A}))


@pytest.mark.parametrize("value", [-1, 2**64, 2**80, True, False, None, 1.0, "1", b"1"], ids=repr)
@pytest.mark.parametrize("field", ["client_seq", "prev_ack"])
def test_encoding_refuses_what_is_no_unsigned_integer(field: str, value: Any) -> None:
    with pytest.raises(Malformed):
        changed(MSG, **{field: value}).encode()


@pytest.mark.parametrize("value", [True, 1.0], ids=repr)
def test_encoding_refuses_a_version_that_is_no_integer(value: Any) -> None:
    with pytest.raises(Malformed):
        replace(MSG, ver=value).encode()


@pytest.mark.parametrize("value", [b"", b"a" * 31, b"a" * 33, b"a" * 64])
@pytest.mark.parametrize("field", ["profile_id", "label", "client_id", "auth_ref", "ct_hash"])
def test_encoding_refuses_a_wrong_size(field: str, value: bytes) -> None:
    with pytest.raises(WrongSize):
        changed(MSG, **{field: value}).encode()


@pytest.mark.parametrize("value", [None, "a" * 32, bytearray(b"a" * 32), 1, [1] * 32], ids=repr)
def test_encoding_refuses_what_is_no_byte_string(value: Any) -> None:
    with pytest.raises(Malformed):
        replace(MSG, label=value).encode()


@pytest.mark.parametrize(
    "broken",
    [
        pytest.param(changed(CHECKPOINT, witness_sigs=[SIG]), id="list for a tuple"),
        pytest.param(changed(CHECKPOINT, witness_sigs=(SIG, b"")), id="short witness signature"),
        pytest.param(changed(TOKEN, allow={1: [A], 2: 1}), id="dict for an object"),
        pytest.param(changed(TOKEN, allow=Rate(per_sec=1, burst=1)), id="another object"),
        pytest.param(changed(ALLOW, stream_ids=(B, A)), id="unsorted stream_ids"),
        pytest.param(changed(ALLOW, stream_ids=(A, A)), id="doubled stream_ids"),
        pytest.param(changed(ALLOW, stream_ids=()), id="no stream_ids"),
        pytest.param(changed(TOKEN, sig_chain=()), id="no signature"),
        pytest.param(changed(TOKEN, sig_chain=(SIG,) * 9), id="nine signatures"),
        pytest.param(changed(Profile(), kdf="none"), id="another algorithm"),
        pytest.param(changed(new_identity(A, 0, ""), hub_id=B), id="another hub_id"),
        pytest.param(BatchResult(), id="neither receipt nor error"),
        pytest.param(
            BatchResult(receipt=b"\x80", error=ErrorEnvelope(code="", message="")), id="both"
        ),
        pytest.param(
            built(StreamResponse, label=A, from_seq=1, items=(MSG,)), id="a MSG for an item"
        ),
        pytest.param(built(SubmitRequest, msg="text"), id="text for an item"),
        pytest.param(built(ErrorEnvelope, code="", message="", detail=[1]), id="list for a detail"),
        pytest.param(ErrorEnvelope(code="", message="", detail={"a": -1}), id="negative inside"),
        pytest.param(built(ErrorEnvelope, code=1, message=""), id="integer for text"),
    ],
)  # fmt: skip
def test_encoding_refuses(broken: Any) -> None:
    with pytest.raises(Malformed):
        broken.encode()


@pytest.mark.parametrize("item", [b"", b"\x01\x01", b"\x82\x01", b"\x9f\xff"], ids=bytes.hex)
def test_encoding_refuses_what_is_not_one_item(item: bytes) -> None:
    with pytest.raises(Malformed):
        SubmitRequest(msg=item).encode()


def test_encoding_refuses_a_detail_with_integer_keys() -> None:
    with pytest.raises(Malformed):
        built(ErrorEnvelope, code="", message="", detail={1: 2}).encode()


def test_encoding_refuses_text_that_has_no_utf8() -> None:
    with pytest.raises(Malformed):
        ErrorEnvelope(code="\ud800", message="").encode()


def test_refuses_null_for_the_witnesses_of_a_checkpoint() -> None:
    elements = cbor2.loads(CHECKPOINT.encode())
    with pytest.raises(Malformed):
        Checkpoint.decode(cbor2.dumps([*elements[:7], None]))


def test_refuses_an_empty_list_of_witnesses_beside_the_form_of_seven_elements() -> None:
    elements = cbor2.loads(CHECKPOINT.encode())
    with pytest.raises(Malformed):
        Checkpoint.decode(cbor2.dumps([*elements[:7], []]))


@pytest.mark.parametrize("count", [0, 1, 6, 9])
def test_refuses_a_checkpoint_of_another_count(count: int) -> None:
    elements = [*cbor2.loads(CHECKPOINT.encode()), []][:count]
    with pytest.raises(Malformed):
        Checkpoint.decode(cbor2.dumps(elements))


def test_an_absent_auth_ref_is_null_and_takes_its_place() -> None:
    raw = replace(MSG, auth_ref=None).encode()
    assert cbor2.loads(raw)[6] is None
    assert Msg.decode(raw).auth_ref is None


def test_refuses_a_map_where_an_array_is_due_and_the_other_way_round() -> None:
    for cls, raw in ((Msg, TOKEN.encode()), (Receipt, b"\xa0"), (CapToken, MSG.encode())):
        with pytest.raises(Malformed):
            cls.decode(raw)
