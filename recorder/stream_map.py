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
"""What a message has beside its payload at most: other fields, seal, signature, capability."""
MAX_PAYLOAD_BYTES: Final = 1_000_000
"""What still fits into one message, with the longest of the other fields around it."""

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
"""The streams of the recorder itself, by name or pattern, with the only types they hold."""

MANAGEMENT: Final = "record/infrastructure/"
"""Where those who manage the recorder say what they have done and found."""

_RESERVED_NAMES: Final = (REQUESTS, RESULTS, AUDIT, REPLAYS, CHANGES)


class UnknownType(VeenError):
    """An event type that no stream is configured for."""


class StrangeProfile(VeenError):
    """A recorder stream that its hub keeps with epochs or padding."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RecorderStream:
    """``producers`` are the principals that may append; where none are named, the hub decides."""

    name: str
    event_types: tuple[str, ...]
    max_payload_bytes: int = DEFAULT_PAYLOAD_BYTES
    producers: tuple[bytes, ...] = ()
    retention: str = LONG_TERM

    def document(self) -> dict[str, Any]:
        """Does not depend on the order in which the file gives types and producers."""
        return {
            "name": self.name,
            "event_types": sorted(self.event_types),
            "max_payload_bytes": self.max_payload_bytes,
            "producers": sorted(producer.hex() for producer in self.producers),
            "retention": self.retention,
        }


class RecorderStreamMap:
    """All recorder streams by name, those of the recorder itself included."""

    def __init__(self, configured: Iterable[RecorderStream], admins: Iterable[bytes]) -> None:
        self.admins = tuple(admins)
        named = tuple(configured)
        _verify(named, self.admins)
        implied = [item for item in map(_reserved, _RESERVED_NAMES) if _is_missing(item, named)]
        self.streams = tuple(sorted((*named, *implied), key=lambda item: item.name))
        self._by_type = {kind: stream for stream in self.streams for kind in stream.event_types}

    def stream_of(self, event_type: str) -> RecorderStream:
        value = self._by_type.get(event_type)
        if value is None:
            known = ", ".join(sorted(self._by_type))
            raise UnknownType(
                f"no stream is configured for the event type {event_type!r}; known are {known}"
            )
        return value

    def holds(self, event_type: str) -> bool:
        return event_type in self._by_type

    def named(self, name: str) -> RecorderStream | None:
        return next((stream for stream in self.streams if stream.name == name), None)

    def writers(self, stream: RecorderStream) -> tuple[bytes, ...]:
        """Who may append: the producers, or the admins where changes are recorded."""
        return self.admins if stream.name == CHANGES else stream.producers

    def is_for_admins(self, stream: RecorderStream) -> bool:
        """Whether an admin may append: to the recorder's own streams, not to what it records."""
        reserved = any(fnmatchcase(stream.name, pattern) for pattern in RESERVED)
        return reserved or stream.name.startswith(MANAGEMENT)

    def profile_id(self) -> bytes:
        """What identifies this configuration of streams in a recorder checkpoint."""
        document = [stream.document() for stream in self.streams]
        return ht("veen/recorder-profile", canonical_json.encode(document))


def refuse_strange_profiles(infos: Iterable[StreamInfo]) -> None:
    """Checkpoints and index are over streams of one label: others would be left out silently."""
    plain = DEFAULT_PROFILE.profile_id()
    for info in infos:
        if info.name.startswith(NAMESPACE) and info.profile_id != plain:
            raise StrangeProfile(
                f"the hub keeps {info.name} with epoch_sec = {info.epoch_sec} and pad_block = "
                f"{info.pad_block}; a recorder stream has neither, and this one would be in no "
                "checkpoint or not be indexed: record to another stream without them"
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
