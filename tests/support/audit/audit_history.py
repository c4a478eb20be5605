"""Histories made from the protocol alone: what a hub with one key accepted, label by label."""

from __future__ import annotations

import random
from dataclasses import dataclass, field

from veen import captoken, hub_identity, mmr, receipt
from veen.captoken import CapToken, Rate
from veen.crypto import SigningKey
from veen.digest import h
from veen.label import DEFAULT_PROFILE, EpochLabels, Profile, routing_key
from veen.limits import Limits
from veen.log.entry import AUTHORIZE, ControlRecord, Entry, StreamRecord, control_label
from veen.msg import Msg
from veen.receipt import Receipt

START = 1_700_000_000
LIMITS = Limits(max_checkpoint_interval=8)
HOURLY = Profile(epoch_sec=3_600)
STREAMS = (
    StreamRecord(name="record/a", profile=DEFAULT_PROFILE),
    StreamRecord(name="record/b", profile=DEFAULT_PROFILE),
    StreamRecord(name="epoch/c", profile=HOURLY),
)


def a_key(name: str) -> SigningKey:
    return SigningKey(h(name.encode()))


HUB, ISSUER = a_key("hub"), a_key("issuer")
IDENTITY = hub_identity.new_identity(HUB.public, START - 10, "none")


@dataclass
class Framed:
    """One entry of a history, before it is cut into chunks."""

    label: bytes
    seq: int
    msg: Msg
    receipt: Receipt

    def encode(self) -> bytes:
        entry = Entry(self.msg.encode(), self.receipt.encode())
        return entry.encode(self.label, self.seq)


@dataclass
class History:
    """What a hub with one key accepted, label by label."""

    now: int = START
    entries: dict[bytes, list[Framed]] = field(default_factory=dict)
    peaks: dict[bytes, mmr.Peaks] = field(default_factory=dict)
    sent: dict[tuple[bytes, bytes], int] = field(default_factory=dict)

    def label(self, stream: StreamRecord) -> bytes:
        labels = EpochLabels(routing_key(IDENTITY.hub_id), stream.stream_id(), stream.profile)
        return labels.at(stream.profile.epoch(self.now))

    def authorize(self, client: SigningKey, rate: Rate | None = None) -> CapToken:
        token = captoken.issue(
            ISSUER,
            subject_pk=client.public,
            stream_ids=[item.stream_id() for item in STREAMS],
            ttl=10**6,
            rate=rate,
        )
        label = control_label(IDENTITY.hub_id)
        number = self._next(label, HUB)
        record = ControlRecord(kind=AUTHORIZE, body=token.encode())
        self.take(record.msg(IDENTITY.hub_id, HUB, number, self._head(label)))
        return token

    def send(self, client: SigningKey, stream: StreamRecord, token: CapToken) -> None:
        self.take(self.message(client, stream, token).signed(client))

    def message(self, client: SigningKey, stream: StreamRecord, token: CapToken) -> Msg:
        label, ciphertext = self.label(stream), bytes(40)
        return Msg(
            profile_id=stream.profile.profile_id(),
            label=label,
            client_id=client.public,
            client_seq=self._next(label, client),
            prev_ack=self._head(label),
            auth_ref=token.auth_ref(),
            ct_hash=h(ciphertext),
            ciphertext=ciphertext,
        )

    def take(self, msg: Msg) -> None:
        peaks = self.peaks.get(msg.label, mmr.EMPTY).append(msg.leaf_hash())
        self.peaks[msg.label] = peaks
        raw = receipt.issue(
            HUB, label=msg.label, stream_seq=peaks.size, leaf=msg.leaf_hash(),
            root=peaks.root(), hub_ts=self.now,
        )  # fmt: skip
        framed = Framed(msg.label, peaks.size, msg, Receipt.decode(raw))
        self.entries.setdefault(msg.label, []).append(framed)

    def _next(self, label: bytes, client: SigningKey) -> int:
        number = self.sent.get((label, client.public), 0) + 1
        self.sent[label, client.public] = number
        return number

    def _head(self, label: bytes) -> int:
        return len(self.entries.get(label, ()))


def a_history(chance: random.Random, events: int) -> History:
    """Three clients, one of them held to a rate, in three streams."""
    history = History()
    clients = [a_key(f"client {number}") for number in range(3)]
    rates = [None, Rate(per_sec=5, burst=events), None]
    tokens = [history.authorize(client, rate) for client, rate in zip(clients, rates, strict=True)]
    for _ in range(events):
        which = chance.randrange(3)
        history.send(clients[which], chance.choice(STREAMS), tokens[which])
        history.now += chance.choice([0, 0, 0, 1, 2])
    return history
