"""A log in memory, for what the runner records: the port of Recording, without a hub."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

from recorder.emit.emitter import Observation
from recorder.service.database import RecordRef
from recorder.service.recording import AuditBatch
from veen.client.transport import Unreachable


class Log:
    """A hub and an outbox in memory: the port of Recording, with answers that get lost.

    ``fails`` says what becomes of the next event: it lands and the answer is lost, it waits in
    the outbox, or nothing of it is kept.
    """

    subject_id = "query@z1"

    def __init__(self) -> None:
        self.events: list[Observation] = []
        self.outbox: list[Observation] = []
        self.fails: str | None = None
        self.is_away = False
        self._notes: dict[str, bytes] = {}

    def verify_reachable(self) -> None:
        if self.is_away:
            raise Unreachable("away")

    def observed(self, event_type: str, subject_id: str, payload: Any, ms: int) -> Observation:
        return Observation(
            event_type=event_type, subject_id=subject_id, origin="z1", payload=payload,
            event_time=ms,
        )  # fmt: skip

    def record(self, events: Sequence[Observation]) -> Iterator[RecordRef]:
        for event in events:
            fails, self.fails = self.fails, None
            if fails == "waits":
                self.outbox.append(event)
            elif fails != "lost":
                self.events.append(event)
            if fails is not None:
                raise Unreachable(fails)
            yield self._ref(len(self.events))

    def settle(self) -> None:
        self.verify_reachable()
        self.events += self.outbox
        self.outbox = []

    def store_audits(self, batch: AuditBatch) -> None:
        if self._notes.get(batch.incarnation) != batch.token:
            self.outbox += [self.observed("query.audit", "x", entry, 1) for entry in batch.entries]
            self._notes[batch.incarnation] = batch.token

    def recorded_since(
        self, event_type: str, after: int, key_of: Callable[[Any], str | None]
    ) -> dict[str, RecordRef]:
        result: dict[str, RecordRef] = {}
        for seq, event in enumerate(self.events, 1):
            key = key_of(event.payload)
            if event.event_type == event_type and seq > after and key is not None:
                result.setdefault(key, self._ref(seq))
        return result

    def _ref(self, seq: int) -> RecordRef:
        return RecordRef("record/query/x", seq, "00" * 32, f"rcpt-{seq}")

    def of(self, event_type: str) -> list[Any]:
        return [event.payload for event in self.events if event.event_type == event_type]
