"""Data directories made by the hub's own committer, small enough to be broken in every way."""

from __future__ import annotations

import sqlite3
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from hub.admission import Gate, VerifiedMsg
from hub.fsck.fsck import verify
from hub.sequencer.committer import Committer, Outcome
from hub.storage import identity
from hub.storage import rebuild as state
from hub.storage.datadir import DataDir, DataDirLock
from hub.storage.index import added_since
from hub.storage.log import HubLog
from veen import captoken
from veen.audit.report import AuditReport
from veen.captoken import CapToken, Rate
from veen.crypto import SigningKey
from veen.digest import h
from veen.label import DEFAULT_PROFILE, EpochLabels, Profile, routing_key
from veen.limits import Limits
from veen.log.entry import StreamRecord
from veen.msg import Msg

START = 1_700_000_000
LIMITS = Limits(max_checkpoint_interval=8)
HOURLY = Profile(epoch_sec=3_600)
STREAMS = (
    StreamRecord(name="record/a", profile=DEFAULT_PROFILE),
    StreamRecord(name="epoch/b", profile=HOURLY),
)
ISSUER = SigningKey(b"issuer".ljust(32, b"."))


def a_key(name: str) -> SigningKey:
    return SigningKey(name.encode().ljust(32, b"."))


def randomness(size: int) -> bytes:
    return b"hub seed".ljust(size, b".")


@dataclass
class Bench:
    """A hub in a directory, driven by hand: time moves only when a test moves it."""

    root: Path
    limits: Limits = LIMITS
    now: int = START
    sent: dict[tuple[bytes, bytes], int] = field(default_factory=dict)
    committer: Any = None

    def __post_init__(self) -> None:
        self.datadir = DataDir(self.root)
        self.datadir.create()
        self.start()

    def start(self) -> None:
        self.lock = DataDirLock(self.datadir)
        try:
            keys = identity.load_or_create(self.datadir, randomness, self.now)
            log = HubLog(self.datadir, keys, self.limits, STREAMS)
        except BaseException:
            self.lock.release()
            raise
        self.committer = Committer(log, Gate(True, frozenset({ISSUER.public})))

    def stop(self) -> None:
        self.committer.log.close()
        self.lock.release()

    def restart(self) -> None:
        self.stop()
        self.start()

    def label(self, stream: StreamRecord, hub_ts: int | None = None) -> bytes:
        keys = identity.read_identity(self.datadir)
        labels = EpochLabels(routing_key(keys.hub_id), stream.stream_id(), stream.profile)
        return labels.at(stream.profile.epoch(self.now if hub_ts is None else hub_ts))

    def authorize(self, client: SigningKey, rate: Rate | None = None) -> CapToken:
        token = captoken.issue(
            ISSUER,
            subject_pk=client.public,
            stream_ids=[item.stream_id() for item in STREAMS],
            ttl=10**9,
            rate=rate,
        )
        self.committer.authorize(token, self.now)
        return token

    def message(
        self, client: SigningKey, stream: StreamRecord, token: CapToken, size: int = 0
    ) -> VerifiedMsg:
        label = self.label(stream)
        seq = self.sent.get((label, client.public), 0) + 1
        self.sent[label, client.public] = seq
        ciphertext = bytes(32) + bytes(8) + bytes(size)
        known = self.committer.log.label(label)
        msg = Msg(
            profile_id=stream.profile.profile_id(),
            label=label,
            client_id=client.public,
            client_seq=seq,
            prev_ack=known.head_seq if known else 0,
            auth_ref=token.auth_ref(),
            ct_hash=h(ciphertext),
            ciphertext=ciphertext,
        ).signed(client)
        return VerifiedMsg.of(msg)

    def send(
        self,
        client: SigningKey,
        stream: StreamRecord,
        token: CapToken,
        count: int = 1,
        size: int = 0,
    ) -> list[Outcome]:
        """Commit messages whose bodies have so many bytes."""
        messages = [self.message(client, stream, token, size) for _ in range(count)]
        return list(self.committer.commit(messages, self.now))

    def verify(self) -> AuditReport:
        return check(self.root, self.limits)


def check(root: Path, limits: Limits = LIMITS) -> AuditReport:
    return verify(
        DataDir(root),
        limits=limits,
        profiles=(DEFAULT_PROFILE, HOURLY),
        streams=STREAMS,
        progress=lambda *_: None,
    )


def rebuild(root: Path, limits: Limits = LIMITS) -> state.RebuildReport:
    return state.rebuild(DataDir(root), limits=limits, streams=STREAMS, progress=lambda *_: None)


def the(root: Path, pattern: str, place: int = 0) -> Path:
    """One file of a directory, in the order of names."""
    return sorted(root.glob(pattern))[place]


def fill(bench: Bench) -> None:
    """Two clients, a rate across two labels, one epoch that ends, requested checkpoints."""
    plain, epochs = STREAMS
    alice, bob = a_key("alice"), a_key("bob")
    bench.committer.register(StreamRecord(name="extra/c", profile=DEFAULT_PROFILE), bench.now)
    free, rated = bench.authorize(alice), bench.authorize(bob, Rate(per_sec=2, burst=6))
    for _ in range(7):
        bench.send(alice, plain, free, 2)
        bench.send(bob, plain, rated)
        bench.send(bob, epochs, rated)
        bench.now += 1
    bench.committer.checkpoint(bench.label(plain), 11, bench.now)
    bench.now += 7_200
    bench.committer.tick(bench.now)
    for _ in range(9):
        bench.send(bob, epochs, rated)
        bench.now += 1
    bench.send(alice, plain, free, 3)


def put_back_index(datadir: DataDir, version: int) -> None:
    """Make the index of a stopped hub one of an earlier version."""
    db = sqlite3.connect(datadir.index)
    for name in added_since(version):
        row = db.execute("SELECT type FROM sqlite_master WHERE name = ?", (name,)).fetchone()
        if row is not None:
            db.execute(f"DROP {row[0]} {name}")
    db.execute("UPDATE meta SET value = ? WHERE key = 'version'", (version,))
    db.commit()
    db.close()
