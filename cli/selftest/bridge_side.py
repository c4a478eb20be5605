"""One side of a bridge under test: a gated hub, identities of its own, and their settings."""

from __future__ import annotations

import json
import random
import time
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any, Final, NamedTuple

from bridge.identities import open_client
from bridge.settings import HubSettings, IdentitySettings, Settings, parse
from bridge.stream_map import IMPORTS, OFFLINE_LOG, ONLINE_LOG
from cli.selftest.hub_under_test import HubUnderTest
from recorder.stream_map import REQUESTS, RESULTS
from veen import captoken
from veen.client.client import Client
from veen.client.hub_api import HubApi
from veen.client.surroundings import Surroundings
from veen.client.transport import Patience, Transport
from veen.keystore.directory import ClientDir
from veen.sign import PrivateKey
from veen.stream import stream_id

ORDERS: Final = "record/app/orders"
IMPORTED: Final = f"import/{ORDERS}"
QUERIES: Final = (REQUESTS, RESULTS)
"""Descriptors and digests of queries, which travel like any events (Query API 9.1)."""
SOURCES: Final = (ORDERS, *QUERIES)
IMPORTED_QUERIES: Final = tuple(f"import/{one}" for one in QUERIES)
IMPORTED_LOG: Final = f"import/{ONLINE_LOG}"
_DAY_SEC: Final = 86_400


class Person(NamedTuple):
    """Somebody of a zone: what the hub lets it read, and what a capability lets it write."""

    role: str | None
    reads: tuple[str, ...] = ()
    writes: tuple[str, ...] = ()


ONLINE: Final = {
    "admin": Person("recorder_admin", reads=("*",)),
    "producer": Person(None, writes=(ORDERS,)),
    "query": Person("query", reads=("record/*",), writes=QUERIES),
    "bridge": Person("bridge_online", reads=(*SOURCES, ONLINE_LOG)),
    "audit": Person("audit_writer", writes=(ONLINE_LOG,)),
}
OFFLINE: Final = {
    "reader": Person("recorder_admin", reads=("*",)),
    "bridge": Person("bridge_offline", writes=(IMPORTED, *IMPORTED_QUERIES, IMPORTED_LOG)),
    "audit": Person("audit_writer", writes=(OFFLINE_LOG,)),
    "import-recorder": Person("recorder_producer", writes=(IMPORTS,)),
}


class Side:
    """Its hub runs once ``start`` has returned, and until ``end``."""

    def __init__(
        self,
        root: Path,
        people: Mapping[str, Person],
        chance: random.Random,
        environment: Mapping[str, str],
        timeout_sec: float,
    ) -> None:
        root.mkdir()
        self.root = root
        self.people = people
        self.patience = Patience(timeout_sec=timeout_sec)
        self._chance = chance
        self._issuer = PrivateKey(chance.randbytes(32))
        self.keys = {name: self._identity(name) for name in people}
        self.hub = HubUnderTest(root, self._hub_settings(), environment)

    def start(self) -> None:
        """The hub, which then knows who may write what."""
        self.hub.start()
        with closing(
            Transport(self.hub.url, surroundings=self.surroundings(), patience=self.patience)
        ) as transport:
            api = HubApi(transport)
            self.identity = api.status().identity()
            self.identity_sig = api.status().identity_sig
        for name, one in self.people.items():
            if one.writes:
                token = self.grant(self.keys[name], *one.writes)
                (self.root / f"{name}.cap").write_bytes(token.encode())

    def grant(self, subject: bytes, *streams: str) -> captoken.CapToken:
        """The issuer of this zone lets whoever has that key write."""
        token = captoken.issue(
            self._issuer,
            subject_pk=subject,
            stream_ids=[stream_id(one) for one in streams],
            ttl=_DAY_SEC,
        )
        with closing(
            Transport(self.hub.url, surroundings=self.surroundings(), patience=self.patience)
        ) as transport:
            HubApi(transport).authorize(token)
        return token

    def told(self, name: str) -> dict[str, Any]:
        """An identity in the words of the settings."""
        found = {"client": name}
        if self.people[name].role is not None:
            found["principal"] = name
        if self.people[name].writes:
            found["capability"] = f"{name}.cap"
        return found

    def settings(self, document: dict[str, Any]) -> Settings:
        """Of the bridge; hub and identities are the same for every document."""
        usual: dict[str, Any] = {
            "hub": {"url": self.hub.url, "hub_id": self.identity.hub_id.hex()},
            "bridge": self.told("bridge"),
            "audit": self.told("audit"),
        }
        for name, one in document.items():
            usual[name] = {**usual.get(name, {}), **one} if isinstance(one, dict) else one
        return parse(usual, self.root)

    @contextmanager
    def acting(self, name: str) -> Iterator[Client]:
        told = self.told(name)
        identity = IdentitySettings(
            client=self.root / name,
            passphrase_file=None,
            principal=told.get("principal"),
            capability=self.root / f"{name}.cap" if self.people[name].writes else None,
        )
        hub = HubSettings(url=self.hub.url, hub_id=self.identity.hub_id, ca=None)
        with open_client(
            hub, identity, surroundings=self.surroundings(), patience=self.patience
        ) as client:
            client.meet()
            yield client

    def recipient(self, name: str) -> bytes:
        return ClientDir(self.root / name).read_card().recipient(int(time.time()))

    def surroundings(self) -> Surroundings:
        return Surroundings(
            clock=lambda: int(time.time()), random=self._chance.randbytes, sleep=time.sleep
        )

    def _identity(self, name: str) -> bytes:
        made = ClientDir(self.root / name).create(
            now=int(time.time()), random=self._chance.randbytes, passphrase=None
        )
        return made.client_id

    def _hub_settings(self) -> str:
        streams = {one for person in self.people.values() for one in person.writes}
        lines = ["workers = 1", f'issuers = ["{self._issuer.public.hex()}"]']
        for stream in sorted(streams):
            lines += ["[[streams]]", f'name = "{stream}"']
        for name, one in self.people.items():
            if one.role is not None:
                lines += ["[[principals]]", f'name = "{name}"', f'role = "{one.role}"']
                lines += [f"read = {json.dumps(one.reads)}", f"write = {json.dumps(one.writes)}"]
                lines += [f'public_key = "{self.keys[name].hex()}"']
        return "\n".join(lines)
