"""The identities of a zone, and what each may read and write: one for each role (AGB0 4.8)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final

from bridge.stream_map import IMPORTS, OFFLINE_LOG, ONLINE_LOG, default_target
from recorder.stream_map import AUDIT, CHANGES, REPLAYS, REQUESTS, RESULTS
from zone.config import OFFLINE, ONLINE

ANALYST: Final = "analyst"
"""The user of the query service, with a token or signed requests; unknown to the hub."""

AUDITS: Final = "record/infrastructure/audits"
READER: Final = "reader"
IMPORT_RECORDER: Final = "import-recorder"
HTTP: Final = "record/app/http"
ACCESS: Final = "record/security/access"
HOSTS: Final = "record/infrastructure/hosts"

TYPES: Final[Mapping[str, tuple[str, ...]]] = MappingProxyType(
    {
        HTTP: ("http.access", "http.error"),
        ACCESS: ("login.succeeded", "login.failed", "role.granted", "key.used"),
        HOSTS: ("host.started", "host.alarm", "service.deployed", "disk.usage"),
    }
)
"""The streams of a new zone, and their event types."""

PRODUCERS: Final[Mapping[str, str]] = MappingProxyType(
    {"gateway": HTTP, "access": ACCESS, "hosts": HOSTS}
)
"""The producers of every zone, and their streams (combined product 5.1.1)."""

EXPORTED: Final = (*TYPES, REQUESTS, RESULTS)
"""Streams that cross by default: events, and queries with their results (Query API 9.1)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ZonePerson:
    """The rights of an identity. ``role`` is that of a principal of the hub; ``granted`` are the
    streams of its capability.

    An identity without either can neither read nor write at the hub.
    """

    role: str | None = None
    reads: tuple[str, ...] = ()
    writes: tuple[str, ...] = ()
    granted: tuple[str, ...] = ()


def people(role: str, sources: tuple[str, ...]) -> dict[str, ZonePerson]:
    """The identities of a zone by name; ``sources`` are the streams that cross: exported online,
    imported offline.

    The issuer signs capabilities, the keeper opens the escrow. The reader is only a keystore: the
    zone's events are sealed to its card, and every process that opens them reads its keys. It is
    no principal and has no capability, so that nobody can act as the reader.
    """
    persons = {
        "issuer": ZonePerson(),
        "keeper": ZonePerson(),
        ANALYST: ZonePerson(),
        READER: ZonePerson(),
        **_recorder(),
    }
    if role == ONLINE:
        persons["bridge"] = ZonePerson(role="bridge_online", reads=(*sources, ONLINE_LOG))
        persons["audit"] = _writer(ONLINE_LOG)
    if role == OFFLINE:
        targets = tuple(default_target(source) for source in (*sources, ONLINE_LOG))
        persons["bridge"] = ZonePerson(role="bridge_offline", writes=("import/*",), granted=targets)
        persons["audit"] = _writer(OFFLINE_LOG)
        persons["reconciler"] = ZonePerson(
            role="recorder_admin", reads=("import/*", OFFLINE_LOG, IMPORTS)
        )
        persons[IMPORT_RECORDER] = ZonePerson(
            role="recorder_producer", writes=(IMPORTS,), granted=(IMPORTS,)
        )
    return persons | {
        name: ZonePerson(role="recorder_producer", writes=(stream,), granted=(stream,))
        for name, stream in PRODUCERS.items()
    }


def _recorder() -> dict[str, ZonePerson]:
    """Identities of the recorder: service, admin, and an auditor, who records replays."""
    return {
        "admin": ZonePerson(
            role="recorder_admin",
            reads=("*",),
            writes=("record/infrastructure/*",),
            granted=(CHANGES, AUDITS),
        ),
        "service": ZonePerson(
            role="query",
            reads=("record/*", "import/*"),
            writes=("record/query/*",),
            granted=(REQUESTS, RESULTS, AUDIT),
        ),
        "auditor": ZonePerson(
            role="query",
            reads=("record/*", "import/*"),
            writes=(REPLAYS,),
            granted=(REPLAYS,),
        ),
    }


def _writer(log: str) -> ZonePerson:
    return ZonePerson(role="audit_writer", writes=(log,), granted=(log,))


def streams(persons: Mapping[str, ZonePerson]) -> tuple[str, ...]:
    """Every stream that an identity of the zone writes."""
    return tuple(sorted({stream for person in persons.values() for stream in person.granted}))
