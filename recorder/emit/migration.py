"""Renames and splits of recorder streams, recorded as events themselves (SDR0 3.2.2)."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Final

from recorder.emit.emitter import Emitter, NoEvent, Observation
from recorder.stream_map import CHANGES, NAMESPACE, RecorderStreamMap
from veen.client.outbox import SentEvent
from veen.errors import Malformed
from veen.events import RecordEvent

RENAMED: Final = "stream.renamed"
SPLIT: Final = "stream.split"
_KEYS: Final = {"from", "last_seq", "to"}


@dataclass(frozen=True, slots=True)
class Target:
    """A stream, and the event types that go there after the migration."""

    stream: str
    event_types: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Migration:
    """A rename or split.

    ``last_seq`` is the last position used in the old stream; 0 if it was empty.
    """

    source: str
    last_seq: int
    targets: tuple[Target, ...]

    def takes_away(self, event_type: str) -> bool:
        """Whether the migration moves events of that type out of the old stream."""
        streams = [target.stream for target in self.targets if event_type in target.event_types]
        return bool(streams) and self.source not in streams

    def payload(self) -> dict[str, Any]:
        to = [
            {"stream": target.stream, "event_types": list(target.event_types)}
            for target in self.targets
        ]
        return {"from": self.source, "last_seq": self.last_seq, "to": to}


@dataclass(frozen=True, slots=True)
class Stay:
    """A stream in which events of a type are, up to a position of it, or until now if None."""

    stream: str
    last_seq: int | None


def rename(streams: RecorderStreamMap, old: str, new: str, last_seq: int) -> Migration:
    """A stream replaces another, with everything that is configured for it now."""
    return _checked(streams, old, [new], last_seq)


def split(streams: RecorderStreamMap, old: str, new: Sequence[str], last_seq: int) -> Migration:
    """Several streams replace one, which may be among them."""
    if len(set(new)) != len(new) or len(new) < 2:
        raise NoEvent(f"a split: expected two or more different streams, got {', '.join(new)}")
    return _checked(streams, old, new, last_seq)


def record(emitter: Emitter, migration: Migration, origin: str) -> SentEvent:
    """Record a migration as an admin, and verify its receipt."""
    return emitter.send(
        Observation(
            event_type=RENAMED if len(migration.targets) == 1 else SPLIT,
            subject_id=f"stream:{migration.source}",
            origin=origin,
            payload=migration.payload(),
        )
    )


def migrations(events: Iterable[RecordEvent]) -> list[Migration]:
    """Return the migrations among the events of the stream of changes, in order."""
    return [_migration(event) for event in events if event.event_type in (RENAMED, SPLIT)]


def stays(event_type: str, history: Iterable[Migration], streams: RecorderStreamMap) -> list[Stay]:
    """Return the streams an event type was in over time, the current stream last."""
    left = [migration for migration in history if migration.takes_away(event_type)]
    past = [Stay(migration.source, migration.last_seq) for migration in left]
    return [*past, Stay(streams.stream_of(event_type).name, None)]


def _checked(streams: RecorderStreamMap, old: str, new: Sequence[str], last_seq: int) -> Migration:
    if not old.startswith(NAMESPACE) or old == CHANGES:
        raise NoEvent(f"{old!r}: expected a stream of record/* that can be renamed or split")
    if last_seq < 0:
        raise NoEvent(f"last_seq = {last_seq}: expected 0 or the last stream_seq of {old}")
    if old not in new and streams.named(old) is not None:
        raise NoEvent(f"{old} is still configured: give its event types to the new streams first")
    targets = []
    for name in new:
        stream = streams.named(name)
        if stream is None:
            known = ", ".join(stream.name for stream in streams.streams)
            raise NoEvent(f"{name!r}: expected a configured stream, one of {known}")
        targets.append(Target(name, tuple(sorted(stream.event_types))))
    if [old] == list(new):
        raise NoEvent(f"{old} cannot be renamed to itself")
    return Migration(old, last_seq, tuple(targets))


def _migration(event: RecordEvent) -> Migration:
    value = event.value()
    if not isinstance(value, dict) or set(value) != _KEYS or not isinstance(value["to"], list):
        raise Malformed(f"{event.event_type}: expected an object of {', '.join(sorted(_KEYS))}")
    if not isinstance(value["from"], str) or type(value["last_seq"]) is not int:
        raise Malformed(f"{event.event_type}: expected a stream as from and an integer as last_seq")
    return Migration(value["from"], value["last_seq"], tuple(map(_target, value["to"])))


def _target(value: Any) -> Target:
    if not isinstance(value, dict) or set(value) != {"stream", "event_types"}:
        raise Malformed(f"{value!r:.80}: expected an object of stream and event_types")
    types = value["event_types"]
    texts = [value["stream"], *(types if isinstance(types, list) else [None])]
    if not all(isinstance(text, str) for text in texts):
        raise Malformed(f"{value!r:.80}: expected an object of stream and event_types")
    return Target(texts[0], tuple(texts[1:]))
