"""Published vectors of the algorithms the protocol builds on, against the library."""

from __future__ import annotations

import json
import struct
from operator import itemgetter
from typing import Any

import pytest
from cryptography.hazmat.primitives import hpke as pyca_hpke
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey
from cryptography.hazmat.primitives.ciphers.aead import ChaCha20Poly1305

from support.paths import VECTORS
from veen.crypto import (
    _SUITE,
    AEAD_TAG_BYTES,
    HpkeExporter,
    HpkeRecipient,
    HpkeSender,
    SigningKey,
    aead_decrypt,
    aead_encrypt,
    hpke_public_key,
    signature_is_valid,
)
from veen.errors import Malformed, Undecryptable, Untrusted
from veen.wire import canonical_json


def published(name: str) -> list[dict[str, Any]]:
    path = VECTORS / "published" / f"{name}.json"
    cases: list[dict[str, Any]] = json.loads(path.read_text("utf-8"))["cases"]
    return cases


(HPKE,) = published("hpke_rfc9180_a2_base")
XCHACHA, HCHACHA = published("xchacha20poly1305_draft")
JCS = published("jcs_rfc8785")
NUMBERS = [case for case in JCS if case["kind"] == "number"]
DOCUMENTS = [case for case in JCS if case["kind"] == "document"]
RFC8032 = pytest.mark.parametrize("case", published("ed25519_rfc8032"), ids=itemgetter("name"))
LOW_ORDER = pytest.mark.parametrize(
    "case", published("x25519_low_order"), ids=itemgetter("public_key")
)


def sender_with_info() -> Any:
    """The suite of the library under the vector's info; the protocol's own is always empty."""
    suite = _SUITE
    public = suite.kem.deserialize_public_key(bytes.fromhex(HPKE["pkRm"]))
    pair = suite.kem.derive_key_pair(bytes.fromhex(HPKE["ikmE"]))
    _, context = suite.create_sender_context(public, bytes.fromhex(HPKE["info"]), eks=pair)
    return context


def recipient_with_info() -> Any:
    suite = _SUITE
    private = suite.kem.deserialize_private_key(bytes.fromhex(HPKE["skRm"]))
    enc, info = bytes.fromhex(HPKE["enc"]), bytes.fromhex(HPKE["info"])
    return suite.create_recipient_context(enc, private, info)


def test_hpke_ephemeral_is_ikm_of_the_derived_key_pair() -> None:
    sender = HpkeSender(bytes.fromhex(HPKE["pkRm"]), bytes.fromhex(HPKE["ikmE"]))
    assert sender.enc.hex() == HPKE["enc"]


@pytest.mark.parametrize(("private", "public"), [("skRm", "pkRm"), ("skEm", "pkEm")])
def test_hpke_public_key(private: str, public: str) -> None:
    assert hpke_public_key(bytes.fromhex(HPKE[private])).hex() == HPKE[public]


def test_hpke_seals_each_sequence_number() -> None:
    context, expected = sender_with_info(), {e["sequence_number"]: e for e in HPKE["encryptions"]}
    result = {}
    for number in range(max(expected) + 1):
        case = expected.get(number, expected[0])
        sealed = context.seal(bytes.fromhex(case["pt"]), bytes.fromhex(case["aad"]))
        result[number] = sealed.hex()
    assert {number: result[number] for number in expected} == {
        n: e["ct"] for n, e in expected.items()
    }


def test_hpke_opens_in_sequence() -> None:
    context = recipient_with_info()
    for case in HPKE["encryptions"][:3]:
        result = context.open(bytes.fromhex(case["ct"]), bytes.fromhex(case["aad"]))
        assert result.hex() == case["pt"]


@pytest.mark.parametrize("context", [sender_with_info(), recipient_with_info()], ids=["S", "R"])
@pytest.mark.parametrize("case", HPKE["exports"], ids=itemgetter("exporter_context"))
def test_hpke_exports(case: dict[str, Any], context: HpkeExporter) -> None:
    result = context.export(bytes.fromhex(case["exporter_context"]), case["L"])
    assert result.hex() == case["exported_value"]


def test_hpke_info_of_the_protocol_is_empty() -> None:
    """Another implementation, given no info, opens what the library seals."""
    sender = HpkeSender(bytes.fromhex(HPKE["pkRm"]), bytes.fromhex(HPKE["ikmE"]))
    kem, kdf = pyca_hpke.KEM.X25519, pyca_hpke.KDF.HKDF_SHA256
    suite = pyca_hpke.Suite(kem, kdf, pyca_hpke.AEAD.CHACHA20_POLY1305)
    private = X25519PrivateKey.from_private_bytes(bytes.fromhex(HPKE["skRm"]))
    assert suite.decrypt(sender.enc + sender.seal(b"", b"hello"), private) == b"hello"


def test_hpke_both_ends_agree() -> None:
    sender = HpkeSender(bytes.fromhex(HPKE["pkRm"]), bytes.fromhex(HPKE["ikmE"]))
    recipient = HpkeRecipient(sender.enc, bytes.fromhex(HPKE["skRm"]))
    assert recipient.export(b"veen/body-k", 32) == sender.export(b"veen/body-k", 32)
    assert recipient.open(b"aad", sender.seal(b"aad", b"hello")) == b"hello"


