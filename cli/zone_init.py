"""A new zone: its identities, its hub's name, what each may write, and the one file of it all."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from bridge.trust import TrustStore, pin_exporter, pin_hub
from cli.failure import Refused
from cli.free_port import free_port
from cli.zone_environment import refuse_place
from cli.zone_home import ZoneHome
from cli.zone_people import EXPORTED, READER, Person, people
from cli.zone_toml import Draft, Ports, text
from hub.storage import identity as hub_identity
from hub.storage.datadir import DataDir
from recorder.zone import OFFLINE, ONLINE, StorageSettings
from veen import captoken, durable
from veen.digest import h
from veen.hub_identity import HubIdentity
from veen.keystore.secrets import PREKEY_SEC
from veen.sign import PrivateKey
from veen.stream import stream_id

STREAMS: Final = "streams.txt"
"""In what is handed over: the streams that cross, a name a line."""

NAME: Final = re.compile(r"[a-z0-9][a-z0-9.-]{0,39}")
_YEAR_SEC: Final = 31_536_000
_READER_SEC: Final = 10 * _YEAR_SEC
_USERS: Final = ("admin", "operator", "viewer", "service", "import")


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """``trust`` is what an online zone has handed over; only an offline one takes it.

    ``medium`` is where media are mounted; the zone has a folder for it otherwise. ``pace`` goes to
    [dags], where nothing else is said. ``row_budget`` is what the index may read for a query before
    Airflow has Spark answer it; the recorder's own otherwise. ``approvers`` must each sign for
    every bundle that an offline zone imports.
    """

    name: str
    role: str
    storage: StorageSettings | None
    trust: Path | None
    medium: Path | None = None
    listen: str = "127.0.0.1"
    ports: Ports | None = None
    pace: Mapping[str, str | int] = field(default_factory=dict)
    row_budget: int | None = None
    approvers: tuple[bytes, ...] = ()


def init(
    home: ZoneHome, wanted: Wanted, *, now: int, random: Callable[[int], bytes]
) -> HubIdentity:
    """Make the zone, the file of it last: before that is there, no zone is."""
    _refuse(home, wanted)
    there = _taken(wanted.trust) if wanted.trust is not None else _Handed((), None)
    for folder in (home.root, home.root / "identities", home.capabilities, home.secrets):
        durable.make_directory(folder)
    if wanted.trust is not None:
        _copy_trust(wanted.trust, home.trust)
    sources = there.sources if wanted.role == OFFLINE else EXPORTED
    everyone = people(wanted.role, sources)
    keys = {name: _identity(home, name, now, random) for name in everyone}
    issuer = home.identity("issuer").open(None).id_sign
    _issue(home, everyone, keys, issuer)
    datadir = DataDir(home.hub)
    datadir.create()
    hub = hub_identity.load_or_create(datadir, random, now).identity
    draft = Draft(
        name=wanted.name,
        role=wanted.role,
        hub_id=hub.hub_id,
        listen=wanted.listen,
        ports=wanted.ports or Ports(*_free_ports(3)),
        people=everyone,
        keys=keys | {"issuer": issuer.public},
        token_sha256=_token(home, random),
        storage=wanted.storage or _files(home),
        medium=wanted.medium or home.root / "medium",
        pace=wanted.pace,
        row_budget=wanted.row_budget,
        sources=sources,
        source_hub=there.hub_id,
        approvers=wanted.approvers,
    )
    _airflow_secrets(home, random)
    durable.make_directory(draft.medium)
    if wanted.role == ONLINE:
        _hand_over(home, wanted.name, sources)
    durable.write(home.file, text(draft).encode())
    return hub


@dataclass(frozen=True, slots=True)
class _Handed:
    sources: tuple[str, ...]
    hub_id: bytes | None


def _refuse(home: ZoneHome, wanted: Wanted) -> None:
    if not NAME.fullmatch(wanted.name):
        raise Refused(f"{wanted.name!r} names no zone: up to 40 of a-z, 0-9, '.' and '-' are due")
    refuse_place(home)
    if home.file.exists():
        raise Refused(f"{home.root} is a zone already; nothing was changed")
    if any(not path.is_dir() for path in home.root.rglob("*")):
        raise Refused(f"{home.root} is not empty; give another --directory, or empty it")
    if (wanted.role == OFFLINE) != (wanted.trust is not None):
        raise Refused(
            "an offline zone needs --trust, the handover/ folder of the online zone, and no other "
            "zone takes it"
        )
    if wanted.approvers and wanted.role != OFFLINE:
        raise Refused("--approver is for an offline zone: only there bundles are imported")
    if len(set(wanted.approvers)) != len(wanted.approvers):
        raise Refused("--approver names the same person twice; each must be another one")


def _taken(folder: Path) -> _Handed:
    """What the online zone says of itself; signatures are checked, names are only names."""
    store = TrustStore.read(folder)
    if len(store.hubs) != 1 or not store.exporters:
        raise Refused(f"{folder} is to hold one hub and its exporter; see veen zone init --help")
    names = (folder / STREAMS).read_text().split()
    return _Handed(tuple(names), next(iter(store.hubs)))


def _copy_trust(source: Path, target: Path) -> None:
    durable.make_directory(target)
    for path in sorted(source.iterdir()):
        if path.suffix in (".cbor", ".sig", ".pub"):
            durable.write(target / path.name, path.read_bytes())


def _identity(home: ZoneHome, name: str, now: int, random: Callable[[int], bytes]) -> bytes:
    """The zone's reader has one key for as long as the zone is to last; the others a year's."""
    seconds = _READER_SEC if name == READER else PREKEY_SEC
    made = home.identity(name).create(now=now, random=random, passphrase=None, prekey_sec=seconds)
    return made.client_id


def _issue(
    home: ZoneHome, everyone: Mapping[str, Person], keys: Mapping[str, bytes], issuer: PrivateKey
) -> None:
    for name, one in everyone.items():
        if one.granted:
            token = captoken.issue(
                issuer,
                subject_pk=keys[name],
                stream_ids=[stream_id(stream) for stream in one.granted],
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
    durable.write(home.handover / STREAMS, "".join(f"{one}\n" for one in sources).encode())


def _files(home: ZoneHome) -> StorageSettings:
    return StorageSettings(
        url=(home.root / "objects").as_uri(),
        endpoint=None,
        region="us-east-1",
        addressing="auto",
        accept_overwriting_store=False,
    )


def _free_ports(count: int) -> list[int]:
    found: set[int] = set()
    while len(found) < count:
        found.add(free_port())
    return list(found)
