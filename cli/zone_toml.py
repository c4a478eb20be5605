"""The ``veen.toml`` of a new zone."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Final

from bridge.stream_map import COMPLETED, IMPORTS
from cli.zone_people import (
    ANALYST,
    AUDITS,
    IMPORT_RECORDER,
    PRODUCERS,
    TYPES,
    Person,
    streams,
)
from recorder.stream_map import AROUND_PAYLOAD_BYTES, CHANGES, DEFAULT_PAYLOAD_BYTES, NAMESPACE
from recorder.zone import OFFLINE, ONLINE, StorageSettings
from veen.limits import Limits

_CROSSING: Final = ("record/", "export/", "bridge/")
"""How the name of a stream begins that can cross to another zone (bridge/stream_map.py)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Draft:
    """What a new zone is to be.

    ``keys`` are the public keys of its people (an issuer's signs capabilities); ``sources`` are
    the streams that cross, and ``source_hub`` the hub that they come from. People reach Airflow
    and the query service at ``listen``; the hub is for the zone alone.
    """

    name: str
    role: str
    hub_id: bytes
    listen: str
    ports: Ports
    people: Mapping[str, Person]
    keys: Mapping[str, bytes]
    token_sha256: bytes
    storage: StorageSettings
    medium: Path
    pace: Mapping[str, str | int]
    row_budget: int | None
    sources: tuple[str, ...]
    source_hub: bytes | None
    approvers: tuple[bytes, ...] = ()


@dataclass(frozen=True, slots=True)
class Ports:
    hub: int
    query: int
    airflow: int


def text(draft: Draft) -> str:
    parts = [_top, _hub, _recorder, _query, _storage, _rest]
    lines = [line for part in parts for line in part(draft)]
    if draft.role in (ONLINE, OFFLINE):
        lines += _bridge(draft)
    return "\n".join([*lines, ""])


def _top(draft: Draft) -> Iterator[str]:
    yield "# The one file of this zone. docs/veen.example.toml tells of every key."
    yield from _pairs({"zone": draft.name, "hub_id": draft.hub_id.hex()})


def _hub(draft: Draft) -> Iterator[str]:
    yield from _table("hub")
    yield from _pairs({"listen": f"127.0.0.1:{draft.ports.hub}", "workers": 1})
    yield from _pairs({"issuers": [draft.keys["issuer"].hex()]})
    for name in streams(draft.people):
        yield from _table("[hub.streams]")
        yield from _pairs({"name": name})
        if name.startswith(NAMESPACE):
            yield from _pairs({"max_msg_bytes": _message_bytes(name)})
    for name, one in draft.people.items():
        if one.role is not None:
            yield from _table("[hub.principals]")
            yield from _pairs({"name": name, "role": one.role, "public_key": _key(draft, name)})
            yield from _pairs({"read": list(one.reads), "write": list(one.writes)})


def _message_bytes(stream: str) -> int:
    """What a message of a recorder stream may have: its largest payload, and what is around it."""
    own = fnmatchcase(stream, "record/query/*") or stream == CHANGES
    return Limits().max_msg_bytes if own else DEFAULT_PAYLOAD_BYTES + AROUND_PAYLOAD_BYTES


def _recorder(draft: Draft) -> Iterator[str]:
    yield from _table("recorder")
    yield from _pairs({"admins": [_key(draft, "admin")]})
    yield from _table("recorder.hub")
    yield from _pairs(_identity("service") | {"reader": _card("reader")} | _reader_keys())
    for producer, stream in PRODUCERS.items():
        if producer in draft.people:
            yield from _table("[recorder.streams]")
            yield from _pairs({"name": stream, "event_types": list(TYPES[stream])})
            yield from _pairs({"producers": [_key(draft, producer)]})
    yield from _table("[recorder.streams]")
    yield from _pairs({"name": AUDITS, "event_types": ["audit.report"]})
    if IMPORT_RECORDER in draft.people:
        yield from _table("[recorder.streams]")
        yield from _pairs({"name": IMPORTS, "event_types": [COMPLETED]})
        yield from _pairs({"producers": [_key(draft, IMPORT_RECORDER)]})
    yield from _table("recorder.index")
    yield from _pairs({"path": "index"})


