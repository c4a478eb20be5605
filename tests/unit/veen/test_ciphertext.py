"""The frame of a ciphertext, its sizes, and the references in its header (spec 4.2, 14.2)."""

from __future__ import annotations

import struct
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from veen.crypto import hpke_public_key
from veen.errors import Malformed, Untrusted, WrongSize
from veen.label import Profile
from veen.limits import Limits
from veen.payload import (
    Ciphertext,
    Opened,
    PayloadHdr,
    Sealed,
    SealPlace,
    check_ciphertext_sizes,
    open_payload,
    seal_payload,
)

PRIVATE = b"reader key".ljust(32, b".")
LIMITS = Limits()
PLACE = SealPlace(
    profile=Profile(), label=b"l" * 32, client_id=b"c" * 32, client_seq=1, prev_ack=0,
    auth_ref=b"r" * 32,
)  # fmt: skip
ENC = b"e" * 32
PARTS = Ciphertext(ENC, b"header", b"body")


def a_sealed(
    *attachments: bytes,
    header: PayloadHdr | None = None,
    limits: Limits = LIMITS,
    body: bytes = b"",
) -> Sealed:
    return seal_payload(
        recipient=hpke_public_key(PRIVATE), ephemeral=b"x" * 32, place=PLACE,
        header=header or PayloadHdr(schema=b"s" * 32), body=body, attachments=attachments,
        limits=limits,
    )  # fmt: skip


def opened(sealed: Sealed, limits: Limits = LIMITS) -> Opened:
    return open_payload(private=PRIVATE, place=PLACE, ciphertext=sealed.ciphertext, limits=limits)


def framed(hdr_len: int, body_len: int, rest: bytes) -> bytes:
    return ENC + struct.pack(">II", hdr_len, body_len) + rest


@given(st.binary(max_size=70), st.binary(max_size=70), st.sampled_from((0, 1, 2, 16, 256)))
def test_parts_survive_their_frame(header: bytes, body: bytes, pad_block: int) -> None:
    parts = Ciphertext(ENC, header, body)
    assert Ciphertext.decode(parts.encode(pad_block), pad_block) == parts


@given(st.binary(max_size=90), st.sampled_from((0, 1, 16)))
def test_any_bytes_are_malformed_or_a_frame_with_padding(raw: bytes, pad_block: int) -> None:
    try:
        parts = Ciphertext.decode(raw, pad_block)
    except Malformed:
        return
    frame = parts.encode(0)
    assert raw == frame + bytes(len(raw) - len(frame))


@pytest.mark.parametrize(
    ("hdr_len", "body_len"),
    [(2**32 - 1, 0), (0, 2**32 - 1), (2**32 - 1, 2**32 - 1), (11, 0), (0, 11), (5, 6), (2**31, 1)],
)
def test_refuses_lengths_beyond_the_ciphertext(hdr_len: int, body_len: int) -> None:
    raw = framed(hdr_len, body_len, bytes(10))
    with pytest.raises(Malformed):
        Ciphertext.decode(raw, 0)
    with pytest.raises(WrongSize):
        check_ciphertext_sizes(raw, LIMITS)


@pytest.mark.parametrize("size", range(40))
def test_refuses_what_is_too_short_for_a_frame(size: int) -> None:
    with pytest.raises(Malformed):
        Ciphertext.decode(bytes(size), 0)
    with pytest.raises(WrongSize):
        check_ciphertext_sizes(bytes(size), LIMITS)


@pytest.mark.parametrize("pad_block", [0, 16])
def test_refuses_padding_that_is_not_zero(pad_block: int) -> None:
    raw = PARTS.encode(16)
    for at in range(len(PARTS.encode(0)), len(raw)):
        with pytest.raises(Malformed):
            Ciphertext.decode(raw[:at] + b"\x01" + raw[at + 1 :], pad_block)


def test_refuses_padding_that_does_not_fill_a_block() -> None:
    raw = PARTS.encode(16)
    for change in (raw[:-1], raw + b"\x00", raw + bytes(15), PARTS.encode(0)):
        with pytest.raises(Malformed):
            Ciphertext.decode(change, 16)


