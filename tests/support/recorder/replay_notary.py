"""A hub that signs what it is told, full of recorder events, and a checkpoint over all of it."""

from __future__ import annotations

from bisect import bisect_left
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from recorder.replay.job import Job
from recorder.replay.plan import HubSource
from support.client.lying_hub import NOON, LyingHub, NotThere, TheLog
from veen.client.client import Client
from veen.client.transport import RetryPolicy
from veen.client.verified_read import PAGE_ITEMS
from veen.crypto import SigningKey
from veen.digest import h
from veen.events import RECORD_SCHEMA, RecordEvent
from veen.keystore.directory import ClientDir
from veen.label import DEFAULT_PROFILE, stream_id
from veen.limits import Limits
from veen.msg import Msg
from veen.payload import PayloadHdr, SealPlace, seal_payload
from veen.receipt import Receipt
from veen.recorder_checkpoint import RecorderCheckpoint, StreamEnd, log_root
from veen.system.environment import Runtime
from veen.wire import api
from veen.wire.body import AnyItem
from veen.wire.canonical_json import json_to_cbor

STREAMS = ("record/a", "record/b", "record/c")
HASTY = RetryPolicy(attempts=1, first_sec=0.01, most_sec=0.02, timeout_sec=5)
PROFILE_ID = h(b"a profile")


class Notary(LyingHub):
    """The lying hub, which can also be asked for a place by time."""

    def _honest(self, path: str, target: str, body: bytes) -> tuple[Any, Any]:
        if path != "/tooling/locate":
            return super()._honest(path, target, body)
        asked = api.LocateRequest.decode(body)
        assert asked.label is not None
        assert asked.hub_ts is not None
        times = [Receipt.decode(raw).hub_ts for _, raw in self.the(asked.label).pairs]
        place = bisect_left(times, asked.hub_ts) + 1
        places = [api.EntryPlace(label=asked.label, stream_seq=place)]
        return asked, api.LocateResponse(places=tuple(places if place <= len(times) else []))


@dataclass
class Author:
    """A producer with its own key; ``client_seq`` counts in each label."""

    name: bytes
    counts: dict[bytes, int] | None = None

    @property
    def key(self) -> SigningKey:
        return SigningKey(h(b"author " + self.name))

    def msg(self, log: TheLog, recipient: bytes, body: bytes, schema: bytes = RECORD_SCHEMA) -> Msg:
        self.counts = self.counts or {}
        number = self.counts[log.label] = self.counts.get(log.label, 0) + 1
        return a_msg(self.key, log.label, number, recipient, body, schema)


def a_msg(
    key: SigningKey, label: bytes, number: int, recipient: bytes, body: bytes, schema: bytes
) -> Msg:
    place = SealPlace(
        profile=DEFAULT_PROFILE,
        label=label,
        client_id=key.public,
        client_seq=number,
        prev_ack=0,
        auth_ref=None,
    )
    sealed = seal_payload(
        recipient=recipient,
        ephemeral=h(label + key.public + number.to_bytes(8, "big")),
        place=place,
        header=PayloadHdr(schema=schema),
        body=body,
        limits=Limits(),
    )
    return Msg(
        profile_id=DEFAULT_PROFILE.profile_id(),
        label=label,
        client_id=key.public,
        client_seq=number,
        prev_ack=0,
        auth_ref=None,
        ct_hash=h(sealed.ciphertext),
        ciphertext=sealed.ciphertext,
    ).signed(key)


def an_event(principal: bytes, number: int = 1, **changes: Any) -> RecordEvent:
    usual: dict[str, Any] = {
        "subject_id": f"subject-{number % 3}",
        "principal_id": principal,
        "event_type": "test.done",
        "event_time": (NOON + number) * 1000 + 7,
        "origin": "line-1",
        "payload": AnyItem(json_to_cbor(f'{{"n": {number}, "x": 1.5, "text": "zwölf\\n"}}')),
    }
    return RecordEvent(**(usual | changes))


def fill(hub: Notary, recipient: bytes, counts: tuple[int, ...] = (12, 9, 5)) -> None:
    """Streams of two authors, with times that run into each other."""
    for index, (stream, count) in enumerate(zip(STREAMS, counts, strict=True)):
        log = hub.log(stream)
        authors = [Author(b"p"), Author(b"q")]
        for number in range(1, count + 1):
            author = authors[number % 2]
            log.hub_ts = NOON + (number + index) // 2
            body = an_event(author.key.public, number).encode()
            log.append(author.msg(log, recipient, body), hub.key)


def checkpoint_of(hub: Notary, streams: tuple[str, ...] = STREAMS) -> RecorderCheckpoint:
    """The document that the hub would sign over its streams as they stand."""
    by_id = sorted(streams, key=stream_id)
    logs = [hub.log(name) for name in by_id]
    ends = tuple(
        StreamEnd(stream_id=stream_id(name), last_seq=log.peaks.size, mmr_root=log.peaks.root())
        for name, log in zip(by_id, logs, strict=True)
    )
    return RecorderCheckpoint(
        hub_id=hub.identity.hub_id,
        hub_public=hub.key.public,
        profile_id=PROFILE_ID,
        created_at=NOON + 1_000,
        log_root=log_root(ends),
        ends=ends,
        names=tuple(by_id),
        checkpoints=tuple(log.checkpoint(hub.key) for log in logs),
    ).signed(hub.key)


def a_reader(directory: Path, url: str) -> Client:
    """A client that reads, made where there is none; its keys are the same in every run."""
    home = ClientDir(directory)
    if not home.keystore.exists():
        home.create(now=NOON - 100, random=_Bytes(), passphrase=None)
    around = Runtime(clock=lambda: NOON, random=_Bytes(), sleep=lambda _: None)
    return Client.open(directory, url, retry_policy=HASTY, runtime=around)


class _Bytes:
    def __init__(self) -> None:
        self._count = 0

    def __call__(self, size: int) -> bytes:
        self._count += 1
        return h(b"reader" + self._count.to_bytes(8, "big")).ljust(size, b".")[:size]


def a_job(
    client: Client,
    requested: Any,
    checkpoint: RecorderCheckpoint,
    page_items: int = PAGE_ITEMS,
    **more: Any,
) -> Job:
    return Job(
        source=HubSource(client, page_items),
        requested=lambda _: requested,
        latest=lambda: checkpoint,
        **more,
    )


def rebuilt(hub: Notary, stream: str, msgs: list[Msg]) -> None:
    """Another history of a stream in the place of the one there, all of it signed by the hub."""
    old = hub.log(stream)
    times = [Receipt.decode(raw).hub_ts for _, raw in old.pairs]
    new = replace(TheLog(old.label, old.epoch, old.label_prev))
    for number, msg in enumerate(msgs):
        new.hub_ts = times[min(number, len(times) - 1)]
        new.append(msg, hub.key)
    hub.logs[old.label] = new


__all__ = ["NOON", "NotThere", "TheLog"]
