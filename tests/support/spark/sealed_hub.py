"""A hub whose messages are sealed to a reader, or to someone else, over several days."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from hub.admission import VerifiedMsg
from support import poison
from support.hub.driven_hub import STREAMS, Bench, a_key
from support.spark import archived_hub
from veen.digest import h, ht, u64be
from veen.keystore.directory import ClientDir
from veen.keystore.sealed import LEAST
from veen.msg import Msg
from veen.payload import PayloadHdr, SealPlace, seal_payload

PASSPHRASE = b"the passphrase of the tests"
SCHEMA = h(b"record.event.v1")


class Sent(NamedTuple):
    """What was written, to be compared with a table."""

    stream: str
    hub_ts: int
    client_id: bytes
    body: bytes | None
    parent_id: bytes | None
    expires_at: int | None


def a_reader(root: Path) -> Any:
    """The identity that may read, and the file with its passphrase beside it."""
    seeds = iter(h(b"reader %d" % number) for number in range(100))
    directory = ClientDir(root)
    identity = directory.create(
        now=1_600_000_000,
        random=lambda size: (next(seeds) * 2)[:size],
        passphrase=PASSPHRASE,
        prekey_sec=10**9,
        cost=LEAST,
    )
    root.with_suffix(".passphrase").write_bytes(PASSPHRASE + b"\n")
    return identity


def send(bench: Bench, reader: Path, count: int) -> dict[bytes, Sent]:
    """Messages of one client in two streams, by msg_id; every fifth cannot be opened (H07)."""
    client, sent = a_key("carol"), {}
    recipient = ClientDir(reader).read_card().prekeys[0].prekey
    token = bench.authorize(client)
    for number in range(count):
        stream = STREAMS[number % 6 == 5]
        is_open = number % 5 != 3
        body = b"event %d" % number
        header = PayloadHdr(
            schema=SCHEMA,
            parent_id=h(body) if number % 3 else None,
            expires_at=2**64 - 1 if number % 7 == 0 else None,
        )
        sealed = body if is_open else None
        msg = _message(bench, client, stream, token, recipient, header, sealed)
        bench.committer.commit([VerifiedMsg.of(msg)], bench.now)
        stored = (body, header.parent_id, header.expires_at) if is_open else (None, None, None)
        sent[msg.leaf_hash()] = Sent(stream.name, bench.now, client.public, *stored)
        bench.now += 4_500
        bench.committer.tick(bench.now)
    return sent


@dataclass
class SealedHub:
    """A stopped hub with sealed events, its archive, and who may read it."""

    archived: Any
    client: Path
    sent: dict[bytes, Any]
    numbers: dict[tuple[bytes, bytes], int]
    now: int

    @property
    def passphrase_file(self) -> Path:
        return self.client.with_suffix(".passphrase")

    def send(self, count: int) -> None:
        """More events, pushed to the archive."""
        bench = Bench(self.archived.root, now=self.now, sent=dict(self.numbers))
        self.sent |= send(bench, self.client, count)
        bench.stop()
        archived_hub.archived(self.archived.root, self.archived.settings)


def _message(
    bench: Bench,
    client: Any,
    stream: Any,
    token: Any,
    to: bytes,
    header: PayloadHdr,
    body: bytes | None,
) -> Msg:
    """Without a body: one that ``to`` cannot open."""
    label = bench.label(stream)
    number = bench.sent.get((label, client.public), 0) + 1
    bench.sent[label, client.public] = number
    known = bench.committer.log.label(label)
    place = SealPlace(
        profile=stream.profile, label=label, client_id=client.public, client_seq=number,
        prev_ack=known.head_seq if known else 0, auth_ref=token.auth_ref(),
    )  # fmt: skip
    ephemeral = ht("tests/ephemeral", label, u64be(number))
    if body is None:
        sealed = poison.unopenable(number, place, to)
    else:
        sealed = seal_payload(
            recipient=to, ephemeral=ephemeral, place=place, header=header, body=body,
            limits=bench.limits,
        ).ciphertext  # fmt: skip
    return Msg(
        profile_id=stream.profile.profile_id(), label=label, client_id=client.public,
        client_seq=number, prev_ack=place.prev_ack, auth_ref=place.auth_ref,
        ct_hash=h(sealed), ciphertext=sealed,
    ).signed(client)  # fmt: skip
