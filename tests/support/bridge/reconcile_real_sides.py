"""Both sides of histories that really happen: a hub each, identities, and the bridge's settings."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Any

from bridge.settings import BridgeSettings, parse
from veen.client.transport import RetryPolicy
from veen.events import RecordEvent
from veen.hub_identity import HubIdentity
from veen.keystore.directory import ClientDir
from veen.log import layout
from veen.system.environment import Runtime
from veen.wire.body import AnyItem
from veen.wire.canonical_json import value_to_cbor

MOST = 200
OTHERS = ("bridge/online/log", "record/query/requests", "record/query/results")
HASTY = RetryPolicy(attempts=3, first_sec=0.01, most_sec=0.05, timeout_sec=10)
AROUND = Runtime(clock=lambda: int(time.time()), random=os.urandom, sleep=time.sleep)


def stream_name(number: int) -> str:
    return f"export/history/{number}"


def hub_toml(folder: Path) -> str:
    """A hub that lets anybody write and read, and knows a stream for every history."""
    streams = [stream_name(number) for number in range(MOST)]
    detail = 'admission = "open"\nreads = "open"\n'
    detail += "".join(f'[[streams]]\nname = "{stream}"\n' for stream in [*streams, *OTHERS])
    for name, role in (("producer", "recorder_admin"), ("bridge", "bridge_online")):
        key = identity_in(folder / name).open(None).client_id.hex()
        detail += f'[[principals]]\nname = "{name}"\nrole = "{role}"\npublic_key = "{key}"\n'
    return detail


def identity_in(place: Path) -> ClientDir:
    client_dir = ClientDir(place)
    if not client_dir.keystore.exists():
        client_dir.create(now=int(time.time()), random=os.urandom, passphrase=None)
    return client_dir


class Side:
    """A hub with the settings of a bridge beside it; ``state`` is new for every history."""

    def __init__(self, folder: Path, hub: Any, zone: str) -> None:
        self.folder, self.hub, self.zone = folder, hub, zone
        for name in ("bridge", "audit", "reader", "producer"):
            identity_in(folder / name)
        self.identity = HubIdentity.decode((hub.data / layout.IDENTITY).read_bytes())

    def settings(self, streams: list[dict[str, Any]], **more: Any) -> BridgeSettings:
        reader = "bridge" if self.zone == "online" else "reader"
        document = {
            "zone": self.zone,
            "name": self.zone,
            "hub": {"url": self.hub.url, "hub_id": self.identity.hub_id.hex()},
            "bridge": {"client": "bridge"} | self._named("bridge"),
            "audit": {"client": "audit", "reader": f"{reader}/identity_card.pub"},
            "streams": streams,
        }
        return parse(document | more, self.folder)

    def _named(self, name: str) -> dict[str, str]:
        return {"principal": name} if self.zone == "online" else {}


def an_event(principal: bytes, event_type: str, payload: dict[str, Any]) -> bytes:
    return RecordEvent(
        subject_id="host/1",
        principal_id=principal,
        event_type=event_type,
        event_time=1_700_000_000_000,
        origin="z1",
        payload=AnyItem(value_to_cbor(payload)),
    ).encode()
