"""The emitter: turns observations into recorder events and sends each to its stream (SDR0 3.2.2).

An observation is what a program reports, before it becomes a recorder event (SDR0 3.2.1). An
emitter acts for one principal, the client it sends through (SDR0 3.4, I3), and needs nothing from
the hub except that it accepts the events.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import groupby
from operator import attrgetter
from typing import Any, NamedTuple

from recorder.stream_map import CHANGES, RecorderStream, RecorderStreamMap
from veen.client.client import Client
from veen.client.outbox import Flushed, Note, Options, SentEvent
from veen.errors import Malformed, VeenError
from veen.events import MAX_NAME_BYTES, MAX_TIME_MS, RECORD_SCHEMA, RecordEvent
from veen.system.environment import Progress, no_progress
from veen.wire.body import WholeItem
from veen.wire.canonical_json import value_to_cbor


class NoEvent(VeenError):
    """An observation that cannot be recorded, with the reason; nothing of it was stored."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Observation:
    """What a program reports.

    ``payload`` is a JSON value; ``event_time`` is in ms since 1970 and defaults to now.
    """

    event_type: str
    subject_id: str
    origin: str
    payload: Any = field(repr=False)
    event_time: int | None = None


Clock = Callable[[], int]
"""Milliseconds since 1970."""


class Addressed(NamedTuple):
    """The encoded body of an event, and the stream it goes to."""

    stream: str
    body: bytes


class Emitter:
    """Records observations.

    ``recipient`` is the zone's reader key; without it events are sealed to the client itself.
    """

    def __init__(
        self,
        client: Client,
        streams: RecorderStreamMap,
        *,
        clock: Clock,
        recipient: bytes | None = None,
    ) -> None:
        self.streams = streams
        self.clock = clock
        self.principal_id = client.session.identity.client_id
        self._client = client
        self._writable: set[str] = set()
        """The streams that the principal was found to be a producer of."""
        self._options: Options = {"schema": RECORD_SCHEMA, "recipient": recipient}

    def address(self, observed: Observation) -> Addressed:
        """Encode an observation and choose its stream; raises NoEvent or UnknownType."""
        stream = self.streams.stream_of(observed.event_type)
        if stream.name not in self._writable:
            self._verify_writer(stream)
            self._writable.add(stream.name)
        payload = _payload(observed, stream.max_payload_bytes)
        when = self.clock() if observed.event_time is None else observed.event_time
        _verify(observed, when)
        event = RecordEvent(
            subject_id=observed.subject_id,
            principal_id=self.principal_id,
            event_type=observed.event_type,
            event_time=when,
            origin=observed.origin,
            payload=WholeItem(payload),
        )
        return Addressed(stream.name, event.encode())

    def emit(self, observed: Observation) -> int:
        """Store an event durably in the outbox; ``flush`` sends it."""
        return self.store([self.address(observed)])[0]

    def emit_many(self, observed: Iterable[Observation], *, note: Note | None = None) -> list[int]:
        """Store events, and a note with them, in one transaction; each stream keeps its order."""
        return self.store([self.address(observation) for observation in observed], note=note)

    def store(self, events: Sequence[Addressed], *, note: Note | None = None) -> list[int]:
        """Store events that are already addressed, like ``emit_many``."""
        return self._client.emit_each(events, note=note, **self._options)

    def note(self, name: str) -> bytes | None:
        return self._client.note(name)

    def flush(self, progress: Progress = no_progress) -> Flushed:
        """Send everything in the outbox, in batches for each stream."""
        return self._client.flush(progress)

    def pending(self) -> int:
        return self._client.pending()

    def send(self, observed: Observation) -> SentEvent:
        """Send an event and verify its receipt."""
        (sent,) = self.send_many([observed])
        return sent

    def send_many(self, observed: Iterable[Observation]) -> Iterator[SentEvent]:
        """Send events and verify their receipts, in the order given.

        Consecutive events of a stream share a batch; where streams alternate, ``emit_many`` and
        ``flush`` need fewer requests. When this fails, observations not yet consumed are not
        stored.
        """
        events = (self.address(observation) for observation in observed)
        for stream, group in groupby(events, attrgetter("stream")):
            bodies = (event.body for event in group)
            yield from self._client.send_many(stream, bodies, **self._options)

    def _verify_writer(self, stream: RecorderStream) -> None:
        """Verify the producer before the hub does, so that no event waits in vain.

        Without configured producers the hub decides.
        """
        is_admin = self.principal_id in self.streams.admins
        writers = self.streams.writers(stream)
        if is_admin and not self.streams.is_for_admins(stream):
            raise self._refused(
                f"is an admin, and emits nothing to {stream.name}: an admin must be another "
                "identity than every producer (admins)"
            )
        if stream.name == CHANGES and not is_admin:
            raise self._refused(
                "is no admin of this recorder, and only admins record changes of streams (admins)"
            )
        if writers and self.principal_id not in writers:
            raise self._refused(f"is not among the producers of {stream.name}")

    def _refused(self, why: str) -> NoEvent:
        return NoEvent(f"principal {self.principal_id.hex()} {why}")


def _payload(observed: Observation, bound: int) -> bytes:
    try:
        payload = value_to_cbor(observed.payload)
    except Malformed as error:
        raise NoEvent(f"the payload of {observed.event_type}: {error}") from error
    if len(payload) > bound:
        raise NoEvent(
            f"the payload of {observed.event_type}: expected at most {bound} bytes "
            f"(max_payload_bytes), got {len(payload)}"
        )
    return payload


def _verify(observed: Observation, when: int) -> None:
    for name in ("subject_id", "event_type", "origin"):
        value = getattr(observed, name)
        try:
            size = len(value.encode())
        except UnicodeEncodeError as error:
            raise NoEvent(f"{name} = {value!r}: expected text: {error}") from error
        if not 1 <= size <= MAX_NAME_BYTES:
            raise NoEvent(
                f"{name} = {value!r:.80}: expected 1 to {MAX_NAME_BYTES} bytes, got {size}"
            )
    if not 0 <= when <= MAX_TIME_MS:
        raise NoEvent(f"event_time = {when}: expected milliseconds from 1970 to the year 9999")
