"""Who is in a zone, and what each may read and write: one identity for one part (AGB0 4.8)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final

from bridge.stream_map import IMPORTS, OFFLINE_LOG, ONLINE_LOG, default_target
from recorder.stream_map import AUDIT, CHANGES, REPLAYS, REQUESTS, RESULTS
from zone.config import OFFLINE, ONLINE

ANALYST: Final = "analyst"
"""Who asks the query service, with a token or with signed requests; the hub does not know it."""

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
"""The streams that a zone begins with, and what they hold."""

PRODUCERS: Final[Mapping[str, str]] = MappingProxyType(
    {"gateway": HTTP, "access": ACCESS, "hosts": HOSTS}
)
"""Who records, and where: in every zone (combined product 5.1.1)."""

EXPORTED: Final = (*TYPES, REQUESTS, RESULTS)
"""What crosses by default: events, and queries about them with their results (Query API 9.1)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ZonePerson:
    """``role`` is that of a principal of the hub; ``granted`` are streams of its capability.

    Somebody without either can neither read nor write at the hub.
    """

    role: str | None = None
    reads: tuple[str, ...] = ()
    writes: tuple[str, ...] = ()
    granted: tuple[str, ...] = ()


def people(role: str, sources: tuple[str, ...]) -> dict[str, ZonePerson]:
    """By name; ``sources`` are the streams that cross: exported online, imported offline.

    The issuer signs capabilities, the keeper opens the escrow. The reader is a keystore alone: the
    zone's events are sealed to its card, and every process that opens them reads its keys; it is
    no principal and has no capability, so nobody acts as it.
    """
    result = {
        "issuer": ZonePerson(),
        "keeper": ZonePerson(),
        ANALYST: ZonePerson(),
        READER: ZonePerson(),
        **_recorder(),
    }
    if role == ONLINE:
        result["bridge"] = ZonePerson(role="bridge_online", reads=(*sources, ONLINE_LOG))
        result["audit"] = _writer(ONLINE_LOG)
    if role == OFFLINE:
        targets = tuple(default_target(source) for source in (*sources, ONLINE_LOG))
        result["bridge"] = ZonePerson(role="bridge_offline", writes=("import/*",), granted=targets)
        result["audit"] = _writer(OFFLINE_LOG)
        result["reconciler"] = ZonePerson(
            role="recorder_admin", reads=("import/*", OFFLINE_LOG, IMPORTS)
        )
        result[IMPORT_RECORDER] = ZonePerson(
            role="recorder_producer", writes=(IMPORTS,), granted=(IMPORTS,)
        )
    return result | {
        name: ZonePerson(role="recorder_producer", writes=(stream,), granted=(stream,))
        for name, stream in PRODUCERS.items()
    }


def _recorder() -> dict[str, ZonePerson]:
    """The service asks and answers; the admin manages; an auditor records what it replayed."""
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


def streams(value: Mapping[str, ZonePerson]) -> tuple[str, ...]:
    """Every stream that somebody of the zone writes."""
    return tuple(sorted({item for person in value.values() for item in person.granted}))
