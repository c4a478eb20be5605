"""The JSON form of wire objects: the same objects, read as strictly as CBOR."""

from __future__ import annotations

from typing import Any

import pytest

from veen.checkpoint import Checkpoint
from veen.crypto import SigningKey
from veen.errors import Malformed, WrongSize, WrongVersion
from veen.hub_identity import HubIdentity, new_identity
from veen.msg import Msg
from veen.proofs import MmrProof, ProofStep
from veen.wire.api import BatchResult, ErrorEnvelope, StreamRequest, SubmitRequest

B32, B64 = b"\x01" * 32, b"\x02" * 64
MSG = Msg(
    profile_id=B32, label=B32, client_id=B32, client_seq=2**64 - 1, prev_ack=0,
    auth_ref=None, ct_hash=B32, ciphertext=b"", sig=B64,
)  # fmt: skip
CHECKPOINT = Checkpoint(
    label_prev=B32, label_curr=B32, upto_seq=1, mmr_root=B32, epoch=0, hub_sig=B64
)
OBJECTS = [
    MSG,
    CHECKPOINT,
    CHECKPOINT.witnessed(SigningKey(B32)),
    StreamRequest(label=B32, from_seq=0, with_receipts=False),
    SubmitRequest(msg=MSG.encode()),
    MmrProof(leaf_hash=B32, path=(ProofStep(dir=1, sib=B32),), peaks_after=()),
    new_identity(B32, 7, "data-directory"),
    BatchResult(error=ErrorEnvelope(code="E.SEQ", message="é", detail={"stream_seq": 1})),
]
MSG_JSON = MSG.to_json()
STREAM_JSON = {"ver": 1, "label": B32.hex(), "from_seq": 0}


@pytest.mark.parametrize("wire_object", OBJECTS, ids=lambda item: type(item).__name__)
def test_an_object_comes_back_from_json(wire_object: Any) -> None:
    assert type(wire_object).from_json(wire_object.to_json()) == wire_object
    assert type(wire_object).from_json(wire_object.to_json()).encode() == wire_object.encode()


def test_an_absent_element_is_null_inside_and_cut_off_at_the_end() -> None:
    assert MSG_JSON[6] is None
    assert len(CHECKPOINT.to_json()) == 7


@pytest.mark.parametrize(
    "value",
    [
        None, {}, "", MSG_JSON[:9], [*MSG_JSON, 0],
        [True, *MSG_JSON[1:]], [1.0, *MSG_JSON[1:]], [None, *MSG_JSON[1:]],
        [1, B32.hex().upper().replace("1", "A"), *MSG_JSON[2:]],
        [*MSG_JSON[:4], True, *MSG_JSON[5:]],
        [*MSG_JSON[:4], -1, *MSG_JSON[5:]],
        [*MSG_JSON[:4], 2**64, *MSG_JSON[5:]],
        [*MSG_JSON[:8], None, MSG_JSON[9]],
    ],
)  # fmt: skip
def test_refuses_what_is_no_array_of_its_elements(value: Any) -> None:
    with pytest.raises(Malformed):
        Msg.from_json(value)


@pytest.mark.parametrize(
    "change",
    [
        {"more": 1}, {"label": None}, {"to_seq": None}, {"with_receipts": 1},
        {"from_seq": False}, {"from_seq": "0"}, {"label": 7}, {"label": "zz" * 32},
    ],
)  # fmt: skip
def test_refuses_what_is_no_object_of_its_fields(change: dict[str, Any]) -> None:
    with pytest.raises(Malformed):
        StreamRequest.from_json({**STREAM_JSON, **change})


def test_refuses_a_null_that_should_have_been_cut_off() -> None:
    with pytest.raises(Malformed):
        Checkpoint.from_json([*CHECKPOINT.to_json(), None])


def test_refuses_a_missing_field_and_a_lone_surrogate() -> None:
    with pytest.raises(Malformed):
        StreamRequest.from_json({"ver": 1, "from_seq": 0})
    with pytest.raises(Malformed):
        ErrorEnvelope.from_json({"ver": 1, "code": "\ud800", "message": ""})


def test_sizes_and_versions_are_distinguished_as_in_cbor() -> None:
    with pytest.raises(WrongSize):
        StreamRequest.from_json({**STREAM_JSON, "label": "00"})
    with pytest.raises(WrongVersion):
        StreamRequest.from_json({**STREAM_JSON, "ver": 2})
    with pytest.raises(Malformed, match="hub_id"):
        HubIdentity.from_json({**new_identity(B32, 7, "").to_json(), "hub_id": B32.hex()})


def test_refuses_a_raw_item_nested_too_deep() -> None:
    deep: Any = 1
    for _ in range(40):
        deep = [deep]
    with pytest.raises(Malformed):
        SubmitRequest.from_json({"ver": 1, "msg": deep})
