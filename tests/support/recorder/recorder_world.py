"""A recorder as the tests here want it, and what is in its streams."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from hashlib import sha256
from pathlib import Path
from typing import Any

from recorder.connect import open_recorder_client, reader_key
from recorder.emit.emitter import Emitter, Observation
from recorder.settings import RecorderSettings, parse
from support.hub.hub_process import configured
from veen import captoken
from veen.client.client import Client
from veen.client.outbox import Bounds
from veen.client.transport import RetryPolicy
from veen.crypto import SigningKey
from veen.events import RecordEvent, read_event
from veen.hub_identity import HubIdentity
from veen.keystore.directory import ClientDir
from veen.label import stream_id
from veen.log import layout
from veen.system.environment import Runtime

ISSUER = SigningKey(sha256(b"issuer of the recorder").digest())
HASTY = RetryPolicy(attempts=3, first_sec=0.01, most_sec=0.05, timeout_sec=5)
ORDERS, LOGS = "record/app/orders", "record/infrastructure/logs"
STREAMS: list[dict[str, Any]] = [
    {"name": ORDERS, "event_types": ["order.placed", "order.cancelled"]},
    {
        "name": LOGS,
        "event_types": ["log.line", "log.unparsed", "log.dropped"],
        "max_payload_bytes": 4_096,
    },
]
NOWHERE = "http://127.0.0.1:9"


def runtime() -> Runtime:
    return Runtime(clock=lambda: int(time.time()), random=os.urandom, sleep=time.sleep)


def now_ms() -> int:
    return time.time_ns() // 1_000_000


def a_document(**changes: Any) -> dict[str, Any]:
    """A whole configuration; a test names only what it changes."""
    usual: dict[str, Any] = {
        "zone": "plant-1",
        "hub": {"url": NOWHERE, "hub_id": "11" * 32, "client": "producer"},
        "streams": STREAMS,
    }
    return usual | changes


def observed(**changes: Any) -> Observation:
    usual: dict[str, Any] = {
        "event_type": "order.placed", "subject_id": "user:7", "origin": "shop",
        "payload": {"n": 1}, "event_time": 1_700_000_000_123,
    }  # fmt: skip
    return Observation(**(usual | changes))


def an_identity(directory: Path) -> bytes:
    home = ClientDir(directory)
    identity = home.create(now=int(time.time()), random=os.urandom, passphrase=None)
    return identity.client_id


@contextmanager
def offline_emitter(folder: Path, **changes: Any) -> Iterator[Emitter]:
    if not (folder / "producer").exists():
        an_identity(folder / "producer")
    settings = parse(a_document(**changes), folder)
    with open_recorder_client(
        settings.hub, passphrase=None, runtime=runtime(), retry_policy=HASTY
    ) as client:
        yield Emitter(client, settings.streams, clock=now_ms)


@contextmanager
def bounded_emitter(folder: Path, max_events: int, url: str = NOWHERE) -> Iterator[Emitter]:
    """An emitter of a producer whose outbox holds so many events, at a hub that may not answer."""
    if not (folder / "producer").exists():
        an_identity(folder / "producer")
    settings = parse(a_document(), folder)
    with Client.open(
        folder / "producer",
        url,
        hub_id=settings.hub.hub_id if url == NOWHERE else None,
        retry_policy=HASTY,
        runtime=runtime(),
        bounds=Bounds(max_events=max_events),
    ) as client:
        yield Emitter(client, settings.streams, clock=now_ms)


class World:
    """A hub that is not started yet, and whoever speaks to it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.ids = {name: an_identity(folder / name) for name in ("producer", "admin")}
        self.hub = configured(folder / "hub", self._hub_toml())

    def settings(self, **changes: Any) -> RecorderSettings:
        return parse(self.document(**changes), self.folder)

    def document(self, **changes: Any) -> dict[str, Any]:
        hub = {
            "url": self.hub.url,
            "hub_id": self.hub_id().hex(),
            "client": "producer",
            "reader": "admin/identity_card.pub",
        }
        streams = [item | {"producers": [self.ids["producer"].hex()]} for item in STREAMS]
        usual = {"hub": hub, "streams": streams, "admins": [self.ids["admin"].hex()]}
        return a_document(**(usual | changes))

    def hub_id(self) -> bytes:
        identity = HubIdentity.decode((self.hub.data / layout.IDENTITY).read_bytes())
        return identity.hub_id

    def token(self, name: str, settings: RecorderSettings) -> captoken.CapToken:
        streams = [
            stream.name
            for stream in settings.streams.streams
            if self.ids[name] in settings.streams.writers(stream)
        ]
        return captoken.issue(
            ISSUER,
            subject_pk=self.ids[name],
            stream_ids=[stream_id(stream) for stream in streams],
            ttl=86_400,
        )

    @contextmanager
    def client(self, name: str, settings: RecorderSettings) -> Iterator[Client]:
        """With its capability."""
        with open_recorder_client(
            settings.hub,
            passphrase=None,
            runtime=runtime(),
            directory=self.folder / name,
            retry_policy=HASTY,
        ) as client:
            client.renew(self.token(name, settings))
            yield client

    @contextmanager
    def emitter(self, name: str = "producer", **changes: Any) -> Iterator[Emitter]:
        """With a capability that the hub knows, if the hub answers."""
        settings = self.settings(**changes)
        with self.client(name, settings) as client:
            if self.hub.process is not None and self.hub.process.poll() is None:
                client.session.api.authorize(self.token(name, settings))
            recipient = reader_key(settings.hub, int(time.time()))
            yield Emitter(client, settings.streams, clock=now_ms, recipient=recipient)

    def events(self, stream: str) -> list[RecordEvent]:
        """What a stream holds, verified and opened by the admin."""
        hub = self.document()["hub"] | {"client": "admin", "principal": "admin"}
        settings = self.settings(hub=hub)
        with open_recorder_client(
            settings.hub, passphrase=None, runtime=runtime(), retry_policy=HASTY
        ) as reader:
            return [_event(reader, pair.msg) for pair in reader.read(stream)]

    def _hub_toml(self) -> str:
        return f"""
        issuers = ["{ISSUER.public.hex()}"]
        [[streams]]
        name = "record/infrastructure/changes"
        [[principals]]
        name = "admin"
        role = "recorder_admin"
        public_key = "{self.ids["admin"].hex()}"
        read = ["*"]
        write = ["record/infrastructure/*"]
        """


def _event(reader: Client, msg: Any) -> RecordEvent:
    opened = reader.open_payload(msg)
    return read_event(opened.header.schema, opened.body, msg.client_id)
