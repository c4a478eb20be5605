"""Sealed payloads, their frames and attachments of veen.json against the library."""

from __future__ import annotations

from operator import itemgetter
from typing import Any

import pytest

from support.vectors import load_vectors
from veen.crypto import HpkeSender, SigningKey, hpke_public_key
from veen.errors import Malformed, Undecryptable
from veen.label import DEFAULT_PROFILE, Profile
from veen.limits import Limits
from veen.msg import Msg
from veen.payload import (
    AttachmentKeys,
    Ciphertext,
    Opened,
    PayloadHdr,
    Sealed,
    SealPlace,
    open_msg,
    open_payload,
    seal_payload,
)

CASES = load_vectors("veen.json")
NAME = itemgetter("name")
SEALED = pytest.mark.parametrize(
    "case", CASES["sealed_messages"] + CASES["log"]["entries"], ids=NAME
)


class FixedExporter:
    """An HPKE context that knows one secret."""

    def __init__(self, context: bytes, secret: bytes) -> None:
        self._secrets = {(context, len(secret)): secret}

    def export(self, context: bytes, length: int) -> bytes:
        return self._secrets[context, length]


def place_of(case: dict[str, Any], revived: Any) -> SealPlace:
    fields = revived(case["place"])
    profile = Profile(epoch_sec=fields.pop("epoch_sec"), pad_block=fields.pop("pad_block"))
    return SealPlace(profile=profile, **fields)


def sealed_again(case: dict[str, Any], revived: Any) -> Sealed:
    header = PayloadHdr.decode(revived(case["payload_hdr"]))
    return seal_payload(
        recipient=revived(case["reader_public"]),
        ephemeral=revived(case["ephemeral"]),
        place=place_of(case, revived),
        header=PayloadHdr(
            schema=header.schema,
            parent_id=header.parent_id,
            cap_ref=header.cap_ref,
            expires_at=header.expires_at,
        ),
        body=revived(case["body"]),
        attachments=revived(case["attachments"]),
        limits=Limits(),
    )


def opened(case: dict[str, Any], revived: Any) -> Opened:
    return open_msg(
        private=revived(case["reader_private"]),
        msg=Msg.decode(revived(case["msg"])),
        profile=place_of(case, revived).profile,
        limits=Limits(),
    )


@SEALED
def test_place_gives_aad_and_nonce(case: dict[str, Any], revived: Any) -> None:
    place = place_of(case, revived)
    assert (place.aad().hex(), place.nonce().hex()) == (case["aad"], case["nonce"])


@pytest.mark.parametrize("case", CASES["nonces"], ids=NAME)
def test_body_nonce(case: dict[str, Any], revived: Any) -> None:
    place = SealPlace(profile=DEFAULT_PROFILE, auth_ref=None, **revived(case["fields"]))
    assert place.nonce().hex() == case["nonce"]


@SEALED
def test_reader_key(case: dict[str, Any], revived: Any) -> None:
    assert hpke_public_key(revived(case["reader_private"])).hex() == case["reader_public"]


@SEALED
def test_sender_derives_enc_header_and_body_key(case: dict[str, Any], revived: Any) -> None:
    sender = HpkeSender(revived(case["reader_public"]), revived(case["ephemeral"]))
    header = sender.seal(revived(case["aad"]), revived(case["payload_hdr"]))
    assert sender.enc.hex() == case["enc"]
    assert header.hex() == case["hpke_ct_hdr"]
    assert sender.export(b"veen/body-k", 32).hex() == case["k_body"]


@SEALED
def test_seals_to_the_same_ciphertext(case: dict[str, Any], revived: Any) -> None:
    assert sealed_again(case, revived).ciphertext.hex() == case["ciphertext"]


@SEALED
def test_seals_attachments_to_the_same_bytes(case: dict[str, Any], revived: Any) -> None:
    assert sealed_again(case, revived).attachments == revived(case["sealed_attachments"])


@SEALED
def test_frame_has_its_parts(case: dict[str, Any], revived: Any) -> None:
    parts = Ciphertext.decode(revived(case["ciphertext"]), case["place"]["pad_block"])
    expected = (case["enc"], case["hpke_ct_hdr"], case["aead_ct_body"])
    assert (parts.enc.hex(), parts.header.hex(), parts.body.hex()) == expected


@SEALED
def test_signs_the_message_around_it(case: dict[str, Any], revived: Any) -> None:
    place = place_of(case, revived)
    msg = Msg(
        profile_id=revived(case["profile_id"]),
        label=place.label,
        client_id=place.client_id,
        client_seq=place.client_seq,
        prev_ack=place.prev_ack,
        auth_ref=place.auth_ref,
        ct_hash=revived(case["ct_hash"]),
        ciphertext=revived(case["ciphertext"]),
    )
    assert msg.signed(SigningKey(revived(case["client_seed"]))).encode().hex() == case["msg"]


@SEALED
def test_message_has_its_hashes(case: dict[str, Any], revived: Any) -> None:
    msg = Msg.decode(revived(case["msg"]))
    assert msg.ct_hash_matches()
    assert msg.leaf_hash().hex() == case["leaf_hash"]


@SEALED
def test_opens_header_and_body(case: dict[str, Any], revived: Any) -> None:
    result = opened(case, revived)
    assert (result.header.encode().hex(), result.body.hex()) == (case["payload_hdr"], case["body"])


@SEALED
def test_opens_attachments(case: dict[str, Any], revived: Any) -> None:
    result = opened(case, revived).attachments(revived(case["sealed_attachments"]), Limits())
    assert result == revived(case["attachments"])


@SEALED
def test_does_not_open_with_another_key(case: dict[str, Any], revived: Any) -> None:
    with pytest.raises(Undecryptable):
        open_payload(
            private=b"\x05" * 32,
            place=place_of(case, revived),
            ciphertext=revived(case["ciphertext"]),
            limits=Limits(),
        )


@pytest.mark.parametrize("case", CASES["attachment_seals"], ids=NAME)
def test_attachment_key_and_nonce(case: dict[str, Any], revived: Any) -> None:
    exporter = FixedExporter(revived(case["export_context"]), revived(case["key"]))
    sealed = AttachmentKeys(exporter, revived(case["aad"])).seal(
        case["index"], revived(case["plaintext"])
    )
    assert sealed.hex() == case["sealed"]


@pytest.mark.parametrize("case", [c for c in CASES["ciphertext_frames"] if c["accepted"]], ids=NAME)
def test_accepts_frame(case: dict[str, Any], revived: Any) -> None:
    parts = Ciphertext.decode(revived(case["raw"]), case["pad_block"])
    assert parts == Ciphertext(b"\xaa" * 32, b"\x0a", b"\x0b")


@pytest.mark.parametrize(
    "case", [c for c in CASES["ciphertext_frames"] if not c["accepted"]], ids=NAME
)
def test_refuses_frame(case: dict[str, Any], revived: Any) -> None:
    with pytest.raises(Malformed):
        Ciphertext.decode(revived(case["raw"]), case["pad_block"])
