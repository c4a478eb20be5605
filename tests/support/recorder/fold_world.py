"""Logs that a real committer wrote in chunks of a chosen size, archived by a real push.

Each stream of a hub is a random history; what its messages mean stands beside it.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from random import Random
from typing import Any

from hub.admission import Gate, VerifiedMsg
from hub.sequencer.committer import Committer
from hub.storage import identity
from hub.storage.datadir import DataDir, DataDirLock
from hub.storage.log import HubLog
from recorder.archive.push import push
from recorder.archive.source import PushSource
from recorder.archive.store import HubArchive
from recorder.folds.job import FoldJob, FoldRequest, FoldResult, carry_out
from recorder.folds.source import ArchiveSource, FoldReader
from support import poison
from veen.crypto import SigningKey
from veen.digest import h
from veen.keystore.directory import ClientDir
from veen.label import DEFAULT_PROFILE, derive_label, routing_key, stream_id
from veen.limits import Limits
from veen.msg import Msg
from veen.objects.port import FileSettings, Store
from veen.objects.store import open_store
from veen.payload import PayloadHdr, SealPlace, seal_payload
from veen.receipt import Receipt

BEGIN = 1_700_000_000
LIMITS = Limits()


@dataclass
class Reader:
    """A client directory without a passphrase, and who it is."""

    root: Path
    public: bytes
    keys: tuple[bytes, ...]

    @classmethod
    def new(cls, root: Path) -> Reader:
        identity = ClientDir(root).create(now=BEGIN, random=os.urandom, passphrase=None)
        return cls(root, identity.card.recipient(BEGIN), identity.readers())

    def open(self) -> FoldReader:
        return FoldReader(self.keys, DEFAULT_PROFILE, LIMITS)


@dataclass
class Hub:
    """A hub in this process; it is closed before it is pushed."""

    root: Path
    reader: Reader
    entries_in_chunk: int
    now: int = BEGIN
    detail: dict[str, list[Any]] = field(default_factory=dict)
    written: dict[tuple[str, bytes], int] = field(default_factory=dict)
    hub_id: bytes = b""

    def write(self, stream: str, messages: Iterable[Any], chance: Random) -> None:
        """Append messages to a stream."""
        self.write_all({stream: messages}, chance)

    def write_all(self, streams: Mapping[str, Iterable[Any]], chance: Random) -> None:
        """Append messages to streams, in groups of chance; what they mean is kept, with the
        places, times and clients that they have come to have."""
        datadir = DataDir(self.root)
        datadir.create()
        lock = DataDirLock(datadir)
        keys = identity.load_or_create(datadir, os.urandom, BEGIN)
        limits = replace(LIMITS, max_checkpoint_interval=self.entries_in_chunk)
        log = HubLog(datadir, keys, limits, ())
        self.hub_id = keys.hub_id
        try:
            committer = Committer(log, Gate(required=False, issuers=frozenset()))
            for stream, messages in streams.items():
                waiting = list(messages)
                while waiting:
                    size = chance.randint(1, 60)
                    group, waiting = waiting[:size], waiting[size:]
                    self.now += chance.choice([0, 1, 40_000])
                    self._commit(committer, stream, group)
        finally:
            log.close()
            lock.release()

    def _commit(self, committer: Committer, stream: str, group: list[Any]) -> None:
        signed = [self._msg(stream, message) for message in group]
        outcomes = committer.commit([VerifiedMsg.of(msg) for msg in signed], self.now)
        for message, msg, outcome in zip(group, signed, outcomes, strict=True):
            assert isinstance(outcome, bytes), outcome
            receipt = Receipt.decode(outcome)
            place = {"stream_seq": receipt.stream_seq, "hub_ts": receipt.hub_ts}
            self.detail.setdefault(stream, []).append(
                replace(message, **place, client_id=msg.client_id)
            )

    def _msg(self, stream: str, message: Any) -> Msg:
        key = SigningKey(message.client_id)
        where = derive_label(routing_key(self.hub_id), stream_id(stream), 0)
        seq = self.written[stream, key.public] = self.written.get((stream, key.public), 0) + 1
        place = SealPlace(
            profile=DEFAULT_PROFILE, label=where, client_id=key.public, client_seq=seq, prev_ack=0,
            auth_ref=None,
        )  # fmt: skip
        sealed = self._sealed(place, message) if message.schema else self._unopenable(place)
        bare = Msg(
            profile_id=DEFAULT_PROFILE.profile_id(), label=where, client_id=key.public,
            client_seq=seq, prev_ack=0, auth_ref=None, ct_hash=h(sealed), ciphertext=sealed,
        )  # fmt: skip
        return bare.signed(key)

    def _sealed(self, place: SealPlace, message: Any) -> bytes:
        return seal_payload(
            recipient=self.reader.public,
            ephemeral=os.urandom(32),
            place=place,
            header=PayloadHdr(schema=message.schema),
            body=message.body,
            limits=LIMITS,
        ).ciphertext

    def _unopenable(self, place: SealPlace) -> bytes:
        """H07: for a stranger, or not to be opened by anybody."""
        return poison.unopenable(place.client_seq, place, self.reader.public)


@dataclass
class Archived:
    """A hub's archive in a store, and folds of it in this process."""

    hub: Hub
    store: Store
    folder: Path | None = None

    def push(self) -> Archived:
        push(PushSource(self.hub.root, LIMITS), self.store, sealer=None, progress=_quiet)
        return self

    @property
    def archive(self) -> HubArchive:
        return HubArchive(self.store, self.hub.hub_id)

    def job(self, stream: str, overlay: str, **more: Any) -> FoldJob:
        return FoldRequest(stream=stream, overlay=overlay, **more).job(self.archive)

    def source(self, job: FoldJob) -> ArchiveSource:
        return job.source(self.archive, self.hub.reader.open())

    def fold(self, job: FoldJob) -> FoldResult:
        return carry_out(job, self.source(job))

    def summaries(self) -> Iterator[str]:
        return (key for key in self.store.objects.keys("folds/") if "/summary/" in key)


def in_directory(hub: Hub, folder: Path) -> Archived:
    return Archived(hub, open_store(FileSettings(folder)), folder).push()


def _quiet(_done: int, _total: int | None) -> None:
    pass
