"""MSG, RECEIPT, CHECKPOINT and payload_hdr of veen.json against the library."""

from __future__ import annotations

from dataclasses import replace
from operator import itemgetter
from typing import Any

import pytest

from support.broken import changed
from support.vectors import load_vectors
from veen.captoken import CapToken
from veen.checkpoint import Checkpoint
from veen.crypto import SigningKey
from veen.errors import Malformed
from veen.label import Profile
from veen.msg import Msg
from veen.payload import PayloadHdr
from veen.proofs import MmrProof
from veen.receipt import Receipt
from veen.wire.objects import WireObject

CASES = load_vectors("veen.json")
NAME = itemgetter("name")
CLASSES: dict[str, type[WireObject]] = {
    cls.__name__: cls for cls in (Msg, Receipt, Checkpoint, PayloadHdr, Profile, MmrProof, CapToken)
}
SECTIONS = ((Msg, "messages"), (Receipt, "receipts"), (Checkpoint, "checkpoints"))
SIGNED_CASES = [case for _, section in SECTIONS for case in CASES[section]]
SIGNED = [
    pytest.param(cls, case, id=f"{cls.__name__}: {case['name']}")
    for cls, section in SECTIONS
    for case in CASES[section]
]
HEADERS = [
    pytest.param(PayloadHdr, case, id=f"PayloadHdr: {case['name']}")
    for case in CASES["payload_headers"]
]
SIGNED_BY_SEED = [param for param, case in zip(SIGNED, SIGNED_CASES, strict=True) if case["seed"]]
SIGNATURE = {Msg: "sig", Receipt: "hub_sig", Checkpoint: "hub_sig"}


def is_signed(wire_object: Msg | Receipt | Checkpoint, public: bytes) -> bool:
    if isinstance(wire_object, Msg):
        return wire_object.client_id == public and wire_object.signature_is_valid()
    return wire_object.is_signed_by(public)


@pytest.mark.parametrize(("cls", "case"), SIGNED + HEADERS)
def test_encodes_to_its_bytes(cls: Any, case: dict[str, Any], revived: Any) -> None:
    assert cls(**revived(case["fields"])).encode().hex() == case["cbor"]


@pytest.mark.parametrize(("cls", "case"), SIGNED + HEADERS)
def test_decodes_from_its_bytes(cls: Any, case: dict[str, Any], revived: Any) -> None:
    assert cls.decode(bytes.fromhex(case["cbor"])) == cls(**revived(case["fields"]))


@pytest.mark.parametrize(("cls", "case"), SIGNED)
def test_signing_digest(cls: Any, case: dict[str, Any]) -> None:
    assert cls.decode(bytes.fromhex(case["cbor"]))._signing_digest().hex() == case["digest"]


@pytest.mark.parametrize(("cls", "case"), SIGNED_BY_SEED)
def test_signs_as_the_vector_does(cls: Any, case: dict[str, Any]) -> None:
    expected = cls.decode(bytes.fromhex(case["cbor"]))
    blank = changed(expected, **{SIGNATURE[cls]: bytes(64)})
    assert blank.signed(SigningKey(bytes.fromhex(case["seed"]))) == expected


@pytest.mark.parametrize(("cls", "case"), SIGNED_BY_SEED)
def test_signature_holds(cls: Any, case: dict[str, Any]) -> None:
    public = SigningKey(bytes.fromhex(case["seed"])).public
    assert is_signed(cls.decode(bytes.fromhex(case["cbor"])), public)


@pytest.mark.parametrize(("cls", "case"), SIGNED_BY_SEED)
def test_signature_with_a_flipped_bit_does_not_hold(cls: Any, case: dict[str, Any]) -> None:
    public = SigningKey(bytes.fromhex(case["seed"])).public
    result = cls.decode(bytes.fromhex(case["cbor"]))
    signature = getattr(result, SIGNATURE[cls])
    flipped = changed(result, **{SIGNATURE[cls]: bytes([signature[0] ^ 1]) + signature[1:]})
    assert not is_signed(flipped, public)


def test_witness_signs_what_the_hub_signs() -> None:
    (case,) = (case for case in CASES["checkpoints"] if "witness_seed" in case)
    expected = Checkpoint.decode(bytes.fromhex(case["cbor"]))
    witness = SigningKey(bytes.fromhex(case["witness_seed"]))
    assert replace(expected, witness_sigs=None).witnessed(witness) == expected
    assert expected.is_witnessed_by(witness.public)


@pytest.mark.parametrize(("cls", "case"), SIGNED + HEADERS)
def test_cut_short_anywhere_is_refused(cls: Any, case: dict[str, Any]) -> None:
    raw = bytes.fromhex(case["cbor"])
    for size in range(len(raw)):
        with pytest.raises(Malformed):
            cls.decode(raw[:size])


@pytest.mark.parametrize(("cls", "case"), SIGNED + HEADERS)
def test_trailing_byte_is_refused(cls: Any, case: dict[str, Any]) -> None:
    with pytest.raises(Malformed):
        cls.decode(bytes.fromhex(case["cbor"]) + b"\x00")


@pytest.mark.parametrize("case", CASES["malformed"], ids=NAME)
def test_refuses(case: dict[str, Any]) -> None:
    with pytest.raises(Malformed):
        CLASSES[case["object"]].decode(bytes.fromhex(case["raw"]))
