"""Signed messages with a payload of 512 bytes, made beforehand, and the check of their receipts."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import sample

from veen import captoken
from veen.crypto import SigningKey
from veen.digest import h
from veen.label import derive_label, routing_key, stream_id
from veen.msg import Msg
from veen.receipt import Receipt

ISSUER = SigningKey(h(b"issuer"))
STREAM = "record/bench"
CIPHERTEXT = sample.a_ciphertext()
CT_HASH = h(CIPHERTEXT)
_TTL = 10**6


def label_of(hub_id: bytes) -> bytes:
    return derive_label(routing_key(hub_id), stream_id(STREAM), 0)


@dataclass(slots=True)
class Writer:
    """One client of a hub, whose messages follow each other."""

    key: SigningKey
    label: bytes
    token: captoken.CapToken
    auth_ref: bytes
    written: int = 0

    @classmethod
    def named(cls, number: int, hub_id: bytes) -> Writer:
        """A client with a capability, still to be made known, for the stream of the benchmarks."""
        key = SigningKey(h(b"writer %d" % number))
        ids = [stream_id(STREAM)]
        token = captoken.issue(ISSUER, subject_pk=key.public, stream_ids=ids, ttl=_TTL)
        return cls(key, label_of(hub_id), token, token.auth_ref())

    def unsigned(self) -> Msg:
        self.written += 1
        return Msg(
            profile_id=sample.PLACE.profile.profile_id(),
            label=self.label,
            client_id=self.key.public,
            client_seq=self.written,
            prev_ack=0,
            auth_ref=self.auth_ref,
            ct_hash=CT_HASH,
            ciphertext=CIPHERTEXT,
        )

    def write(self, count: int) -> list[Msg]:
        return [self.unsigned().signed(self.key) for _ in range(count)]


def verify(pairs: Iterable[tuple[Msg, bytes]], hub_pk: bytes) -> None:
    """Refuse unless each receipt is the hub's for its message; never in a timed window."""
    for msg, raw in pairs:
        receipt = Receipt.decode(raw)
        if receipt.leaf_hash != msg.leaf_hash() or not receipt.is_signed_by(hub_pk):
            raise AssertionError(f"a receipt that does not hold for client_seq {msg.client_seq}")
