"""Core steps: what a hub must not take, each row of the admission table (spec 7, 8.2, 14.2).

After each refusal a right message gets the number it would have had: nothing was kept.
"""

from __future__ import annotations

import struct
from dataclasses import replace
from typing import Final

from cli.selftest.step import Step, expect
from cli.selftest.world import LIMITS, ROLLING, World
from veen.envelope import ErrorEnvelope
from veen.errors import Failure
from veen.msg import Msg
from veen.profile import Profile
from veen.receipt import Receipt

_BSTR32: Final = b"\x58\x20"


def signature(world: World) -> None:
    writer, other = world.writer(), world.key()
    good = writer.msg()
    flipped = replace(good, sig=bytes([good.sig[0] ^ 1]) + good.sig[1:])
    for bad in (flipped, good.signed(other), replace(good, prev_ack=0, sig=bytes(64))):
        writer.refused(Failure.SIG_INVALID, bad)
    writer.accepted(good)


def ciphertext_hash(world: World) -> None:
    writer = world.writer()
    writer.refused(Failure.CT_HASH, writer.msg(ct_hash=world.random.randbytes(32)))
    writer.accepted()


def prev_ack(world: World) -> None:
    """Neither beyond what the label holds, nor back behind what was said before."""
    writer = world.writer()
    writer.accepted()
    writer.refused(Failure.PREV_ACK, writer.msg(prev_ack=2))
    writer.accepted()
    writer.refused(Failure.PREV_ACK, writer.msg(prev_ack=0))
    writer.accepted()


def gap(world: World) -> None:
    writer = world.writer()
    for client_seq in (0, 2, 3):
        writer.refused(Failure.CLIENT_SEQ, writer.msg(client_seq=client_seq))
    writer.accepted()
    writer.refused(Failure.CLIENT_SEQ, writer.msg(client_seq=3))
    writer.accepted()


def duplicate(world: World) -> None:
    """The same message again is told where it is, with the receipt it had."""
    writer = world.writer()
    first = writer.msg()
    receipt = writer.accepted(first)
    _expect_place(writer.refused(Failure.DUPLICATE, first), receipt)
    writer.accepted()
    sealed_again = replace(first, prev_ack=1).signed(writer.key)
    _expect_place(writer.refused(Failure.DUPLICATE, sealed_again), receipt)
    writer.known(first, receipt)
    writer.accepted()


def _expect_place(refusal: ErrorEnvelope, receipt: Receipt) -> None:
    detail = refusal.detail or {}
    expect("where it is", detail.get("stream_seq"), receipt.stream_seq)
    expect("its receipt", detail.get("receipt"), receipt.encode())


def profile(world: World) -> None:
    """A profile the hub does not have, and one that the stream does not have."""
    writer = world.writer()
    for wrong in (Profile(pad_block=77), ROLLING):
        writer.refused(Failure.PROFILE, writer.msg(profile_id=wrong.profile_id()))
    writer.accepted()


def epoch_window(world: World) -> None:
    """Labels of epochs that are over or far ahead take nothing."""
    writer = world.writer(ROLLING)
    for distance in (-3, -100, 3, 100):
        writer.epoch = _epoch_now(world) + distance
        writer.refused(Failure.EPOCH, writer.msg())
    writer.epoch = _epoch_now(world)
    writer.accepted()


def _epoch_now(world: World) -> int:
    return ROLLING.epoch(world.api().status().hub_ts)


def size_prefilter(world: World) -> None:
    """One byte more than a message may have, before anything of it is parsed or even sent."""
    writer = world.writer()
    most = LIMITS.max_msg_bytes
    world.probe.announce("/v1/submit", 8 * most).refused_with(Failure.SIZE_PREFILTER)
    for size in (most + 1, most + 512):
        world.probe.submit(_of_size(size)).refused_with(Failure.SIZE_PREFILTER)
    world.probe.submit(_of_size(most)).refused_with(Failure.CBOR_INVALID)
    writer.accepted()


def _of_size(size: int) -> bytes:
    """An array of one byte string; no message, but nobody has looked yet."""
    return b"\x81\x5a" + struct.pack(">I", size - 6) + bytes(size - 6)


def size_fields(world: World) -> None:
    writer = world.writer()
    good = writer.msg()
    short = good.encode().replace(_BSTR32 + good.label, b"\x58\x1f" + good.label[:31], 1)
    world.probe.submit(short).refused_with(Failure.FIELD_SIZE)
    for header, body in (
        (LIMITS.max_hdr_bytes + 1, 0),
        (0, LIMITS.max_body_bytes + 1),
    ):
        frame = struct.pack(">32sII", bytes(32), header, body) + bytes(header + body)
        writer.refused(Failure.FIELD_SIZE, writer.around(frame))
    for frame in (b"", bytes(39), struct.pack(">32sII", bytes(32), 1, 0)):
        writer.refused(Failure.FIELD_SIZE, writer.around(frame))
    writer.refused(Failure.PADDING, writer.around(bytes(40) + b"\x01"))
    writer.accepted()


def version(world: World) -> None:
    writer = world.writer()
    good = writer.msg()
    second = good.encode()[:1] + b"\x02" + good.encode()[2:]
    world.probe.submit(second).refused_with(Failure.VERSION)
    writer.accepted(good)


def malformed_cbor(world: World) -> None:
    """Bytes that a lax reader would take for the same message."""
    writer = world.writer()
    good = writer.msg()
    for variant in _variants(good):
        world.probe.submit(variant).refused_with(Failure.CBOR_INVALID)
    writer.accepted(good)


def _variants(msg: Msg) -> list[bytes]:
    raw = msg.encode()
    count = raw[0] & 0x1F
    return [
        b"\x98" + bytes([count]) + raw[1:],
        raw[:1] + b"\x18\x01" + raw[2:],
        raw.replace(_BSTR32 + msg.label, b"\x59\x00\x20" + msg.label, 1),
        raw.replace(_BSTR32 + msg.label, b"\x78\x20" + b"a" * 32, 1),
        bytes([raw[0] + 1]) + raw[1:] + b"\xf6",
        bytes([raw[0] - 1]) + raw[1:-66],
        b"\xa1\x01" + raw,
    ]


STEPS: Final = (
    Step("signature", signature),
    Step("ciphertext-hash", ciphertext_hash),
    Step("sequence-prev-ack", prev_ack),
    Step("sequence-gap", gap),
    Step("duplicate", duplicate),
    Step("profile", profile),
    Step("epoch-window", epoch_window),
    Step("size-prefilter", size_prefilter),
    Step("size-fields", size_fields),
    Step("version", version),
    Step("malformed-cbor", malformed_cbor),
)
