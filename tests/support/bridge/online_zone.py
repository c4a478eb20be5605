"""An online zone as an operator sets it up: a gated hub in a process, and every identity."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from hashlib import sha256
from pathlib import Path
from typing import Any

from bridge.audit_log import ExportFailed, ExportSuccess, RecordedEntry, read_log
from bridge.connect import open_bridge_client
from bridge.exporter.deliver import Media
from bridge.exporter.run import ExportedCarrier, Exporter, ExportSetup, opened
from bridge.settings import BridgeSettings, parse
from bridge.trust import TrustStore, pin_exporter, pin_hub
from support.bridge.naive_history import NaiveHistory, naive_history
from support.hub.hub_process import configured
from veen import captoken
from veen.client.checkpoints import create_recorder_checkpoint
from veen.client.client import Client
from veen.client.transport import RetryPolicy
from veen.crypto import SigningKey
from veen.events import RECORD_SCHEMA, RecordEvent
from veen.hub_identity import HubIdentity
from veen.keystore.directory import ClientDir
from veen.label import stream_id
from veen.log import layout
from veen.recorder_checkpoint import RecorderCheckpoint
from veen.system.environment import Runtime
from veen.wire.body import AnyItem
from veen.wire.canonical_json import value_to_cbor

ISSUER = SigningKey(sha256(b"issuer of the zone").digest())
PROFILE = sha256(b"profile of the zone").digest()
HASTY = RetryPolicy(attempts=3, first_sec=0.01, most_sec=0.05, timeout_sec=10)
CHANGES, ORDERS, LOG = "export/z1/changes", "record/app/orders", "bridge/online/log"
STREAMS = (CHANGES, ORDERS, LOG)
WRITERS = {"producer": (CHANGES, ORDERS), "audit": (LOG,)}


def runtime() -> Runtime:
    return Runtime(clock=lambda: int(time.time()), random=os.urandom, sleep=time.sleep)


def now_ms() -> int:
    return time.time_ns() // 1_000_000


@contextmanager
def running(folder: Path) -> Iterator[OnlineZone]:
    """A zone with seven changes and two orders at a checkpoint."""
    zone = OnlineZone(folder)
    try:
        zone.start()
        zone.emit(CHANGES, 7)
        zone.emit(ORDERS, 2, to="producer")
        zone.checkpoint()
        yield zone
    finally:
        zone.hub.destroy()


class OnlineZone:
    """A hub that is not started yet; ``folder`` holds all of the zone, but for the media."""

    def __init__(self, folder: Path, port: int | None = None) -> None:
        self.folder = folder
        self.ids = {name: self._identity(name) for name in ("producer", "admin", "bridge", "audit")}
        self.hub = configured(folder / "hub", self._hub_toml(), port)

    def start(self) -> OnlineZone:
        """Start the hub, and have it know who may write."""
        self.hub.start()
        for name, streams in WRITERS.items():
            token = captoken.issue(
                ISSUER,
                subject_pk=self.ids[name],
                stream_ids=[stream_id(stream) for stream in streams],
                ttl=86_400,
            )
            (self.folder / f"{name}.cap").write_bytes(token.encode())
            with self.client("admin") as client:
                client.meet().api.authorize(token)
        trust = self.folder / "trust"
        trust.mkdir(exist_ok=True)
        pin_hub(trust, self.identity(), (self.hub.data / layout.IDENTITY_SIG).read_bytes())
        pin_exporter(trust, "z1", self.signer().public)
        return self

    def identity(self) -> HubIdentity:
        return HubIdentity.decode((self.hub.data / layout.IDENTITY).read_bytes())

    def signer(self) -> SigningKey:
        return ClientDir(self.folder / "bridge").open(None).id_sign

    def trust(self) -> TrustStore:
        return TrustStore.read(self.folder / "trust")

    def document(self, **changes: Any) -> dict[str, Any]:
        usual: dict[str, Any] = {
            "zone": "online",
            "name": "z1",
            "hub": {"url": self.hub.url, "hub_id": self.identity().hub_id.hex()},
            "bridge": {"client": "bridge", "principal": "bridge"},
            "audit": {
                "client": "audit",
                "capability": "audit.cap",
                "reader": "bridge/identity_card.pub",
            },
            "streams": [{"source": CHANGES}, {"source": ORDERS}],
            "export": {"max_bundle_events": 5},
        }
        return usual | changes

    def settings(self, **changes: Any) -> BridgeSettings:
        return parse(self.document(**changes), self.folder)

    def toml(self) -> Path:
        """The settings as a file."""
        lines = []
        for key, value in self.document().items():
            if key == "streams":
                lines += [f'[[streams]]\nsource = "{item["source"]}"' for item in value]
            elif isinstance(value, dict):
                pairs = (f"{name} = {json.dumps(item)}" for name, item in value.items())
                lines += [f"[{key}]", *pairs]
            else:
                lines.insert(0, f"{key} = {json.dumps(value)}")
        path = self.folder / "bridge.toml"
        path.write_text("\n".join(lines))
        return path

    @contextmanager
    def client(self, name: str) -> Iterator[Client]:
        part: dict[str, Any] = {"client": name}
        if name in ("admin", "bridge"):
            part["principal"] = name
        if (self.folder / f"{name}.cap").exists():
            part["capability"] = f"{name}.cap"
        settings = self.settings(bridge=part, audit={"client": "x", "reader": "x"})
        with open_bridge_client(
            settings.hub, settings.bridge, runtime=runtime(), retry_policy=HASTY
        ) as client:
            yield client

    def emit(self, stream: str, count: int, *, to: str | None = "bridge", size: int = 8) -> None:
        """So many events more, sealed to an identity of the zone."""
        key = ClientDir(self.folder / (to or "producer")).read_card().recipient(int(time.time()))
        with self.client("producer") as client:
            bodies = [self._event(number, size) for number in range(count)]
            for _ in client.send_many(stream, bodies, schema=RECORD_SCHEMA, recipient=key):
                pass

    def checkpoint(self) -> RecorderCheckpoint:
        with self.client("admin") as client:
            return create_recorder_checkpoint(client.meet(), PROFILE, None)

    def run(self, medium: Path, **changes: Any) -> ExportSetup:
        return ExportSetup(
            media=Media(roots=(medium,), medium_id=str(medium), discard_unfinished=True),
            operator="an operator",
            runtime=runtime(),
            now_ms=now_ms,
            retry_policy=HASTY,
            **changes,
        )

    @contextmanager
    def exporter(self, medium: Path, **changes: Any) -> Iterator[Exporter]:
        with opened(self.settings(**changes), self.run(medium)) as result:
            yield result

    def export(self, medium: Path, **changes: Any) -> list[ExportedCarrier]:
        with self.exporter(medium, **changes) as result:
            return list(result.export())

    def advance(self, spare: Path, count: int = 3) -> None:
        """Carry away what there is, and have something new."""
        self.checkpoint()
        self.export(spare)
        self.emit(CHANGES, count)
        self.checkpoint()

    def log(self) -> list[RecordedEntry]:
        with self.client("bridge") as client:
            return list(read_log(client, LOG))

    def kinds(self) -> list[str]:
        return [item.event.KIND for item in self.log()]

    def successes(self, medium: Path | None = None) -> list[ExportSuccess]:
        result = [item.event for item in self.log() if isinstance(item.event, ExportSuccess)]
        return [item for item in result if medium is None or item.medium == str(medium)]

    def failures(self) -> list[ExportFailed]:
        return [item.event for item in self.log() if isinstance(item.event, ExportFailed)]

    def past(self) -> NaiveHistory:
        return naive_history(self.log(), self.signer().public)

    def _event(self, number: int, size: int) -> bytes:
        return RecordEvent(
            subject_id=f"host/{number % 3}",
            principal_id=self.ids["producer"],
            event_type="config.changed",
            event_time=1_700_000_000_000 + number,
            origin="z1",
            payload=AnyItem(value_to_cbor({"note": "x" * size})),
        ).encode()

    def _identity(self, name: str) -> bytes:
        home = ClientDir(self.folder / name)
        if home.keystore.exists():
            return home.open(None).client_id
        return home.create(now=int(time.time()), random=os.urandom, passphrase=None).client_id

    def _hub_toml(self) -> str:
        lines = [f'issuers = ["{ISSUER.public.hex()}"]']
        for name in STREAMS:
            lines += ["[[streams]]", f'name = "{name}"']
        for name, role, read, write in (
            ("admin", "recorder_admin", ["*"], []),
            ("bridge", "bridge_online", ["export/*", "record/*", LOG], []),
            ("audit", "audit_writer", [], [LOG]),
        ):
            lines += ["[[principals]]", f'name = "{name}"', f'role = "{role}"']
            lines += [f"read = {json.dumps(read)}", f"write = {json.dumps(write)}"]
            lines += [f'public_key = "{self.ids[name].hex()}"']
        return "\n".join(lines)
