"""Messages that no reader can use, put into a running hub's log past its admission.

A hub of an earlier release has accepted all of them, so every reader has to live with them.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from hub.admission.verified import Verified
from hub.sequencer.client import SequencerClient
from hub.storage.datadir import DataDir
from veen import aead, hpke, layout
from veen.ciphertext import Ciphertext
from veen.digest import h
from veen.hub_identity import HubIdentity
from veen.label import label, routing_key
from veen.limits import Limits
from veen.msg import Msg
from veen.payload import PayloadHdr
from veen.profile import DEFAULT_PROFILE
from veen.receipt import Receipt
from veen.record_event import SCHEMA
from veen.seal import Place, seal
from veen.sign import PrivateKey
from veen.stream import stream_id

KINDS = (
    "padding", "frame", "header", "cap_ref", "other key", "no encapsulation", "body", "no event",
)  # fmt: skip
"""What is wrong with each of the messages that ``messages`` gives, in this order."""
UNOPENABLE = KINDS[:-1]
"""Of the last one the seal holds; what is in it is no event."""


class Poisoner(NamedTuple):
    """A client that writes nothing else; ``recipient`` is who will try to open it.

    ``auth_ref`` names the client's capability where the hub is gated.
    """

    key: PrivateKey
    recipient: bytes
    auth_ref: bytes | None = None

    @classmethod
    def new(cls, recipient: bytes) -> Poisoner:
        return cls(PrivateKey(os.urandom(32)), recipient)

    def messages(self, data: Path, stream: str) -> list[Msg]:
        """One message of each kind, for a stream to which this client has written nothing yet."""
        hub = HubIdentity.decode((data / layout.IDENTITY).read_bytes())
        name = label(routing_key(hub.hub_id), stream_id(stream), 0)
        return [self._message(kind, number, name) for number, kind in enumerate(KINDS, 1)]

    def plant(self, data: Path, stream: str) -> list[Receipt]:
        """Have the hub's sequencer commit one of each, as if its worker had let them through."""
        return plant(data, self.messages(data, stream))

    def _message(self, kind: str, seq: int, name: bytes) -> Msg:
        place = Place(
            profile=DEFAULT_PROFILE,
            label=name,
            client_id=self.key.public,
            client_seq=seq,
            prev_ack=0,
            auth_ref=self.auth_ref,
        )
        sealed = ciphertext(kind, place, self.recipient)
        return Msg(
            profile_id=DEFAULT_PROFILE.profile_id(),
            label=name,
            client_id=self.key.public,
            client_seq=seq,
            prev_ack=0,
            auth_ref=self.auth_ref,
            ct_hash=h(sealed),
            ciphertext=sealed,
        ).signed(self.key)


def ciphertext(kind: str, place: Place, recipient: bytes) -> bytes:
    """What a client can send instead of a sealed event, by what is wrong with it."""
    if kind == "header":
        return _with_header(place, b"\xff no map", recipient)
    if kind == "frame":
        return bytes(40)
    cap = h(b"another") if kind == "cap_ref" else place.auth_ref
    header = PayloadHdr(schema=SCHEMA, cap_ref=cap)
    whole = seal(
        recipient=hpke.public_key(h(b"nobody")) if kind == "other key" else recipient,
        ephemeral=os.urandom(32),
        place=place,
        header=header,
        body=b"no event",
        limits=Limits(),
    ).ciphertext
    if kind == "padding":
        return whole + b"\x01"
    if kind == "no encapsulation":
        return bytes(32) + whole[32:]
    return whole[:-1] + bytes([whole[-1] ^ 1]) if kind == "body" else whole


def unopenable(number: int, place: Place, recipient: bytes) -> bytes:
    """One kind after another, by number."""
    return ciphertext(UNOPENABLE[number % len(UNOPENABLE)], place, recipient)


def _with_header(place: Place, header: bytes, recipient: bytes) -> bytes:
    sender = hpke.Sender(recipient, os.urandom(32))
    key = sender.export(b"veen/body-k", aead.KEY_BYTES)
    body = aead.encrypt(key, place.nonce(), place.aad(), b"no event")
    return Ciphertext(sender.enc, sender.seal(place.aad(), header), body).encode(0)


def plant(data: Path, messages: Sequence[Msg]) -> list[Receipt]:
    outcomes = SequencerClient(DataDir(data), 64).commit([Verified.of(one) for one in messages])
    found = []
    for one in outcomes:
        assert isinstance(one, bytes), one
        found.append(Receipt.decode(one))
    return found
