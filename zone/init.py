"""Creation of a zone: its identities, its hub, its capabilities, and its ``veen.toml``."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Final

from bridge.stream_map import COMPLETED, IMPORTS
from bridge.trust import TrustStore, pin_exporter, pin_hub
from hub.storage import identity as hub_identity
from hub.storage.datadir import DataDir
from recorder.stream_map import AROUND_PAYLOAD_BYTES, CHANGES, DEFAULT_PAYLOAD_BYTES, NAMESPACE
from veen import captoken
from veen.crypto import SigningKey
from veen.digest import h
from veen.errors import Refused
from veen.hub_identity import HubIdentity
from veen.keystore.sealed import PREKEY_SEC
from veen.label import stream_id
from veen.limits import Limits
from veen.objects.port import StoreLocation
from veen.system import durable
from zone.config import OFFLINE, ONLINE
from zone.directory import ZoneHome, verify_zone_path
from zone.people import (
    ANALYST,
    AUDITS,
    EXPORTED,
    IMPORT_RECORDER,
    PRODUCERS,
    READER,
    TYPES,
    ZonePerson,
    people,
    streams,
)
from zone.services import free_port

_CROSSING: Final = ("record/", "export/", "bridge/")
"""Prefixes of streams that can cross to another zone (bridge/stream_map.py)."""
STREAMS: Final = "streams.txt"
"""The file of the handover with the streams that cross, a name on each line."""
NAME: Final = re.compile(r"[a-z0-9][a-z0-9.-]{0,39}")
_YEAR_SEC: Final = 31_536_000
_READER_SEC: Final = 10 * _YEAR_SEC
_USERS: Final = ("admin", "operator", "viewer", "service", "import")


@dataclass(frozen=True, slots=True, kw_only=True)
class ZoneDraft:
    """The values of a new ``veen.toml``.

    ``keys`` are the public keys of its people (the issuer's signs capabilities); ``sources`` are
    the streams that cross, and ``source_hub`` the hub that they come from. Airflow and the query
    service listen at ``listen``; the hub is local to the zone.
    """

    name: str
    role: str
    hub_id: bytes
    listen: str
    ports: Ports
    people: Mapping[str, ZonePerson]
    keys: Mapping[str, bytes]
    token_sha256: bytes
    storage: StoreLocation
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


def text(draft: ZoneDraft) -> str:
    sections = [_top, _hub, _recorder, _query, _storage, _rest]
    lines = [line for section in sections for line in section(draft)]
    if draft.role in (ONLINE, OFFLINE):
        lines += _bridge(draft)
    return "\n".join([*lines, ""])


def _top(draft: ZoneDraft) -> Iterator[str]:
    yield "# The settings of this zone. docs/veen.example.toml describes every key."
    yield from _pairs({"zone": draft.name, "hub_id": draft.hub_id.hex()})


def _hub(draft: ZoneDraft) -> Iterator[str]:
    yield from _table("hub")
    yield from _pairs({"listen": f"127.0.0.1:{draft.ports.hub}", "workers": 1})
    yield from _pairs({"issuers": [draft.keys["issuer"].hex()]})
    for name in streams(draft.people):
        yield from _table("[hub.streams]")
        yield from _pairs({"name": name})
        if name.startswith(NAMESPACE):
            yield from _pairs({"max_msg_bytes": _message_bytes(name)})
    for name, person in draft.people.items():
        if person.role is not None:
            yield from _table("[hub.principals]")
            yield from _pairs({"name": name, "role": person.role, "public_key": _key(draft, name)})
            yield from _pairs({"read": list(person.reads), "write": list(person.writes)})


def _message_bytes(stream: str) -> int:
    """The message limit of a recorder stream: its largest payload and the overhead."""
    own = fnmatchcase(stream, "record/query/*") or stream == CHANGES
    return Limits().max_msg_bytes if own else DEFAULT_PAYLOAD_BYTES + AROUND_PAYLOAD_BYTES


def _recorder(draft: ZoneDraft) -> Iterator[str]:
    yield from _table("recorder")
    yield from _pairs({"admins": [_key(draft, "admin")]})
    yield from _table("recorder.hub")
    yield from _pairs(_identity_table("service") | {"reader": _card("reader")} | _reader_keys())
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


def _query(draft: ZoneDraft) -> Iterator[str]:
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


def _storage(draft: ZoneDraft) -> Iterator[str]:
    storage = draft.storage
    yield from _table("storage")
    yield from _pairs(
        {"url": storage.url, "region": storage.region, "addressing": storage.addressing}
    )
    if storage.endpoint is not None:
        yield from _pairs({"endpoint": storage.endpoint})
    if storage.accept_overwriting_store:
        yield from _pairs({"accept_overwriting_store": True})


def _rest(draft: ZoneDraft) -> Iterator[str]:
    yield from _table("spark")
    yield from _pairs({"master": "local[2]"})
    yield from _table("airflow")
    yield from _pairs({"listen": f"{draft.listen}:{draft.ports.airflow}"})
    yield from _table("dags")
    yield from _pairs({"medium": str(draft.medium), **draft.pace})
    yield from _table("dags.acting")
    yield from _pairs(_identity_table("admin") | _granted("admin") | {"escrow": _card("keeper")})
    if draft.role == OFFLINE:
        yield from _table("dags.approval")
        yield from _pairs({"people": ["operator"]})


def _bridge(draft: ZoneDraft) -> Iterator[str]:
    is_online = draft.role == ONLINE
    yield from _table("bridge")
    yield from _pairs({"zone": draft.role, "trust": "trust"} | _reader_keys())
    yield from _table("bridge.bridge")
    yield from _pairs(_identity_table("bridge") | ({} if is_online else _granted("bridge")))
    yield from _table("bridge.audit")
    yield from _pairs(_identity_table("audit") | _granted("audit") | {"reader": _card("reader")})
    if not is_online:
        # Status, reconciliation and rebuilding the ledger read the import streams.
        yield from _table("bridge.reader")
        yield from _pairs(_identity_table("reconciler"))
        yield from _table("bridge.import_recorder")
        yield from _pairs(_identity_table(IMPORT_RECORDER) | _granted(IMPORT_RECORDER))
    for source in draft.sources:
        yield from _table("[bridge.streams]")
        yield from _pairs({"source": source})
        if draft.source_hub is not None:
            yield from _pairs({"hub_id": draft.source_hub.hex()})
    keys = [approver.hex() for approver in draft.approvers]
    for prefix in _CROSSING if keys else ():
        yield from _table("[bridge.approvals]")
        yield from _pairs({"prefix": prefix, "needed": len(keys), "approvers": keys})


def _table(name: str) -> Iterator[str]:
    yield ""
    yield f"[{name}]"


def _pairs(values: Mapping[str, str | int | bool | Sequence[str]]) -> Iterator[str]:
    """Key and value lines; strings, numbers and lists of strings have the same form as in JSON."""
    for key, value in values.items():
        yield f"{key} = {json.dumps(value)}"


def _identity_table(name: str) -> dict[str, str]:
    return {"client": f"identities/{name}", "principal": name}


def _reader_keys() -> dict[str, str]:
    return {"reader_keys": "identities/reader"}


def _granted(name: str) -> dict[str, str]:
    return {"capability": f"capabilities/{name}.cap"}


def _card(name: str) -> str:
    return f"identities/{name}/identity_card.pub"


def _key(draft: ZoneDraft, name: str) -> str:
    return draft.keys[name].hex()


@dataclass(frozen=True, slots=True, kw_only=True)
class ZoneRequest:
    """The options of ``veen zone init``. ``trust`` is the handover of an online zone, for an
    offline zone only.

    ``medium`` is where media are mounted; by default a directory of the zone. ``pace`` is written
    to [dags]. ``row_budget`` is how many rows the index may read for a query before Spark answers
    it; by default the recorder's own. ``approvers`` must all sign for every bundle that an offline
    zone imports.
    """

    name: str
    role: str
    storage: StoreLocation | None
    trust: Path | None
    medium: Path | None = None
    listen: str = "127.0.0.1"
    ports: Ports | None = None
    pace: Mapping[str, str | int] = field(default_factory=dict)
    row_budget: int | None = None
    approvers: tuple[bytes, ...] = ()


def init(
    home: ZoneHome, request: ZoneRequest, *, now: int, random: Callable[[int], bytes]
) -> HubIdentity:
    """Create a zone. Its file is written last: without it the directory is no zone."""
    _verify_request(home, request)
    there = _read_handover(request.trust) if request.trust is not None else _Handover((), None)
    for folder in (home.root, home.root / "identities", home.capabilities, home.secrets):
        durable.make_directory(folder)
    if request.trust is not None:
        _copy_trust(request.trust, home.trust)
    sources = there.sources if request.role == OFFLINE else EXPORTED
    everyone = people(request.role, sources)
    keys = {name: _make_identity(home, name, now, random) for name in everyone}
    issuer = home.identity("issuer").open(None).id_sign
    _issue(home, everyone, keys, issuer)
    datadir = DataDir(home.hub)
    datadir.create()
    hub = hub_identity.load_or_create(datadir, random, now).identity
    draft = ZoneDraft(
        name=request.name,
        role=request.role,
        hub_id=hub.hub_id,
        listen=request.listen,
        ports=request.ports or Ports(*_free_ports(3)),
        people=everyone,
        keys=keys | {"issuer": issuer.public},
        token_sha256=_token(home, random),
        storage=request.storage or _files(home),
        medium=request.medium or home.root / "medium",
        pace=request.pace,
        row_budget=request.row_budget,
        sources=sources,
        source_hub=there.hub_id,
        approvers=request.approvers,
    )
    _airflow_secrets(home, random)
    durable.make_directory(draft.medium)
    if request.role == ONLINE:
        _hand_over(home, request.name, sources)
    durable.write(home.file, text(draft).encode())
    return hub


@dataclass(frozen=True, slots=True)
class _Handover:
    sources: tuple[str, ...]
    hub_id: bytes | None


def _verify_request(home: ZoneHome, request: ZoneRequest) -> None:
    if not NAME.fullmatch(request.name):
        raise Refused(
            f"zone {request.name!r}: expected a name of up to 40 of a-z, 0-9, '.' and '-'"
        )
    verify_zone_path(home)
    if home.file.exists():
        raise Refused(f"{home.root} is a zone already; nothing was changed")
    if any(not path.is_dir() for path in home.root.rglob("*")):
        raise Refused(
            f"{home.root}: expected an empty directory; give another --directory, or empty it"
        )
    if (request.role == OFFLINE) != (request.trust is not None):
        raise Refused(
            "expected --trust, the handover/ directory of the online zone, for an offline zone and "
            "for no other"
        )
    if request.approvers and request.role != OFFLINE:
        raise Refused("--approver: expected an offline zone, since only there bundles are imported")
    if len(set(request.approvers)) != len(request.approvers):
        raise Refused("--approver names the same person twice; expected different people")


def _read_handover(folder: Path) -> _Handover:
    """Read the handover of the online zone; signatures are verified."""
    store = TrustStore.read(folder)
    if len(store.hubs) != 1 or not store.exporters:
        raise Refused(f"{folder}: expected one hub and its exporter; see veen zone init --help")
    names = (folder / STREAMS).read_text().split()
    return _Handover(tuple(names), next(iter(store.hubs)))


def _copy_trust(source: Path, target: Path) -> None:
    durable.make_directory(target)
    for path in sorted(source.iterdir()):
        if path.suffix in (".cbor", ".sig", ".pub"):
            durable.write(target / path.name, path.read_bytes())


def _make_identity(home: ZoneHome, name: str, now: int, random: Callable[[int], bytes]) -> bytes:
    """Create an identity. The zone's reader has a long-lived prekey, the others one for a year."""
    seconds = _READER_SEC if name == READER else PREKEY_SEC
    identity = home.identity(name).create(
        now=now, random=random, passphrase=None, prekey_sec=seconds
    )
    return identity.client_id


def _issue(
    home: ZoneHome,
    everyone: Mapping[str, ZonePerson],
    keys: Mapping[str, bytes],
    issuer: SigningKey,
) -> None:
    for name, person in everyone.items():
        if person.granted:
            token = captoken.issue(
                issuer,
                subject_pk=keys[name],
                stream_ids=[stream_id(stream) for stream in person.granted],
                ttl=_YEAR_SEC,
            )
            durable.write(home.capability(name), token.encode())


def _token(home: ZoneHome, random: Callable[[int], bytes]) -> bytes:
    token = random(32).hex().encode()
    durable.write(home.token, token + b"\n")
    return h(token)


def _airflow_secrets(home: ZoneHome, random: Callable[[int], bytes]) -> None:
    passwords = {name: random(12).hex() for name in _USERS}
    durable.write(home.passwords, json.dumps(passwords).encode() + b"\n")
    keys = {"jwt": random(64).hex(), "api": random(32).hex(), "fernet": random(32).hex()}
    durable.write(home.airflow_keys, json.dumps(keys).encode() + b"\n")


def _hand_over(home: ZoneHome, name: str, sources: tuple[str, ...]) -> None:
    durable.make_directory(home.handover)
    signed = hub_identity.read_signed_identity(DataDir(home.hub))
    pin_hub(home.handover, signed.identity, signed.signature)
    pin_exporter(home.handover, name, home.identity("bridge").open(None).id_sign.public)
    durable.write(home.handover / STREAMS, "".join(f"{source}\n" for source in sources).encode())


def _files(home: ZoneHome) -> StoreLocation:
    return StoreLocation(url=(home.root / "objects").as_uri())


def _free_ports(count: int) -> list[int]:
    ports: set[int] = set()
    while len(ports) < count:
        ports.add(free_port())
    return list(ports)