def test_ignores_zeros_after_a_frame_without_blocks() -> None:
    assert Ciphertext.decode(PARTS.encode(0) + bytes(9), 0) == PARTS


@pytest.mark.parametrize(
    ("limits", "fits"),
    [
        (Limits(max_hdr_bytes=100), True),
        (Limits(max_hdr_bytes=99), False),
        (Limits(max_body_bytes=200), True),
        (Limits(max_body_bytes=199), False),
        (Limits(max_msg_bytes=340), True),
        (Limits(max_msg_bytes=339), False),
    ],
    ids=["header", "header + 1", "body", "body + 1", "whole", "whole + 1"],
)
def test_sizes_are_allowed_up_to_their_limits(limits: Limits, fits: bool) -> None:
    raw = framed(100, 200, bytes(300))
    if fits:
        check_ciphertext_sizes(raw, limits)
    else:
        with pytest.raises(WrongSize):
            check_ciphertext_sizes(raw, limits)


def test_padding_counts_as_message_and_not_as_body() -> None:
    raw = framed(0, 1, bytes(1)) + bytes(500)
    check_ciphertext_sizes(raw, Limits(max_body_bytes=1))
    with pytest.raises(WrongSize):
        check_ciphertext_sizes(raw, Limits(max_msg_bytes=540))


@pytest.mark.parametrize("limits", [Limits(max_hdr_bytes=20), Limits(max_body_bytes=20)], ids=str)
def test_neither_seals_nor_opens_beyond_the_limits(limits: Limits) -> None:
    with pytest.raises(WrongSize):
        a_sealed(body=b"five bytes", limits=limits)
    with pytest.raises(WrongSize):
        opened(a_sealed(body=b"five bytes"), limits)


def test_refuses_a_cap_ref_that_is_not_the_auth_ref() -> None:
    schema = b"s" * 32
    assert opened(a_sealed(header=PayloadHdr(schema=schema, cap_ref=b"r" * 32))).body == b""
    with pytest.raises(Untrusted):
        opened(a_sealed(header=PayloadHdr(schema=schema, cap_ref=b"q" * 32)))


def test_refuses_to_seal_an_att_root_that_was_given() -> None:
    with pytest.raises(Malformed):
        a_sealed(header=PayloadHdr(schema=b"s" * 32, att_root=b"a" * 32))


def test_refuses_attachments_other_than_those_of_the_header() -> None:
    sealed = a_sealed(b"one", b"two", b"three")
    item, two, three = sealed.attachments
    result = opened(sealed)
    flipped = bytes([item[0] ^ 1]) + item[1:]
    for wrong in (
        (), (item, two), (two, item, three), (item, three, two), (item, two, three, three),
        (flipped, two, three), (item, two, b""), a_sealed(b"one", b"two", b"four").attachments,
    ):  # fmt: skip
        with pytest.raises((Untrusted, Malformed)):
            result.attachments(wrong, LIMITS)


def test_refuses_attachments_of_a_header_without_att_root() -> None:
    with pytest.raises(Untrusted):
        opened(a_sealed()).attachments(a_sealed(b"one").attachments, LIMITS)


def test_refuses_more_attachments_than_allowed() -> None:
    few = replace(LIMITS, max_attachments_per_msg=2)
    sealed = a_sealed(b"1", b"2", b"3")
    with pytest.raises(WrongSize):
        a_sealed(b"1", b"2", b"3", limits=few)
    with pytest.raises(WrongSize):
        opened(sealed).attachments(sealed.attachments, few)


def test_refuses_to_seal_an_attachment_larger_than_allowed() -> None:
    with pytest.raises(WrongSize):
        a_sealed(b"1" * 11, limits=replace(LIMITS, max_attachment_bytes=10))


def test_refuses_to_open_an_attachment_larger_than_allowed() -> None:
    sealed = a_sealed(b"1" * 1000)
    with pytest.raises(WrongSize):
        opened(sealed).attachments(sealed.attachments, replace(LIMITS, max_attachment_bytes=10))
