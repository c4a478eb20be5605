"""Core steps: what is sent arrives, proved and readable for its reader alone (spec 4, 5)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from cli.selftest import naive
from cli.selftest.step import Step, expect, expect_raises, expect_that
from cli.selftest.world import LIMITS, World
from veen.attachment import coid
from veen.client.attachment_check import verify_files
from veen.errors import Code, Undecryptable, Untrusted
from veen.seal import Opened

_COUNT: Final = 5


def hub_start(world: World) -> None:
    """A fresh hub answers, keeps its gates shut and is the one in the directory."""
    status = world.api().status()
    expect("admission and reads", (status.admission, status.reads), ("gated", "policy"))
    with world.client() as client:
        expect("hub_id", client.meet().hub.hub_id, status.identity().hub_id)


def send_and_receive(world: World) -> None:
    bodies = [world.random.randbytes(64) for _ in range(_COUNT)]
    with world.client() as client:
        token = world.capability(client.session.identity.client_id)
        sent = [client.send(world.stream, body, capability=token) for body in bodies]
        expect("numbers", [one.receipt.stream_seq for one in sent], list(range(1, _COUNT + 1)))
        expect("what is proved", sent[-1].size, _COUNT)
        pairs = list(client.read(world.stream, with_proof=True))
        expect("what was read", [one.receipt for one in pairs], [one.receipt for one in sent])
        opened = [client.open_payload(one.msg).body for one in pairs]
    expect("what was opened", opened, bodies)
    leaves = [one.msg.leaf_hash() for one in pairs]
    roots = [naive.root(leaves[:size]) for size in range(1, _COUNT + 1)]
    expect("roots", [one.receipt.mmr_root for one in pairs], roots)


def to_another_reader(world: World) -> None:
    """What is sealed to somebody else opens there, and not with the sender's keys."""
    with world.client("reader") as reader, world.client("sender") as sender:
        token = world.capability(sender.session.identity.client_id)
        key = reader.session.identity.card.id_dh
        sent = sender.send(world.stream, b"for you", recipient=key, capability=token)
        (pair,) = reader.read(world.stream)
        expect("the message read", pair.msg, sent.msg)
        expect("what the reader opened", reader.open_payload(pair.msg).body, b"for you")
        expect_raises("the sender", Undecryptable, sender.open_payload, pair.msg)


def hub_is_blind(world: World) -> None:
    """Neither body, header nor attachment stands anywhere on the hub's side."""
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
    expect("coids", verify_files(opened, files, LIMITS), [coid(one) for one in sent.attachments])
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
    """Nobody reads without a right to, and no right reaches further than it says."""
    writer = world.writer()
    receipt = writer.accepted()
    place = b"\xa3\x01\x01\x02\x58\x20" + receipt.label + b"\x03\x01"
    for path in ("/v1/receipt", "/v1/stream", "/v1/proof"):
        for token, code in (
            ("", Code.UNAUTHORIZED),
            ("nobody's", Code.UNAUTHORIZED),
            (world.stranger_token, Code.FORBIDDEN),
        ):
            world.probe.post(path, place, token=token).refused_as(code)
    expect("status for a reader", world.probe.post("/v1/receipt", place).status, 200)


STEPS: Final = (
    Step("hub-start", hub_start),
    Step("send-and-receive", send_and_receive),
    Step("to-another-reader", to_another_reader),
    Step("hub-is-blind", hub_is_blind),
    Step("attachments", attachments),
    Step("read-access", read_access),
)
