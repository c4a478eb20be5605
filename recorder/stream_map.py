"""Which event type goes to which recorder stream, and who may append there (SDR0 3.2.2, 3.2.3)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from fnmatch import fnmatchcase
from types import MappingProxyType
from typing import Any, Final

from veen.digest import ht
from veen.errors import VeenError
from veen.label import DEFAULT_PROFILE
from veen.system.config import BadSettings
from veen.wire import canonical_json
from veen.wire.api import StreamInfo

NAMESPACE: Final = "record/"
LONG_TERM: Final = "long_term"
DEFAULT_PAYLOAD_BYTES: Final = 65_536
AROUND_PAYLOAD_BYTES: Final = 4_096
"""The maximum size of a message without its payload: other fields, seal, signature, capability."""
MAX_PAYLOAD_BYTES: Final = 1_000_000
"""The largest payload that fits into a message with the longest other fields."""

REQUESTS: Final = "record/query/requests"
RESULTS: Final = "record/query/results"
AUDIT: Final = "record/query/audit/access"
AUDIT_PATTERN: Final = "record/query/audit/*"
REPLAYS: Final = "record/query/replays"
CHANGES: Final = "record/infrastructure/changes"
RESERVED: Final[Mapping[str, tuple[str, ...]]] = MappingProxyType(
    {
        REQUESTS: ("query.submitted",),
        RESULTS: ("query.result",),
        AUDIT_PATTERN: ("query.audit",),
        REPLAYS: ("query.replayed",),
        CHANGES: ("stream.renamed", "stream.split"),
    }
)
"""The recorder's own streams, by name or pattern, with the only event types they hold."""

MANAGEMENT: Final = "record/infrastructure/"
"""Prefix of the streams for actions and findings of those who manage the recorder."""

_RESERVED_NAMES: Final = (REQUESTS, RESULTS, AUDIT, REPLAYS, CHANGES)


class UnknownType(VeenError):
    """An event type without a configured stream."""


class StrangeProfile(VeenError):
    """A recorder stream that the hub stores with epochs or padding."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RecorderStream:
    """A stream; ``producers`` may append to it, and if none are named, the hub decides."""

    name: str
    event_types: tuple[str, ...]
    max_payload_bytes: int = DEFAULT_PAYLOAD_BYTES
    producers: tuple[bytes, ...] = ()
    retention: str = LONG_TERM

    def document(self) -> dict[str, Any]:
        """Canonical form, independent of the order of types and producers in the file."""
        return {
            "name": self.name,
            "event_types": sorted(self.event_types),
            "max_payload_bytes": self.max_payload_bytes,
            "producers": sorted(producer.hex() for producer in self.producers),
            "retention": self.retention,
        }


class RecorderStreamMap:
    """All recorder streams by name, including the recorder's own."""

    def __init__(self, configured: Iterable[RecorderStream], admins: Iterable[bytes]) -> None:
        self.admins = tuple(admins)
        named = tuple(configured)
        _verify(named, self.admins)
        reserved = map(_reserved, _RESERVED_NAMES)
        implied = [stream for stream in reserved if _is_missing(stream, named)]
        self.streams = tuple(sorted((*named, *implied), key=lambda stream: stream.name))
        self._by_type = {kind: stream for stream in self.streams for kind in stream.event_types}

    def stream_of(self, event_type: str) -> RecorderStream:
        stream = self._by_type.get(event_type)
        if stream is None:
            known = ", ".join(sorted(self._by_type))
            raise UnknownType(
                f"no stream is configured for the event type {event_type!r}; expected one of "
                f"{known}"
            )
        return stream

    def holds(self, event_type: str) -> bool:
        return event_type in self._by_type

    def named(self, name: str) -> RecorderStream | None:
        return next((stream for stream in self.streams if stream.name == name), None)

    def writers(self, stream: RecorderStream) -> tuple[bytes, ...]:
        """The principals that may append: the producers, or for the stream of changes the
        admins."""
        return self.admins if stream.name == CHANGES else stream.producers

    def is_for_admins(self, stream: RecorderStream) -> bool:
        """Whether an admin may append: to the recorder's own streams only."""
        reserved = any(fnmatchcase(stream.name, pattern) for pattern in RESERVED)
        return reserved or stream.name.startswith(MANAGEMENT)

    def profile_id(self) -> bytes:
        """Hash of this configuration of streams, part of every recorder checkpoint."""
        document = [stream.document() for stream in self.streams]
        return ht("veen/recorder-profile", canonical_json.encode(document))


def refuse_strange_profiles(infos: Iterable[StreamInfo]) -> None:
    """Refuse recorder streams with several labels, which checkpoints and the index would silently
    leave out."""
    plain = DEFAULT_PROFILE.profile_id()
    for info in infos:
        if info.name.startswith(NAMESPACE) and info.profile_id != plain:
            raise StrangeProfile(
                f"stream {info.name}: expected epoch_sec = 0 and pad_block = 0, got "
                f"{info.epoch_sec} and {info.pad_block}: it would be in no recorder checkpoint or "
                "not be indexed; record to another stream"
            )


def _reserved(name: str) -> RecorderStream:
    types = RESERVED[AUDIT_PATTERN if name == AUDIT else name]
    return RecorderStream(name=name, event_types=types, max_payload_bytes=MAX_PAYLOAD_BYTES)


def _is_missing(implied: RecorderStream, configured: tuple[RecorderStream, ...]) -> bool:
    given = {kind for stream in configured for kind in stream.event_types}
    return given.isdisjoint(implied.event_types)


def _verify(streams: tuple[RecorderStream, ...], admins: tuple[bytes, ...]) -> None:
    names: set[str] = set()
    types: dict[str, str] = {}
    for stream in streams:
        if stream.name in names:
            raise BadSettings(f"stream {stream.name} is configured twice")
        names.add(stream.name)
        for kind in stream.event_types:
            if kind in types:
                raise BadSettings(
                    f"event type {kind!r} is mapped to {types[kind]} and to {stream.name}; "
                    "an event type has exactly one stream"
                )
            types[kind] = stream.name
        _verify_reserved(stream)
        _verify_producers(stream, admins)


def _verify_reserved(stream: RecorderStream) -> None:
    for pattern, types in RESERVED.items():
        is_there = fnmatchcase(stream.name, pattern)
        if is_there and set(stream.event_types) != set(types):
            raise BadSettings(
                f"stream {stream.name} holds {', '.join(types)} and nothing else, "
                f"not {', '.join(stream.event_types)}"
            )
        taken = sorted(set(stream.event_types) & set(types))
        if taken and not is_there:
            raise BadSettings(
                f"event type {taken[0]!r} belongs to {pattern} and cannot be in {stream.name}"
            )


def _verify_producers(stream: RecorderStream, admins: tuple[bytes, ...]) -> None:
    if stream.name == CHANGES and stream.producers:
        raise BadSettings(f"stream {CHANGES} has no producers: only admins append there")
    for producer in stream.producers:
        if producer in admins:
            raise BadSettings(
                f"principal {producer.hex()} is an admin and a producer of {stream.name}; "
                "an admin must be another identity than every producer"
            )
