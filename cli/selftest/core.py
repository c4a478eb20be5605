"""Core steps: capabilities (spec 6), epochs (4.4, 12), messages (4, 5) and recovery (RESYNC0)."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import replace
from typing import Final

from cli.selftest.samples import (
    SelftestStep,
    Unexpected,
    expect,
    expect_raises,
    expect_that,
    naive_root,
)
from cli.selftest.world import LIMITS, ROLLING, SampleWriter, World
from veen import captoken
from veen.captoken import CapToken, Rate
from veen.checkpoint import Checkpoint
from veen.client.client import Client
from veen.client.resync import Was
from veen.client.sealer import verify_files
from veen.client.transport import StateLost
from veen.errors import Code, Failure, Rejected, Undecryptable, Untrusted
from veen.label import EpochLabels, stream_id
from veen.mmr import Peaks
from veen.payload import Opened, attachment_coid
from veen.receipt import Receipt

_TTL_SEC: Final = 2
_BURST: Final = 3
_CAPABILITY_WAIT_SEC: Final = 30.0
_EPOCH_WAIT_SEC: Final = 60.0
_MESSAGE_COUNT: Final = 5
_STATE_COUNT: Final = 12
_BACK: Final = 5


def use(world: World) -> None:
    """Issue, authorize and use a capability; authorizing it again is idempotent."""
    with world.client() as client:
        token = world.token(client.session.identity.client_id)
        first = world.api().authorize(token)
        expect("auth_ref", first.auth_ref, token.auth_ref())
        expect("expires_at", first.expires_at, token.expires_at(first.issued_at))
        expect("the second time", world.api().authorize(token).receipt, first.receipt)
        known = world.api().capability(token.auth_ref())
        expect("what the hub knows", (known.token, known.issued_at), (token, first.issued_at))
        sent = client.send(world.stream, b"allowed", capability=token)
        expect("auth_ref of the message", sent.msg.auth_ref, token.auth_ref())


def missing(world: World) -> None:
    with world.client() as client:
        error = expect_raises(
            "a message without a capability", Rejected, client.send, world.stream, b""
        )
        expect("refusal", _failure(error), Failure.CAP_MISSING)
    writer = world.unauthorized_writer()
    writer.refused(Failure.CAP_MISSING, writer.msg())


def unknown(world: World) -> None:
    """A valid capability that was never authorized at the hub is refused."""
    writer = world.unauthorized_writer()
    token = world.token(writer.key.public)
    writer.auth_ref = token.auth_ref()
    writer.refused(Failure.CAP_MISSING, writer.msg())
    world.api().authorize(token)
    writer.accepted()


def wrong_subject(world: World) -> None:
    owner, thief = world.writer(), world.unauthorized_writer()
    thief.auth_ref = owner.auth_ref
    thief.refused(Failure.AUTH_REF, thief.msg())
    owner.accepted()


def wrong_stream(world: World) -> None:
    writer = world.unauthorized_writer()
    token = world.token(writer.key.public, stream=f"{world.stream}/other")
    world.api().authorize(token)
    writer.auth_ref = token.auth_ref()
    writer.refused(Failure.AUTH_REF, writer.msg())


def forged(world: World) -> None:
    """A capability of an unknown issuer, or with an invalid signature, is refused."""
    subject, foreign = world.key(), world.key()
    named = [stream_id(world.stream)]
    by_foreign = captoken.issue(foreign, subject_pk=subject.public, stream_ids=named, ttl=60)
    mine = world.token(subject.public)
    link = mine.sig_chain[0]
    broken = replace(mine, sig_chain=(bytes([link[0] ^ 1]) + link[1:],))
    longer = replace(mine, allow=replace(mine.allow, ttl=mine.allow.ttl + 1))
    for token in (by_foreign, broken, longer):
        _refuse(world, token)


def _refuse(world: World, token: CapToken) -> None:
    reply = world.probe.post("/tooling/authorize", token.encode())
    reply.refused_with(Failure.CAP_INVALID)


def expired(world: World) -> None:
    writer = world.unauthorized_writer()
    token = world.token(writer.key.public, ttl=_TTL_SEC)
    issued_at = world.api().authorize(token).issued_at
    writer.auth_ref = token.auth_ref()
    writer.accepted()
    _wait_until_after(world, token.expires_at(issued_at))
    writer.refused(Failure.CAP_TTL, writer.msg())


def _wait_until_after(world: World, second: int) -> None:
    api, deadline = world.api(), time.monotonic() + _CAPABILITY_WAIT_SEC
    while api.status().hub_ts <= second:
        if time.monotonic() > deadline:
            raise Unexpected(f"expected the hub's time to pass {second}")
        time.sleep(0.05)


def rate(world: World) -> None:
    """Exactly as many messages as the burst are accepted while no token is refilled."""
    writer = world.unauthorized_writer()
    limited = world.capability(writer.key.public, rate=Rate(per_sec=0, burst=_BURST))
    writer.auth_ref = limited.auth_ref()
    for _ in range(_BURST):
        writer.accepted()
    writer.refused(Failure.CAP_RATE, writer.msg())


def _failure(error: Exception) -> Failure | None:
    return error.failure if isinstance(error, Rejected) else None


CAPABILITY_STEPS: Final = (
    SelftestStep("capability-use", use),
    SelftestStep("capability-missing", missing),
    SelftestStep("capability-unknown", unknown),
    SelftestStep("capability-wrong-subject", wrong_subject),
    SelftestStep("capability-wrong-stream", wrong_stream),
    SelftestStep("capability-forged", forged),
    SelftestStep("capability-expired", expired),
    SelftestStep("capability-rate", rate),
)


def epoch_roll(world: World) -> None:
    """The old label ends with a checkpoint, named by the first entry of the new one (Vector C)."""
    labels, writer = world.labels(profile=ROLLING), world.writer(ROLLING)
    writer.epoch = old = _wait_for_epoch(world, after=0)
    before = [writer.accepted(), writer.accepted()]
    new = _wait_for_epoch(world, after=old)
    while new != old + 1:
        old, before = new, _begin_again(writer, new)
        new = _wait_for_epoch(world, after=old)
    writer.epoch, writer.client_seq, writer.prev_ack = new, 1, 0
    after = writer.accepted()
    _wait_for_epoch(world, after=new)
    _expect_end(world, labels, old, before)
    first = world.api().checkpoint(labels.at(new), 1)
    _expect_checkpoint(world, first, labels, new)
    expect("label_prev", first.label_prev, labels.at(old))
    expect("root of the new label", (first.upto_seq, first.mmr_root), (1, after.mmr_root))
    writer.epoch, writer.client_seq, writer.prev_ack = old, 3, 2
    writer.refused(Failure.EPOCH, writer.msg())


def _begin_again(writer: SampleWriter, epoch: int) -> list[Receipt]:
    """Retry the step: the host was too slow, and an epoch between the two labels has passed."""
    writer.epoch, writer.client_seq, writer.prev_ack = epoch, 1, 0
    return [writer.accepted(), writer.accepted()]


def _wait_for_epoch(world: World, after: int) -> int:
    """The current epoch of the hub, once it is later than ``after``."""
    api, deadline = world.api(), time.monotonic() + _EPOCH_WAIT_SEC
    while (epoch := ROLLING.epoch(api.status().hub_ts)) <= after:
        _pause(deadline, f"epoch {after} to be over")
    return epoch


def _expect_end(world: World, labels: EpochLabels, epoch: int, receipts: list[Receipt]) -> None:
    """Expect a closed label, with a checkpoint over all its entries."""
    api, deadline = world.api(), time.monotonic() + _EPOCH_WAIT_SEC
    label = labels.at(epoch)
    while not any(
        item.closed for stream in api.streams() for item in stream.labels if item.label == label
    ):
        _pause(deadline, f"the label of epoch {epoch} to be closed")
    last = api.checkpoint_latest(label)
    _expect_checkpoint(world, last, labels, epoch)
    expect("upto_seq of the last checkpoint", last.upto_seq, len(receipts))
    expect("root of the last checkpoint", last.mmr_root, receipts[-1].mmr_root)
    leaves = [receipt.leaf_hash for receipt in receipts]
    expect("root over the leaves", last.mmr_root, naive_root(leaves))


def _expect_checkpoint(
    world: World, checkpoint: Checkpoint, labels: EpochLabels, epoch: int
) -> None:
    last = world.api().receipt(checkpoint.label_curr, checkpoint.upto_seq)
    world.api().status().identity().verify_checkpoint(
        checkpoint, labels.profile, not_before=last.hub_ts
    )
    checkpoint.verify_labels(labels)
    expect("label and epoch", (checkpoint.label_curr, checkpoint.epoch), (labels.at(epoch), epoch))


def _pause(deadline: float, what: str) -> None:
    if time.monotonic() > deadline:
        raise Unexpected(f"expected {what} within {_EPOCH_WAIT_SEC:.0f} s")
    time.sleep(0.05)


EPOCH_STEPS: Final = (SelftestStep("epoch-roll", epoch_roll),)


def hub_start(world: World) -> None:
    """A new hub responds, is gated, and has the identity of its directory."""
    status = world.api().status()
    expect("admission and reads", (status.admission, status.reads), ("gated", "policy"))
    with world.client() as client:
        expect("hub_id", client.meet().hub.hub_id, status.identity().hub_id)


def send_and_receive(world: World) -> None:
    bodies = [world.random.randbytes(64) for _ in range(_MESSAGE_COUNT)]
    with world.client() as client:
        token = world.capability(client.session.identity.client_id)
        sent = [client.send(world.stream, body, capability=token) for body in bodies]
        expect(
            "numbers",
            [item.receipt.stream_seq for item in sent],
            list(range(1, _MESSAGE_COUNT + 1)),
        )
        expect("what is proved", sent[-1].size, _MESSAGE_COUNT)
        pairs = list(client.read(world.stream, with_proof=True))
        expect("what was read", [pair.receipt for pair in pairs], [item.receipt for item in sent])
        opened = [client.open_payload(pair.msg).body for pair in pairs]
    expect("what was opened", opened, bodies)
    leaves = [pair.msg.leaf_hash() for pair in pairs]
    roots = [naive_root(leaves[:size]) for size in range(1, _MESSAGE_COUNT + 1)]
    expect("roots", [pair.receipt.mmr_root for pair in pairs], roots)


def to_another_reader(world: World) -> None:
    """A message sealed to another recipient opens with its keys, not with those of the sender."""
    with world.client("reader") as reader, world.client("sender") as sender:
        token = world.capability(sender.session.identity.client_id)
        key = reader.session.identity.card.id_dh
        sent = sender.send(world.stream, b"for you", recipient=key, capability=token)
        (pair,) = reader.read(world.stream)
        expect("the message read", pair.msg, sent.msg)
        expect("what the reader opened", reader.open_payload(pair.msg).body, b"for you")
        expect_raises("the sender", Undecryptable, sender.open_payload, pair.msg)


def hub_is_blind(world: World) -> None:
    """No plaintext of body, header or attachment is stored by the hub."""
    words = [world.random.randbytes(24).hex().encode() for _ in range(3)]
    body, attachment, schema = words[0], words[1], world.random.randbytes(32)
    with world.client() as client:
        token = world.capability(client.session.identity.client_id)
        client.send(world.stream, body, schema=schema, attachments=[attachment], capability=token)
        (pair,) = client.read(world.stream)
        expect("what its reader opened", client.open_payload(pair.msg).body, body)
    files = list(_files_of(world))
    expect_that(any(pair.msg.ciphertext in content for _, content in files), "the log has it")
    for name, content in files:
        for what, secret in (("body", body), ("attachment", attachment), ("header", schema)):
            expect_that(secret not in content, f"the {what} in the clear is not in {name}")


def _files_of(world: World) -> Iterator[tuple[str, bytes]]:
    for path in (world.hub.log, *sorted(world.hub.datadir.root.rglob("*"))):
        if path.is_file():
            yield path.name, path.read_bytes()


def attachments(world: World) -> None:
    files = [world.random.randbytes(size) for size in (0, 1, 5_000)]
    with world.client() as client:
        token = world.capability(client.session.identity.client_id)
        sent = client.send(world.stream, b"{}", attachments=files, capability=token)
        (pair,) = client.read(world.stream)
        opened = client.open_payload(pair.msg)
    expect("the attachments", opened.attachments(sent.attachments, LIMITS), tuple(files))
    expect(
        "coids",
        verify_files(opened, files, LIMITS),
        [attachment_coid(attachment) for attachment in sent.attachments],
    )
    _refuse_altered(opened, files, sent.attachments)


def _refuse_altered(opened: Opened, files: list[bytes], sealed: tuple[bytes, ...]) -> None:
    flipped = bytes([sealed[2][0] ^ 1]) + sealed[2][1:]
    for what, wrong in (
        ("an altered attachment", (*sealed[:2], flipped)),
        ("attachments in another order", (sealed[1], sealed[0], sealed[2])),
        ("a missing attachment", sealed[:2]),
        ("one attachment too many", (*sealed, sealed[0])),
    ):
        expect_raises(what, Untrusted, opened.attachments, wrong, LIMITS)
    other = [*files[:2], files[2] + b"x"]
    expect_raises("another file", Untrusted, verify_files, opened, other, LIMITS)


def read_access(world: World) -> None:
    """Reads without permission, or beyond it, are refused."""
    writer = world.writer()
    receipt = writer.accepted()
    place = b"\xa3\x01\x01\x02\x58\x20" + receipt.label + b"\x03\x01"
    for path in ("/v1/receipt", "/v1/stream", "/v1/proof"):
        for token, code in (
            ("", Code.UNAUTHORIZED),
            ("nobody's", Code.UNAUTHORIZED),
            (world.unrelated_token, Code.FORBIDDEN),
        ):
            world.probe.post(path, place, token=token).refused_as(code)
    expect("status for a reader", world.probe.post("/v1/receipt", place).status, 200)


MESSAGE_STEPS: Final = (
    SelftestStep("hub-start", hub_start),
    SelftestStep("send-and-receive", send_and_receive),
    SelftestStep("to-another-reader", to_another_reader),
    SelftestStep("hub-is-blind", hub_is_blind),
    SelftestStep("attachments", attachments),
    SelftestStep("read-access", read_access),
)


def resync_after_loss(world: World) -> None:
    """A client without its state sends nothing until resync restores it."""
    with world.client() as client:
        token = world.capability(client.session.identity.client_id)
        _send(client, world, _STATE_COUNT)
        world.api().checkpoint(world.labels().at(0), _BACK)
    world.client_dir().state.unlink()
    with world.client() as client:
        client.renew(token)
        expect_raises("a message", StateLost, client.send, world.stream, b"x")
        client.withdraw(_STATE_COUNT + 1)
        resynced = client.resync(world.stream)
        detail = (resynced.was, resynced.replayed, resynced.to_size, resynced.checkpoints_checked)
        expect("resync", detail, (Was.LOST, _STATE_COUNT, _STATE_COUNT, 1))
        _expect_sound(client, world, _STATE_COUNT)
        sent = client.send(world.stream, b"on", capability=token)
        expect("the next message", (sent.msg.client_seq, sent.receipt.stream_seq), (13, 13))


def resync_when_behind(world: World) -> None:
    """Resync verifies and adds the messages of other clients."""
    with world.client() as client:
        world.capability(client.session.identity.client_id)
        _send(client, world, 2)
        with world.client("other") as other:
            _send(other, world, _BACK)
        resynced = client.resync(world.stream)
        detail = (resynced.was, resynced.from_size, resynced.to_size)
        expect("resync", detail, (Was.BEHIND, 2, 2 + _BACK))
        _expect_sound(client, world, 2 + _BACK)


def verify_state(world: World) -> None:
    """A state that was altered on disk is detected, and repaired from the log."""
    with world.client() as client:
        _send(client, world, _STATE_COUNT)
        _expect_sound(client, world, _STATE_COUNT)
        label = world.labels().at(0)
        view = client.session.view(label, world.stream, 0)
        wrong = (world.random.randbytes(32), *view.peaks.hashes[1:])
        client.session.keep(label, replace(view, peaks=Peaks(_STATE_COUNT, wrong)))
        expect_that(
            not client.verify_state(world.stream).consistent, "an altered state is inconsistent"
        )
        expect("resync", client.resync(world.stream).was, Was.DAMAGED)
        _expect_sound(client, world, _STATE_COUNT)


def _send(client: Client, world: World, count: int) -> None:
    token = world.capability(client.session.identity.client_id)
    bodies = (world.random.randbytes(16) for _ in range(count))
    expect("sent", len(list(client.send_many(world.stream, bodies, capability=token))), count)


def _expect_sound(client: Client, world: World, size: int) -> None:
    verify_state = client.verify_state(world.stream)
    detail = (
        verify_state.consistent,
        verify_state.local_seq,
        verify_state.hub_seq,
        verify_state.local_root == verify_state.hub_root,
    )
    expect("state", detail, (True, size, size, True))


STATE_STEPS: Final = (
    SelftestStep("resync-after-loss", resync_after_loss),
    SelftestStep("resync-when-behind", resync_when_behind),
    SelftestStep("verify-state", verify_state),
)
