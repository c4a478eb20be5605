"""Messages that no reader can use, put into a running hub's log past its admission.

A hub of an earlier release has accepted all of them, so every reader has to live with them.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from hub.admission import VerifiedMsg
from hub.sequencer.ipc import QueueBound, SequencerClient
from hub.storage.datadir import DataDir
from veen.crypto import AEAD_KEY_BYTES, HpkeSender, SigningKey, aead_encrypt, hpke_public_key
from veen.digest import h
from veen.events import RECORD_SCHEMA
from veen.hub_identity import HubIdentity
from veen.label import DEFAULT_PROFILE, derive_label, routing_key, stream_id
from veen.limits import Limits
from veen.log import layout
from veen.msg import Msg
from veen.payload import Ciphertext, PayloadHdr, SealPlace, seal_payload
from veen.receipt import Receipt

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

    key: SigningKey
    recipient: bytes
    auth_ref: bytes | None = None

    @classmethod
    def new(cls, recipient: bytes) -> Poisoner:
        return cls(SigningKey(os.urandom(32)), recipient)

    def messages(self, data: Path, stream: str) -> list[Msg]:
        """One message of each kind, for a stream to which this client has written nothing yet."""
        hub = HubIdentity.decode((data / layout.IDENTITY).read_bytes())
        name = derive_label(routing_key(hub.hub_id), stream_id(stream), 0)
        return [self._message(kind, number, name) for number, kind in enumerate(KINDS, 1)]

    def plant(self, data: Path, stream: str) -> list[Receipt]:
        """Have the hub's sequencer commit one of each, as if its worker had let them through."""
        return plant(data, self.messages(data, stream))

    def _message(self, kind: str, seq: int, name: bytes) -> Msg:
        place = SealPlace(
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


def ciphertext(kind: str, place: SealPlace, recipient: bytes) -> bytes:
    """What a client can send instead of a sealed event, by what is wrong with it."""
    if kind == "header":
        return _with_header(place, b"\xff no map", recipient)
    if kind == "frame":
        return bytes(40)
    cap = h(b"another") if kind == "cap_ref" else place.auth_ref
    header = PayloadHdr(schema=RECORD_SCHEMA, cap_ref=cap)
    whole = seal_payload(
        recipient=hpke_public_key(h(b"nobody")) if kind == "other key" else recipient,
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


def unopenable(number: int, place: SealPlace, recipient: bytes) -> bytes:
    """One kind after another, by number."""
    return ciphertext(UNOPENABLE[number % len(UNOPENABLE)], place, recipient)


def _with_header(place: SealPlace, header: bytes, recipient: bytes) -> bytes:
    sender = HpkeSender(recipient, os.urandom(32))
    key = sender.export(b"veen/body-k", AEAD_KEY_BYTES)
    body = aead_encrypt(key, place.nonce(), place.aad(), b"no event")
    return Ciphertext(sender.enc, sender.seal(place.aad(), header), body).encode(0)


def plant(data: Path, messages: Sequence[Msg]) -> list[Receipt]:
    outcomes = SequencerClient(DataDir(data), QueueBound(64)).commit(
        [VerifiedMsg.of(message) for message in messages]
    )
    result = []
    for outcome in outcomes:
        assert isinstance(outcome, bytes), outcome
        result.append(Receipt.decode(outcome))
    return result
