"""Clients that read, writers that fill a log, and what they write."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from support.client.lying_hub import LyingHub, TheLog
from veen.client.hub_api import HubApi
from veen.client.session import Session
from veen.client.transport import HubAddress, RetryPolicy, Transport
from veen.crypto import SigningKey
from veen.digest import h
from veen.keystore.card import Identity, identity_of
from veen.keystore.sealed import generate_secrets
from veen.label import DEFAULT_PROFILE, Profile
from veen.limits import Limits
from veen.msg import Msg
from veen.payload import PayloadHdr, SealPlace, seal_payload
from veen.system.environment import Runtime

CLEAR = bytes(40)
"""The smallest ciphertext whose frame holds; nobody can open it."""


@dataclass
class Randomness:
    """Bytes that look random and are the same in every run."""

    seed: bytes
    count: int = 0

    def __call__(self, size: int) -> bytes:
        self.count += 1
        return h(self.seed + self.count.to_bytes(8, "big")).ljust(size, b".")[:size]


@dataclass
class Time:
    """Time that passes when someone sleeps."""

    now: float
    slept: list[float] = field(default_factory=list)

    def clock(self) -> int:
        return int(self.now)

    def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)
        self.now += seconds


def an_identity(name: bytes = b"reader", rotations: int = 0) -> Identity:
    secrets = generate_secrets(1_000, Randomness(name))
    for number in range(rotations):
        secrets = secrets.rotated(2_000 + number, Randomness(name + b"%d" % number))
    return identity_of(secrets, is_plain=True)


def a_session(
    url: str,
    root: Path,
    *,
    identity: Identity | None = None,
    time: Time | None = None,
    attempts: int = 1,
    **more: Any,
) -> Session:
    """A client directory against a hub, which it meets."""
    root.mkdir(exist_ok=True, parents=True)
    time = time or Time(1_900_000_000)
    around = Runtime(clock=time.clock, random=Randomness(b"session"), sleep=time.sleep)
    transport = Transport(url, runtime=around, retry_policy=RetryPolicy(attempts=attempts), **more)
    session = Session(root, identity or an_identity(), HubApi(transport), around)
    session.meet(HubAddress(transport.url, None), None)
    return session


@dataclass
class Writer:
    """One client of a log; its messages follow each other."""

    name: bytes
    profile: Profile = DEFAULT_PROFILE
    key: SigningKey | None = None
    auth_ref: bytes | None = None
    sent: dict[bytes, int] = field(default_factory=dict)

    @property
    def signer(self) -> SigningKey:
        return self.key or SigningKey(h(self.name))

    def msg(self, label: bytes, prev_ack: int = 0, body: bytes | None = None, **to: Any) -> Msg:
        signer = self.signer
        seq = self.sent[label] = self.sent.get(label, 0) + 1
        place = SealPlace(
            profile=self.profile, label=label, client_id=signer.public, client_seq=seq,
            prev_ack=prev_ack, auth_ref=self.auth_ref,
        )  # fmt: skip
        ciphertext = CLEAR if body is None else self._sealed(place, body, **to)
        return Msg(
            profile_id=self.profile.profile_id(), label=label, client_id=signer.public,
            client_seq=seq, prev_ack=prev_ack, auth_ref=self.auth_ref, ct_hash=h(ciphertext),
            ciphertext=ciphertext,
        ).signed(signer)  # fmt: skip

    def _sealed(self, place: SealPlace, body: bytes, recipient: bytes) -> bytes:
        ephemeral = h(b"%d" % place.client_seq + place.label + self.name)
        return seal_payload(
            recipient=recipient, ephemeral=ephemeral, place=place,
            header=PayloadHdr(schema=h(b"test.v1")), body=body, limits=Limits(),
        ).ciphertext  # fmt: skip


def fill(hub: LyingHub, log: TheLog, count: int, *writers: Writer, every: int = 0) -> None:
    """Messages of some writers in turns, with a checkpoint after each ``every``."""
    given = writers or (Writer(b"alice", hub.profile), Writer(b"bob", hub.profile))
    for number in range(count):
        log.append(given[number % len(given)].msg(log.label, log.peaks.size), hub.key)
        if every and log.peaks.size % every == 0:
            log.checkpoint(hub.key)
