"""Core steps about a hub: key rotation, crash, logs, fsck, and every refusal of admission.

They cover each row of the admission table (spec 7, 8.2, 14.2). After each refusal a valid message
gets the next number: nothing of the refused message was stored.
"""

from __future__ import annotations

import json
import struct
import time
from dataclasses import replace
from typing import Any, Final

from cli.hub_metrics import metrics_summary
from cli.selftest.samples import SelftestStep, Unexpected, expect, expect_that
from cli.selftest.world import LIMITS, ROLLING, World
from hub.fsck import fsck
from hub.storage import identity
from hub.storage.datadir import DataDirLock
from hub.storage.index import last_hub_ts
from veen.errors import Code, Failure
from veen.label import Profile
from veen.msg import Msg
from veen.receipt import Receipt
from veen.wire.api import ErrorEnvelope, HealthResponse

_OVERLAP_SEC: Final = 3_600
_METRICS: Final = (
    "veen_submit_ok_total",
    "veen_submit_err_total/E.SIG",
    "veen_verify_latency_ms",
    "veen_commit_latency_ms",
    "veen_end_to_end_latency_ms",
    "veen_queue_depth",
    "veen_rate_limited_total",
    "veen_checkpoint_interval",
)
_LOGGED: Final = (
    "label", "client_id_prefix", "stream_seq", "leaf_hash_prefix", "bytes_in", "bytes_out",
    "verify_ms", "commit_ms",
)  # fmt: skip
_BSTR32: Final = b"\x58\x20"


def key_rotation(world: World) -> None:
    """Both keys sign in the overlap, old receipts stay valid, and a client accepts the new key."""
    with world.client() as client:
        token = world.capability(client.session.identity.client_id)
        before = client.send(world.stream, b"before", capability=token).receipt
        world.hub.stop()
        _rotate(world)
        world.hub.start()
        after = client.send(world.stream, b"after", capability=token).receipt
        pairs = list(client.read(world.stream))
        followed = client.session.hub
    hub = world.api().status().identity()
    expect("the log", [pair.receipt for pair in pairs], [before, after])
    expect("hub_id", hub.hub_id, world.hub_id)
    old, new = hub.hub_keys[-2].hub_pk, hub.current.hub_pk
    for what, receipt, signer, other in (("old", before, old, new), ("new", after, new, old)):
        expect_that(receipt.is_signed_by(signer), f"the {what} receipt is by the {what} key")
        expect_that(not receipt.is_signed_by(other), f"the {what} receipt is by no other key")
    expect("the key that the client knows", followed.current.hub_pk, new)
    checkpoint = world.api().checkpoint(world.labels().at(0), 2)
    expect_that(checkpoint.is_signed_by(new), "the new key signs the checkpoint of the overlap")
    expect_that(checkpoint.is_witnessed_by(new), "the new key witnesses the checkpoint")
    expect_that(
        checkpoint.is_witnessed_by(old), "the old key witnesses the checkpoint of the overlap"
    )


def _rotate(world: World) -> None:
    """Rotate the key, as ``veen hub rotate-key`` does."""
    lock = DataDirLock(world.hub.datadir)
    try:
        now = max(int(time.time()), last_hub_ts(world.hub.datadir))
        identity.rotate(world.hub.datadir, world.random.randbytes, now, _OVERLAP_SEC)
    finally:
        lock.release()


def restart(world: World) -> None:
    """A killed hub still has every message that it gave a receipt for."""
    writer = world.writer()
    messages: list[tuple[Msg, Receipt]] = []
    for _ in range(5):
        msg = writer.msg()
        messages.append((msg, writer.accepted(msg)))
    world.hub.end()
    world.hub.start()
    for msg, receipt in messages:
        stored = world.api().receipt(receipt.label, receipt.stream_seq)
        expect(f"receipt {receipt.stream_seq} after the kill", stored, receipt)
        writer.known(msg, receipt)
    writer.accepted()


def health_and_metrics(world: World) -> None:
    writer = world.writer()
    receipt = writer.accepted()
    bad = writer.msg().signed(world.key())
    writer.refused(Failure.SIG_INVALID, bad)
    health = HealthResponse.decode(world.probe.get("/healthz").body)
    detail = (health.ok, health.last_stream_seq, health.last_mmr_root)
    expect("health", detail, (True, receipt.stream_seq, receipt.mmr_root))
    first = _counters(world)
    missing = [name for name in _METRICS if name not in first]
    expect("metrics that are missing", missing, [])
    writer.accepted()
    second = _counters(world)
    for name, more in (("veen_submit_ok_total", 1), ("veen_submit_err_total/E.SIG", 0)):
        expect(f"growth of {name}", second[name] - first[name], more)
    _expect_logged(world, receipt)


