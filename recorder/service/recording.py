"""Events of the query service in the log: each once, also through a crash at any place.

Before a descriptor or a digest is sent, the service's file notes after which place of its stream
it can stand. After a crash or a lost answer the outbox is emptied first, and then the stream is
read from there: what is found was recorded, the rest was not (Query API 4.5, 5.5).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final

from recorder import timestamp
from recorder.emit.emitter import Emitter
from recorder.emit.observation import Observation
from recorder.query.entry import receipt_id
from recorder.service.audit import Batch
from recorder.service.hub_papers import HubPapers
from recorder.service.query_state import RecordRef
from veen.client.client import Client
from veen.client.outbox import Note
from veen.client.pair import Pair
from veen.client.trust import followed
from veen.errors import Unopenable
from veen.receipt import Receipt
from veen.record_event import NotAnEvent, read_event

SUBMITTED: Final = "query.submitted"
RESULT: Final = "query.result"
AUDITED: Final = "query.audit"
_AUDITS_KEPT: Final = "query-audits"
_NOBODY: Final = "unknown"


class Recording:
    """Speaks as the client, which reads its own events too; ``origin`` names this service."""

    def __init__(self, client: Client, emitter: Emitter, papers: HubPapers, origin: str) -> None:
        self._client = client
        self._papers = papers
        self._emitter = emitter
        self._origin = origin

    @property
    def subject_id(self) -> str:
        """The service itself, which answers for digests (Query API 5.5)."""
        return self._origin

    def verify_reachable(self) -> None:
        """Unreachable unless the hub answers now; who it is is kept for proof packages."""
        session = self._client.meet()
        status = session.api.status()
        self._papers.keep(followed(session.hub, status.identity()), status.identity_sig)

    def observed(self, event_type: str, subject_id: str, payload: Any, time_ms: int) -> Observation:
        return Observation(
            event_type=event_type,
            subject_id=subject_id,
            origin=self._origin,
            payload=payload,
            event_time=time_ms,
        )

    def record(self, events: Sequence[Observation]) -> Iterator[RecordRef]:
        """Send events of one type; each one's place in turn, once its receipt is verified."""
        stream = self._stream(events[0].event_type)
        for sent in self._emitter.send_many(events):
            yield self._ref(stream, sent.receipt)

    def settle(self) -> None:
        """Send what the outbox holds: audit entries, and what a failure left there."""
        if self._client.pending():
            self._client.flush()

    def keep_audits(self, batch: Batch) -> None:
        """Put a batch into the outbox together with its token; never twice."""
        note = Note(f"{_AUDITS_KEPT}/{batch.incarnation}", batch.token)
        if self._client.note(note.name) != note.value:
            self._emitter.emit_many([self._audit(one) for one in batch.entries], note=note)

    def recorded_since(
        self, event_type: str, after: int, key_of: Callable[[Any], str | None]
    ) -> dict[str, RecordRef]:
        """Our own events after a place, by the key their payload has; the first of each."""
        stream = self._stream(event_type)
        found: dict[str, RecordRef] = {}
        for pair in self._client.read(stream, from_seq=after + 1):
            key = key_of(self._payload(pair))
            if key is not None:
                found.setdefault(key, self._ref(stream, pair.receipt))
        return found

    def _payload(self, pair: Pair) -> Any:
        """What an event of ours says; None for another's message, or none of ours to read."""
        if pair.msg.client_id != self._emitter.principal_id:
            return None
        try:
            opened = self._client.open_payload(pair.msg)
            return read_event(opened.header.schema, opened.body, pair.msg.client_id).value()
        except (Unopenable, NotAnEvent):
            return None

    def _audit(self, entry: dict[str, Any]) -> Observation:
        subject = entry["metadata"]["subject_id"] or _NOBODY
        return self.observed(AUDITED, subject, entry, timestamp.parse(entry["request_time"]))

    def _stream(self, event_type: str) -> str:
        return self._emitter.streams.stream_of(event_type).name

    def _ref(self, stream: str, receipt: Receipt) -> RecordRef:
        hub_id = self._client.session.hub.hub_id.hex()
        return RecordRef(stream, receipt.stream_seq, hub_id, receipt_id(receipt.leaf_hash))