@LOW_ORDER
def test_low_order_key_is_no_recipient(case: dict[str, Any]) -> None:
    with pytest.raises(Untrusted):
        HpkeSender(bytes.fromhex(case["public_key"]), bytes.fromhex(HPKE["ikmE"]))


@LOW_ORDER
def test_low_order_encapsulation_does_not_open(case: dict[str, Any]) -> None:
    with pytest.raises(Undecryptable):
        HpkeRecipient(bytes.fromhex(case["public_key"]), bytes.fromhex(case["private_key"]))


def test_xchacha_encrypts_and_decrypts() -> None:
    key, nonce, aad, plain = (
        bytes.fromhex(XCHACHA[name]) for name in ("key", "iv", "aad", "plaintext")
    )
    sealed = bytes.fromhex(XCHACHA["ciphertext"] + XCHACHA["tag"])
    assert aead_encrypt(key, nonce, aad, plain) == sealed
    assert aead_decrypt(key, nonce, aad, sealed) == plain


def test_xchacha_with_a_changed_tag_does_not_open() -> None:
    key, nonce, aad = (bytes.fromhex(XCHACHA[name]) for name in ("key", "iv", "aad"))
    sealed = bytes.fromhex(XCHACHA["ciphertext"]) + bytes(AEAD_TAG_BYTES)
    with pytest.raises(Undecryptable):
        aead_decrypt(key, nonce, aad, sealed)


def test_xchacha_is_chacha_under_the_hchacha_subkey() -> None:
    subkey, rest = bytes.fromhex(HCHACHA["subkey"]), b"restofit"
    expected = ChaCha20Poly1305(subkey).encrypt(bytes(4) + rest, b"plain", b"aad")
    key, nonce = bytes.fromhex(HCHACHA["key"]), bytes.fromhex(HCHACHA["nonce"]) + rest
    assert aead_encrypt(key, nonce, b"aad", b"plain") == expected


@RFC8032
def test_ed25519_signs(case: dict[str, Any]) -> None:
    key = SigningKey(bytes.fromhex(case["secret_key"]))
    assert key.public.hex() == case["public_key"]
    assert key.sign(bytes.fromhex(case["message"])).hex() == case["signature"]


@RFC8032
def test_ed25519_verifies(case: dict[str, Any]) -> None:
    public, signature, message = (
        bytes.fromhex(case[name]) for name in ("public_key", "signature", "message")
    )
    assert signature_is_valid(public, signature, message)
    assert not signature_is_valid(public, signature, message + b"\x00")


@pytest.mark.parametrize("case", published("ed25519_speccheck"), ids=itemgetter("why"))
def test_ed25519_verdict_is_the_strict_one(case: dict[str, Any]) -> None:
    public, signature, message = (
        bytes.fromhex(case[name]) for name in ("pub_key", "signature", "message")
    )
    assert signature_is_valid(public, signature, message) is case["libsodium"]


@pytest.mark.parametrize("case", [n for n in NUMBERS if not n["error"]], ids=itemgetter("ieee754"))
def test_canonical_number(case: dict[str, Any]) -> None:
    (number,) = struct.unpack(">d", bytes.fromhex(case["ieee754"]))
    assert canonical_json.encode(number).decode() == case["expected"]


@pytest.mark.parametrize("case", [n for n in NUMBERS if n["error"]], ids=itemgetter("ieee754"))
def test_number_without_canonical_form_is_refused(case: dict[str, Any]) -> None:
    (number,) = struct.unpack(">d", bytes.fromhex(case["ieee754"]))
    with pytest.raises(Malformed):
        canonical_json.encode(number)


@pytest.mark.parametrize(
    "case", [d for d in DOCUMENTS if d["name"] != "weird"], ids=itemgetter("name")
)
def test_canonical_document(case: dict[str, Any]) -> None:
    document = json.loads(bytes.fromhex(case["input_hex"]))
    assert canonical_json.encode(document).hex() == case["output_hex"]


def test_key_beyond_u_ffff_sorts_by_its_utf_8_bytes() -> None:
    """Of the published documents only this one tells the two orders apart."""
    (weird,) = (document for document in DOCUMENTS if document["name"] == "weird")
    smiley, hebrew = (
        '"\U0001f602":"Smiley"',
        '"\ufb33":"Hebrew Letter Dalet With Dagesh"',
    )
    by_utf_16 = bytes.fromhex(weird["output_hex"]).decode()
    by_utf_8 = by_utf_16.replace(f"{smiley},{hebrew}", f"{hebrew},{smiley}")
    assert by_utf_8 != by_utf_16
    document = json.loads(bytes.fromhex(weird["input_hex"]))
    assert canonical_json.encode(document).decode() == by_utf_8


def test_own_keys_beyond_u_ffff_sort_last() -> None:
    assert canonical_json.encode({"\U00010000": 1, "\uffff": 2, "a": 3}).decode() == (
        '{"a":3,"\uffff":2,"\U00010000":1}'
    )