def _query(draft: Draft) -> Iterator[str]:
    yield from _table("recorder.query")
    yield from _pairs({"listen": f"{draft.listen}:{draft.ports.query}", "workers": 1})
    if draft.row_budget is not None:
        yield from _pairs({"row_budget": draft.row_budget})
    yield from _table("[recorder.query.principals]")
    scopes = ["record/*", "import/*"] if draft.role == OFFLINE else ["record/*"]
    roles = ["submitter", "auditor"]
    yield from _pairs({"name": ANALYST, "token_sha256": draft.token_sha256.hex()})
    yield from _pairs({"public_key": _key(draft, ANALYST)})
    yield from _pairs({"scopes": scopes, "roles": roles})


def _storage(draft: Draft) -> Iterator[str]:
    found = draft.storage
    yield from _table("storage")
    yield from _pairs({"url": found.url, "region": found.region, "addressing": found.addressing})
    if found.endpoint is not None:
        yield from _pairs({"endpoint": found.endpoint})
    if found.accept_overwriting_store:
        yield from _pairs({"accept_overwriting_store": True})


def _rest(draft: Draft) -> Iterator[str]:
    yield from _table("spark")
    yield from _pairs({"master": "local[2]"})
    yield from _table("airflow")
    yield from _pairs({"listen": f"{draft.listen}:{draft.ports.airflow}"})
    yield from _table("dags")
    yield from _pairs({"medium": str(draft.medium), **draft.pace})
    yield from _table("dags.acting")
    yield from _pairs(_identity("admin") | _granted("admin") | {"escrow": _card("keeper")})
    if draft.role == OFFLINE:
        yield from _table("dags.approval")
        yield from _pairs({"people": ["operator"]})


def _bridge(draft: Draft) -> Iterator[str]:
    is_online = draft.role == ONLINE
    yield from _table("bridge")
    yield from _pairs({"zone": draft.role, "trust": "trust"} | _reader_keys())
    yield from _table("bridge.bridge")
    yield from _pairs(_identity("bridge") | ({} if is_online else _granted("bridge")))
    yield from _table("bridge.audit")
    yield from _pairs(_identity("audit") | _granted("audit") | {"reader": _card("reader")})
    if not is_online:
        # Status, reconciliation and the repair of the ledger read what was imported.
        yield from _table("bridge.reader")
        yield from _pairs(_identity("reconciler"))
        yield from _table("bridge.import_recorder")
        yield from _pairs(_identity(IMPORT_RECORDER) | _granted(IMPORT_RECORDER))
    for source in draft.sources:
        yield from _table("[bridge.streams]")
        yield from _pairs({"source": source})
        if draft.source_hub is not None:
            yield from _pairs({"hub_id": draft.source_hub.hex()})
    keys = [one.hex() for one in draft.approvers]
    for prefix in _CROSSING if keys else ():
        yield from _table("[bridge.approvals]")
        yield from _pairs({"prefix": prefix, "needed": len(keys), "approvers": keys})


def _table(name: str) -> Iterator[str]:
    yield ""
    yield f"[{name}]"


def _pairs(values: Mapping[str, str | int | bool | Sequence[str]]) -> Iterator[str]:
    """Texts, numbers and lists of texts are written in TOML as in JSON."""
    for key, value in values.items():
        yield f"{key} = {json.dumps(value)}"


def _identity(name: str) -> dict[str, str]:
    return {"client": f"identities/{name}", "principal": name}


def _reader_keys() -> dict[str, str]:
    return {"reader_keys": "identities/reader"}


def _granted(name: str) -> dict[str, str]:
    return {"capability": f"capabilities/{name}.cap"}


def _card(name: str) -> str:
    return f"identities/{name}/identity_card.pub"


def _key(draft: Draft, name: str) -> str:
    return draft.keys[name].hex()