def _counters(world: World) -> dict[str, Any]:
    return metrics_summary(world.probe.get("/metrics").body.decode())


def _expect_logged(world: World, receipt: Receipt) -> None:
    """Expect a JSON log line for an accepted and for a refused message (OBS0.2)."""
    lines = [json.loads(line) for line in world.hub.log.read_text().splitlines() if line[:1] == "{"]
    (taken,) = (line for line in lines if _is_of(line, receipt))
    expect(
        "fields of the log that are missing", [item for item in _LOGGED if item not in taken], []
    )
    expect_that(any(line.get("code") == Code.SIG.value for line in lines), "a refusal is logged")


def _is_of(line: dict[str, Any], receipt: Receipt) -> bool:
    place = (receipt.label.hex(), receipt.stream_seq)
    return (line.get("label"), line.get("stream_seq")) == place


def hub_verify(world: World) -> None:
    """fsck finds no fault in the directory of the stopped hub."""
    writer = world.writer()
    for _ in range(3):
        writer.accepted()
    world.api().checkpoint(writer.labels.at(0), 2)
    world.hub.stop()
    settings = world.hub.settings
    audit = fsck.verify(
        world.hub.datadir,
        limits=settings.limits,
        profiles=settings.profiles,
        streams=settings.streams,
        progress=lambda _done, _total: None,
    )
    if not audit.ok:
        first = audit.faults[0]
        raise Unexpected(
            f"expected no fault, got {len(audit.faults)}, "
            f"the first in {first.file} at byte {first.offset}: {first.what}"
        )
    expect_that(audit.entries >= 3 and audit.checkpoints >= 1, "all of it was looked at")


HUB_STEPS: Final = (
    SelftestStep("key-rotation", key_rotation),
    SelftestStep("restart", restart),
    SelftestStep("health-and-metrics", health_and_metrics),
    SelftestStep("hub-verify", hub_verify),
)


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
    """prev_ack beyond the head of the label, or less than before, is refused."""
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
    """A duplicate is refused with its stream_seq and its original receipt."""
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
    """A profile unknown to the hub, and one that the stream does not have, are refused."""
    writer = world.writer()
    for wrong in (Profile(pad_block=77), ROLLING):
        writer.refused(Failure.PROFILE, writer.msg(profile_id=wrong.profile_id()))
    writer.accepted()


def epoch_window(world: World) -> None:
    """Labels of past or far future epochs are refused."""
    writer = world.writer(ROLLING)
    for distance in (-3, -100, 3, 100):
        writer.epoch = _epoch_now(world) + distance
        writer.refused(Failure.EPOCH, writer.msg())
    writer.epoch = _epoch_now(world)
    writer.accepted()


def _epoch_now(world: World) -> int:
    return ROLLING.epoch(world.api().status().hub_ts)


def size_prefilter(world: World) -> None:
    """A message one byte too large is refused before it is parsed or even sent."""
    writer = world.writer()
    most = LIMITS.max_msg_bytes
    world.probe.announce("/v1/submit", 8 * most).refused_with(Failure.SIZE_PREFILTER)
    for size in (most + 1, most + 512):
        world.probe.submit(_of_size(size)).refused_with(Failure.SIZE_PREFILTER)
    world.probe.submit(_of_size(most)).refused_with(Failure.CBOR_INVALID)
    writer.accepted()


def _of_size(size: int) -> bytes:
    """An array with one byte string: not a message, but of the given size."""
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
    """Encodings that a lenient decoder would accept as the same message are refused."""
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


REFUSAL_STEPS: Final = (
    SelftestStep("signature", signature),
    SelftestStep("ciphertext-hash", ciphertext_hash),
    SelftestStep("sequence-prev-ack", prev_ack),
    SelftestStep("sequence-gap", gap),
    SelftestStep("duplicate", duplicate),
    SelftestStep("profile", profile),
    SelftestStep("epoch-window", epoch_window),
    SelftestStep("size-prefilter", size_prefilter),
    SelftestStep("size-fields", size_fields),
    SelftestStep("version", version),
    SelftestStep("malformed-cbor", malformed_cbor),
)
