"""Sealing: what was sealed for one place and key opens there and nowhere else (spec 4.2, 4.6)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from veen.crypto import HpkeSender, hpke_public_key
from veen.digest import h
from veen.errors import Malformed, Undecryptable, Untrusted
from veen.label import Profile
from veen.limits import Limits
from veen.msg import Msg
from veen.payload import (
    Ciphertext,
    PayloadHdr,
    Sealed,
    SealPlace,
    open_body,
    open_msg,
    open_payload,
    seal_payload,
)
from veen.wire import cbor

PRIVATE = b"reader key".ljust(32, b".")
PUBLIC = hpke_public_key(PRIVATE)
EPHEMERAL = b"fresh bytes".ljust(32, b".")
LIMITS = Limits()
PLACE = SealPlace(
    profile=Profile(), label=b"l" * 32, client_id=b"c" * 32, client_seq=3, prev_ack=2, auth_ref=None
)
HEADER = PayloadHdr(schema=b"s" * 32)


def a_sealed(*, place: SealPlace = PLACE, **changes: Any) -> Sealed:
    given_parts = {"header": HEADER, "body": b"a body", "attachments": (), "limits": LIMITS}
    return seal_payload(
        recipient=PUBLIC, ephemeral=EPHEMERAL, place=place, **{**given_parts, **changes}
    )


def opened(ciphertext: bytes, *, place: SealPlace = PLACE, private: bytes = PRIVATE) -> Any:
    return open_payload(private=private, place=place, ciphertext=ciphertext, limits=LIMITS)


def sealed_by_hand(header: bytes, body: bytes | None = None) -> bytes:
    """A ciphertext whose sender is authentic and keeps to no rule."""
    sender = HpkeSender(PUBLIC, EPHEMERAL)
    genuine = Ciphertext.decode(a_sealed().ciphertext, 0)
    parts = Ciphertext(sender.enc, sender.seal(PLACE.aad(), header), genuine.body)
    return (replace(parts, body=body) if body is not None else parts).encode(0)


@given(
    body=st.one_of(st.binary(max_size=300), st.just(b""), st.just(bytes(5000))),
    attachments=st.lists(st.binary(max_size=50), max_size=5),
    pad_block=st.sampled_from((0, 1, 16, 256)),
    expires_at=st.none() | st.integers(0, 2**64 - 1),
)
def test_what_is_sealed_opens(
    body: bytes, attachments: list[bytes], pad_block: int, expires_at: int | None
) -> None:
    place = replace(PLACE, profile=Profile(pad_block=pad_block))
    header = replace(HEADER, expires_at=expires_at)
    sealed = a_sealed(place=place, header=header, body=body, attachments=attachments)
    result = opened(sealed.ciphertext, place=place)
    assert (result.body, result.header.expires_at) == (body, expires_at)
    assert result.attachments(sealed.attachments, LIMITS) == tuple(attachments)
    assert len(sealed.ciphertext) % (pad_block or 1) == 0


@given(st.binary(max_size=100), st.sampled_from((0, 16, 256)))
def test_sealing_is_a_function_of_its_arguments(body: bytes, pad_block: int) -> None:
    place = replace(PLACE, profile=Profile(pad_block=pad_block))
    assert a_sealed(place=place, body=body) == a_sealed(place=place, body=body)


def test_refuses_a_change_of_any_byte() -> None:
    raw = a_sealed().ciphertext
    for at in range(len(raw)):
        for mask in (1, 0x80):
            bad = raw[:at] + bytes([raw[at] ^ mask]) + raw[at + 1 :]
            with pytest.raises((Untrusted, Malformed)):
                opened(bad)


def test_a_message_refuses_a_change_of_any_bit_of_its_ciphertext(
    a_msg: Callable[..., Msg], flips: Callable[[bytes], Any]
) -> None:
    msg = a_msg(ciphertext=a_sealed().ciphertext)
    for bad in flips(msg.ciphertext):
        changed = replace(msg, ciphertext=bad)
        with pytest.raises(Untrusted):
            open_msg(private=PRIVATE, msg=changed, profile=Profile(), limits=LIMITS)


@pytest.mark.parametrize(
    "change",
    [
        {"profile": Profile(epoch_sec=1)},
        {"profile": Profile(pad_block=1)},
        {"label": b"m" * 32},
        {"client_id": b"d" * 32},
        {"client_seq": 4},
        {"prev_ack": 1},
        {"auth_ref": b"r" * 32},
    ],
    ids=str,
)
def test_refuses_another_place(change: dict[str, Any]) -> None:
    with pytest.raises(Undecryptable):
        opened(a_sealed().ciphertext, place=replace(PLACE, **change))


def test_refuses_another_key() -> None:
    with pytest.raises(Undecryptable):
        opened(a_sealed().ciphertext, private=b"another key".ljust(32, b"."))


def test_refuses_parts_of_two_payloads() -> None:
    item, two = (Ciphertext.decode(a_sealed(body=b).ciphertext, 0) for b in (b"1", b"2"))
    other = Ciphertext.decode(
        seal_payload(
            recipient=PUBLIC, ephemeral=b"e" * 32, place=PLACE, header=HEADER, body=b"3",
            limits=LIMITS,
        ).ciphertext,
        0,
    )  # fmt: skip
    assert item.header == two.header
    for mixed in (replace(item, body=other.body), replace(item, header=other.header)):
        with pytest.raises(Undecryptable):
            opened(mixed.encode(0))


def test_opens_a_message_under_its_own_profile_only(a_msg: Callable[..., Msg]) -> None:
    msg = a_msg()
    place = SealPlace.of(msg, Profile())
    sealed = a_sealed(place=place)
    whole = replace(msg, ciphertext=sealed.ciphertext, ct_hash=h(sealed.ciphertext))
    opened = open_msg(private=PRIVATE, msg=whole, profile=Profile(), limits=LIMITS)
    assert opened.body == b"a body"
    with pytest.raises(Untrusted):
        open_msg(private=PRIVATE, msg=whole, profile=Profile(pad_block=16), limits=LIMITS)


@pytest.mark.parametrize("key", [bytes(32), b"\x01" + bytes(31), b"short", b""], ids=bytes.hex)
def test_refuses_a_recipient_that_leads_to_no_secret(key: bytes) -> None:
    with pytest.raises(Untrusted):
        seal_payload(
            recipient=key, ephemeral=EPHEMERAL, place=PLACE, header=HEADER, body=b"", limits=LIMITS
        )


@pytest.mark.parametrize("enc", [bytes(32), b"\x01" + bytes(31)], ids=["zero", "one"])
def test_refuses_an_encapsulation_that_leads_to_no_secret(enc: bytes) -> None:
    parts = Ciphertext.decode(a_sealed().ciphertext, 0)
    with pytest.raises(Undecryptable):
        opened(replace(parts, enc=enc).encode(0))


@pytest.mark.parametrize("size", [0, 1, 31])
def test_refuses_an_ephemeral_that_is_too_short(size: int) -> None:
    with pytest.raises((Malformed, Untrusted)):
        HpkeSender(PUBLIC, bytes(size))


@pytest.mark.parametrize(
    "header",
    [
        {1: b"s" * 32, 6: 1},
        {1: b"s" * 32, 2: None},
        {1: b"s" * 31},
        {2: b"p" * 32},
        {},
        [b"s" * 32],
    ],
    ids=repr,
)
def test_refuses_a_header_that_is_no_payload_hdr(header: Any) -> None:
    with pytest.raises(Malformed):
        opened(sealed_by_hand(cbor.encode(header)))


@pytest.mark.parametrize("size", [0, 1, 15])
def test_refuses_a_body_too_short_to_be_authentic(size: int) -> None:
    with pytest.raises((Untrusted, Malformed)):
        opened(sealed_by_hand(HEADER.encode(), bytes(size)))


def test_refuses_a_header_too_short_to_be_authentic() -> None:
    parts = Ciphertext.decode(a_sealed().ciphertext, 0)
    for size in range(16):
        with pytest.raises(Undecryptable):
            opened(replace(parts, header=parts.header[:size]).encode(0))


def a_sealed_msg(a_msg: Callable[..., Msg], body: bytes, **changes: Any) -> Msg:
    """A message whose payload was sealed for the place that the message has."""
    plain = a_msg(**changes)
    sealed = a_sealed(place=SealPlace.of(plain, Profile()), body=body)
    return a_msg(**changes, ciphertext=sealed.ciphertext)


def body_key_of(msg: Msg) -> bytes:
    return open_msg(private=PRIVATE, msg=msg, profile=Profile(), limits=LIMITS).body_key


@given(st.binary(max_size=200))
def test_the_key_of_a_body_opens_it_again(a_msg: Callable[..., Msg], body: bytes) -> None:
    msg = a_sealed_msg(a_msg, body)
    assert open_body(body_key=body_key_of(msg), msg=msg, profile=Profile()) == body


def test_the_key_of_a_body_opens_no_other(a_msg: Callable[..., Msg]) -> None:
    msg, fresh = a_sealed_msg(a_msg, b"one"), b"other fresh bytes".ljust(32, b".")
    sealed = seal_payload(
        recipient=PUBLIC, ephemeral=fresh, place=SealPlace.of(msg, Profile()), header=HEADER,
        body=b"one", limits=LIMITS,
    )  # fmt: skip
    other, key = a_msg(ciphertext=sealed.ciphertext), body_key_of(msg)
    for wrong in (bytes(32), key[:-1] + bytes([key[-1] ^ 1])):
        with pytest.raises(Undecryptable):
            open_body(body_key=wrong, msg=msg, profile=Profile())
    with pytest.raises(Undecryptable):
        open_body(body_key=key, msg=other, profile=Profile())


@pytest.mark.parametrize(
    "moved", [{"label": b"m" * 32}, {"client_seq": 9}, {"prev_ack": 1}, {"auth_ref": b"a" * 32}]
)
def test_a_body_opens_in_its_own_place_only(
    a_msg: Callable[..., Msg], moved: dict[str, Any]
) -> None:
    msg = a_sealed_msg(a_msg, b"body")
    elsewhere = a_msg(ciphertext=msg.ciphertext, **moved)
    with pytest.raises(Undecryptable):
        open_body(body_key=body_key_of(msg), msg=elsewhere, profile=Profile())


def test_a_body_is_not_tried_when_the_message_does_not_cover_it(a_msg: Callable[..., Msg]) -> None:
    msg = a_sealed_msg(a_msg, b"body")
    key = body_key_of(msg)
    with pytest.raises(Untrusted, match="ct_hash"):
        open_body(body_key=key, msg=replace(msg, ct_hash=bytes(32)), profile=Profile())
    with pytest.raises(Untrusted, match="profile"):
        open_body(body_key=key, msg=msg, profile=Profile(pad_block=16))
