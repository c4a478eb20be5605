"""Both sides of histories that really happen: a hub each, identities, and the bridge's settings."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Any

from bridge.settings import Settings, parse
from veen import json_body, layout
from veen.client.surroundings import Surroundings
from veen.client.transport import Patience
from veen.hub_identity import HubIdentity
from veen.keystore.directory import ClientDir
from veen.overlay.body import AnyItem
from veen.record_event import RecordEvent

MOST = 200
OTHERS = ("bridge/online/log", "record/query/requests", "record/query/results")
HASTY = Patience(attempts=3, first_sec=0.01, most_sec=0.05, timeout_sec=10)
AROUND = Surroundings(clock=lambda: int(time.time()), random=os.urandom, sleep=time.sleep)


def stream_name(number: int) -> str:
    return f"export/history/{number}"


def hub_toml(folder: Path) -> str:
    """A hub that lets anybody write and read, and knows a stream for every history."""
    streams = [stream_name(number) for number in range(MOST)]
    told = 'admission = "open"\nreads = "open"\n'
    told += "".join(f'[[streams]]\nname = "{one}"\n' for one in [*streams, *OTHERS])
    for name, role in (("producer", "recorder_admin"), ("bridge", "bridge_online")):
        key = identity_in(folder / name).open(None).client_id.hex()
        told += f'[[principals]]\nname = "{name}"\nrole = "{role}"\npublic_key = "{key}"\n'
    return told


def identity_in(place: Path) -> ClientDir:
    found = ClientDir(place)
    if not found.keystore.exists():
        found.create(now=int(time.time()), random=os.urandom, passphrase=None)
    return found


class Side:
    """A hub with the settings of a bridge beside it; ``state`` is new for every history."""

    def __init__(self, folder: Path, hub: Any, zone: str) -> None:
        self.folder, self.hub, self.zone = folder, hub, zone
        for name in ("bridge", "audit", "reader", "producer"):
            identity_in(folder / name)
        self.identity = HubIdentity.decode((hub.data / layout.IDENTITY).read_bytes())

    def settings(self, streams: list[dict[str, Any]], **more: Any) -> Settings:
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
        payload=AnyItem(json_body.encode_value(payload)),
    ).encode()
