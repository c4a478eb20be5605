"""A recorder at the hub of a self-test: its settings, its streams, and identities that differ."""

from __future__ import annotations

import os
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Final

from cli.selftest.world import World
from recorder.checkpoints import create as creation
from recorder.checkpoints.door import Door
from recorder.emit.emitter import Emitter
from recorder.hub_client import open_client, reader_key
from recorder.settings import Settings, load
from veen import captoken
from veen.captoken import CapToken
from veen.client.client import Client
from veen.client.transport import Patience
from veen.recorder_checkpoint import RecorderCheckpoint
from veen.stream import stream_id
from veen.tooling import RegisterRequest, StreamsResponse

_HOUR_SEC: Final = 3_600


class Zone:
    """``streams`` are those of the producer, by name, with their types. ``client`` is who the
    recorder acts as, and who events are sealed to; ``more`` goes to the end of the settings.
    """

    def __init__(
        self,
        world: World,
        folder: Path,
        streams: Mapping[str, tuple[str, ...]],
        *,
        client: str = "admin",
        more: str = "",
    ) -> None:
        self.world = world
        self.folder = folder
        self.names = tuple(streams)
        self.config = folder / "recorder.toml"
        folder.mkdir()
        self.config.write_text(self.text(streams, client=client) + more)

    def text(
        self,
        streams: Mapping[str, tuple[str, ...]],
        *,
        client: str = "admin",
        producer: str = "producer",
    ) -> str:
        world = self.world
        return f"""
zone = "selftest"
admins = ["{world.people["admin"].hex()}"]
[hub]
url = "{world.hub.url}"
hub_id = "{world.hub_id.hex()}"
client = "{world.root / client}"
principal = "{client}"
reader = "{world.root / client / "identity_card.pub"}"
{"".join(_stream(one, types, world.people[producer]) for one, types in streams.items())}"""

    @property
    def settings(self) -> Settings:
        return load(self.config)

    def register(self) -> None:
        """Make all streams known to the hub, those of the recorder itself too."""
        transport = self.world.api().transport
        for one in self.settings.streams.streams:
            transport.post("/tooling/streams", RegisterRequest(name=one.name), StreamsResponse)

    def token(self, who: str, streams: Iterable[str]) -> CapToken:
        """A capability by the issuer that the hub trusts; the hub does not know it yet."""
        return captoken.issue(
            self.world.issuer,
            subject_pk=self.world.people[who],
            stream_ids=[stream_id(one) for one in streams],
            ttl=_HOUR_SEC,
        )

    @contextmanager
    def acting(self, who: str = "admin") -> Iterator[Client]:
        """One of those whom the hub knows, by its own key and name."""
        hub = replace(self.settings.hub, client=self.world.root / who, principal=who)
        with open_client(
            hub,
            passphrase=None,
            surroundings=self.world.surroundings(),
            patience=Patience(timeout_sec=self.world.timeout_sec),
        ) as client:
            client.meet()
            yield client

    @contextmanager
    def emitter(self, who: str = "producer") -> Iterator[Emitter]:
        """With a capability where the hub gives one."""
        settings = self.settings
        with self.acting(who) as client:
            if who == "producer":
                token = self.token(who, self.names)
                self.world.api().authorize(token)
                client.renew(token)
            recipient = reader_key(settings.hub, int(time.time()))
            yield Emitter(client, settings.streams, clock=_now_ms, recipient=recipient)

    def door(self) -> Door:
        return Door(self.settings, None, os.urandom)

    def checkpoint(self, client: Client) -> creation.Created:
        """One over all streams as they stand, verified and kept, as the command does it."""
        door = self.door()
        return creation.create(client.meet(), door.shelf(), door.settings.profile_id())

    def checkpoint_now(self) -> RecorderCheckpoint:
        with self.acting() as client:
            return self.checkpoint(client).checkpoint


def _stream(name: str, types: tuple[str, ...], producer: bytes) -> str:
    listed = ", ".join(f'"{one}"' for one in types)
    return f"""
[[streams]]
name = "{name}"
event_types = [{listed}]
producers = ["{producer.hex()}"]
"""


def _now_ms() -> int:
    return time.time_ns() // 1_000_000
