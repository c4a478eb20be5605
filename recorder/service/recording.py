"""Events of the query service in the log: descriptors, digests and audits, each exactly once.

Recording is idempotent. Before a descriptor or a digest is sent, the service's database notes,
write-ahead, the position of its stream after which it can be. After a crash or a lost answer the
outbox is emptied first, and then the stream is read from that position: what is there was recorded,
the rest was not (Query API 4.5, 5.5). After any failure nothing new is sent until the state of
earlier events is known.

Audit entries have the fields of the query audit profile. An entry is durable before its request is
answered. Unauthenticated requests, and those for unknown resources, are counted by source, minute
and status, so that a flood of them adds a few entries a minute.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final

from recorder import timestamp
from recorder.checkpoints.store import HubIdentityFile
from recorder.emit.emitter import Emitter, Observation
from recorder.query.package import RESULT, SUBMITTED
from recorder.query.select import receipt_id
from recorder.service.database import Database, Query, RecordRef, Results
from recorder.settings import QueryPrincipal
from recorder.timestamp import render
from veen.client.client import Client
from veen.client.log_head import Pair
from veen.client.outbox import Note
from veen.errors import Unopenable, VeenError
from veen.events import NotAnEvent, read_event
from veen.hub_identity import followed_identity
from veen.receipt import Receipt
from veen.wire import canonical_json

_log = logging.getLogger(__name__)


RESOURCE_CLASS: Final = "system-log"
MAX_SOURCES: Final = 256
"""Sources that are counted separately in a minute; the others are counted together."""

_OTHERS: Final = "others"
_MINUTE_MS: Final = 60_000
AUDITED: Final = "query.audit"
_AUDIT_NOTE: Final = "query-audits"
_UNKNOWN_SUBJECT: Final = "unknown"
_AUDIT_BATCH: Final = 500


@dataclass(frozen=True, slots=True, kw_only=True)
class AccessAttempt:
    """A request of a known principal; ``result_digest`` is H of the returned digest."""

    requester: str
    subject_id: str
    identity: bytes
    route: str
    resource: str
    parameters: dict[str, Any]
    purpose: str | None
    outcome: str
    status: int
    source: str
    result_digest: str | None
    time_ms: int

    def entry(self) -> dict[str, Any]:
        return {
            "requester_identity": self.identity.hex(),
            "resource_identifier": self.resource,
            "resource_class": RESOURCE_CLASS,
            "query_parameters": self.parameters,
            "purpose_code": self.purpose,
            "result_digest": self.result_digest,
            "request_time": render(self.time_ms),
            "metadata": {
                "requester": self.requester,
                "subject_id": self.subject_id,
                "route": self.route,
                "outcome": self.outcome,
                "status": self.status,
                "source": self.source,
            },
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class Counted:
    """An unauthenticated request, or one for an unknown resource."""

    source: str
    route: str
    outcome: str
    status: int
    time_ms: int


@dataclass(frozen=True, slots=True)
class QueuedAudit:
    """An entry by its number, which is never reused."""

    number: int
    entry: dict[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditBatch:
    """Entries that go to the client's outbox together, under a token that is used once.

    The outbox stores the token with the entries. Numbers would not do: a database that was lost or
    restored from an older copy reuses numbers that the outbox has seen for other entries.
    ``incarnation`` identifies the database: a new one has another.
    """

    incarnation: str
    token: bytes
    entries: tuple[dict[str, Any], ...]


class Audits:
    """Audit entries that wait to be recorded."""

    def __init__(self, database: Database) -> None:
        self._db = database

    def add(self, attempt: AccessAttempt) -> None:
        self._insert(attempt.entry())

    def add_counted(self, counted: Counted) -> None:
        """Count a request; sources beyond the limit are counted together."""
        minute = counted.time_ms // _MINUTE_MS
        with self._db.changing() as db:
            (sources,) = db.execute(
                "SELECT count(DISTINCT source) FROM counted WHERE minute = ? AND source <> ?",
                (minute, counted.source),
            ).fetchone()
            source = counted.source if sources < MAX_SOURCES else _OTHERS
            db.execute(
                "INSERT INTO counted VALUES (?, ?, ?, ?, 1, ?) "
                "ON CONFLICT DO UPDATE SET count = count + 1",
                (minute, source, counted.status, counted.outcome, counted.route),
            )

    def settle_counts(self, now_ms: int) -> int:
        """Turn the counts of past minutes into entries; return how many."""
        with self._db.changing() as db:
            past = "FROM counted WHERE minute < ?"
            rows = db.execute(f"SELECT * {past}", (now_ms // _MINUTE_MS,)).fetchall()
            for row in rows:
                entry = canonical_json.encode(_counted(*row))
                db.execute("INSERT INTO audits (entry) VALUES (?)", (entry,))
            db.execute(f"DELETE {past}", (now_ms // _MINUTE_MS,))
        return len(rows)

    def waiting(self, limit: int) -> list[QueuedAudit]:
        query = "SELECT id, entry FROM audits ORDER BY id LIMIT ?"
        return [
            QueuedAudit(number, json.loads(entry)) for number, entry in self._db.rows(query, limit)
        ]

    def next_batch(self, limit: int) -> AuditBatch | None:
        """The batch that was begun and not ended, else a new batch of the oldest entries."""
        with self._db.changing() as db:
            (token,) = db.execute("SELECT max(batch) FROM audits").fetchone()
            if token is None:
                (token,) = db.execute("SELECT randomblob(16)").fetchone()
                oldest = "SELECT id FROM audits ORDER BY id LIMIT ?"
                db.execute(f"UPDATE audits SET batch = ? WHERE id IN ({oldest})", (token, limit))  # noqa: S608
            rows = db.execute("SELECT entry FROM audits WHERE batch = ? ORDER BY id", (token,))
            entries = tuple(json.loads(entry) for (entry,) in rows)
            ((incarnation,),) = db.execute("SELECT id FROM incarnation").fetchall()
        return (
            AuditBatch(incarnation=incarnation, token=token, entries=entries) if entries else None
        )

    def end_batch(self, batch: AuditBatch) -> None:
        """Delete entries that are in the client's outbox, or already in the log."""
        with self._db.changing() as db:
            db.execute("DELETE FROM audits WHERE batch = ?", (batch.token,))

    def count(self) -> int:
        ((count,),) = self._db.rows("SELECT count(*) FROM audits")
        return int(count)

    def _insert(self, entry: dict[str, Any]) -> None:
        with self._db.changing() as db:
            db.execute("INSERT INTO audits (entry) VALUES (?)", (canonical_json.encode(entry),))


def _counted(
    minute: int, source: str, status: int, outcome: str, count: int, route: str
) -> dict[str, Any]:
    return {
        "requester_identity": None,
        "resource_identifier": route,
        "resource_class": RESOURCE_CLASS,
        "query_parameters": None,
        "purpose_code": None,
        "result_digest": None,
        "request_time": render(minute * _MINUTE_MS),
        "metadata": {
            "requester": None,
            "subject_id": None,
            "route": route,
            "outcome": outcome,
            "status": status,
            "source": source,
            "count": count,
        },
    }


class Recording:
    """Records events as the client, which also reads them; ``origin`` names this service."""

    def __init__(
        self, client: Client, emitter: Emitter, identity_file: HubIdentityFile, origin: str
    ) -> None:
        self._client = client
        self._identity_file = identity_file
        self._emitter = emitter
        self._origin = origin

    @property
    def subject_id(self) -> str:
        """The service itself, which is the subject of digests (Query API 5.5)."""
        return self._origin

    def verify_reachable(self) -> None:
        """Raise Unreachable unless the hub answers; stores its identity for proof packages."""
        session = self._client.meet()
        status = session.api.status()
        self._identity_file.store(
            followed_identity(session.hub, status.identity()), status.identity_sig
        )

    def observed(self, event_type: str, subject_id: str, payload: Any, time_ms: int) -> Observation:
        return Observation(
            event_type=event_type,
            subject_id=subject_id,
            origin=self._origin,
            payload=payload,
            event_time=time_ms,
        )

    def record(self, events: Sequence[Observation]) -> Iterator[RecordRef]:
        """Send events of one type; yield the position of each once its receipt is verified."""
        stream = self._stream(events[0].event_type)
        for sent in self._emitter.send_many(events):
            yield self._ref(stream, sent.receipt)

    def settle(self) -> None:
        """Send the contents of the outbox: audit entries, and what a failure left there."""
        if self._client.pending():
            self._client.flush()

    def store_audits(self, batch: AuditBatch) -> None:
        """Put a batch into the outbox together with its token; idempotent."""
        note = Note(f"{_AUDIT_NOTE}/{batch.incarnation}", batch.token)
        if self._client.note(note.name) != note.value:
            self._emitter.emit_many([self._audit(entry) for entry in batch.entries], note=note)

    def recorded_since(
        self, event_type: str, after: int, key_of: Callable[[Any], str | None]
    ) -> dict[str, RecordRef]:
        """Our own events after a position, by the key in their payload; the first of each."""
        stream = self._stream(event_type)
        refs: dict[str, RecordRef] = {}
        for pair in self._client.read(stream, from_seq=after + 1):
            key = key_of(self._payload(pair))
            if key is not None:
                refs.setdefault(key, self._ref(stream, pair.receipt))
        return refs

    def _payload(self, pair: Pair) -> Any:
        """The payload of an event of ours; None for any other message."""
        if pair.msg.client_id != self._emitter.principal_id:
            return None
        try:
            opened = self._client.open_payload(pair.msg)
            return read_event(opened.header.schema, opened.body, pair.msg.client_id).value()
        except (Unopenable, NotAnEvent):
            return None

    def _audit(self, entry: dict[str, Any]) -> Observation:
        subject = entry["metadata"]["subject_id"] or _UNKNOWN_SUBJECT
        return self.observed(AUDITED, subject, entry, timestamp.parse(entry["request_time"]))

    def _stream(self, event_type: str) -> str:
        return self._emitter.streams.stream_of(event_type).name

    def _ref(self, stream: str, receipt: Receipt) -> RecordRef:
        hub_id = self._client.session.hub.hub_id.hex()
        return RecordRef(stream, receipt.stream_seq, hub_id, receipt_id(receipt.leaf_hash))


class Bookkeeping:
    """Records descriptors, digests and audits, and recovers after failures."""

    def __init__(
        self,
        results: Results,
        audits: Audits,
        recording: Recording,
        *,
        principal_of: Callable[[str], QueryPrincipal | None],
        clock_ms: Callable[[], int],
    ) -> None:
        self._results = results
        self._audits = audits
        self._recording = recording
        self._principal_of = principal_of
        self._clock_ms = clock_ms
        self._is_settled = False

    def settle(self) -> bool:
        """Find out what became of events sent before; False while that is unknown."""
        if self._is_settled:
            return True
        try:
            self._recording.settle()
            self._settle_requests()
            self._settle_digests()
        except VeenError as error:
            _log.warning("nothing is recorded for now: %s", error)
            return False
        self._is_settled = True
        return True

    def cancel_new(self) -> None:
        """Cancel queries of which nothing was sent; their submitters get an error."""
        for query in self._results.unrecorded():
            self._results.cancel(query.query_id)

    def record_requests(self) -> None:
        waiting = self._results.unrecorded()
        if not waiting:
            return
        try:
            self._recording.verify_reachable()
        except VeenError as error:
            _log.warning("queries are refused: %s", error)
            self.cancel_new()
            return
        after = self._results.last_seq("request_event")
        self._record_requests([
            query for query in waiting if self._results.begin_recording(query.query_id, after)
        ])  # fmt: skip

    def record_digests(self) -> list[Query]:
        """Record the digests of finished results; return the queries that this completed."""
        waiting = self._results.materialised_only()
        if not waiting:
            return []
        events = [
            self._recording.observed(
                RESULT,
                self._recording.subject_id,
                json.loads(query.digest or b""),
                self._clock_ms(),
            )
            for query in waiting
        ]
        ended = []
        with self._unsettling():
            for query, place in zip(waiting, self._recording.record(events), strict=True):
                self._results.completed(query.query_id, place, self._clock_ms())
                ended.append(query)
        return ended

    def record_audits(self) -> None:
        self._audits.settle_counts(self._clock_ms())
        while batch := self._audits.next_batch(_AUDIT_BATCH):
            self._recording.store_audits(batch)
            self._audits.end_batch(batch)
        with self._unsettling():
            self._recording.settle()

    def _record_requests(self, waiting: Sequence[Query]) -> None:
        if not waiting:
            return
        events = [
            self._recording.observed(
                SUBMITTED, self._subject(query), json.loads(query.descriptor), query.submitted
            )
            for query in waiting
        ]
        with self._unsettling():
            for query, place in zip(waiting, self._recording.record(events), strict=True):
                self._results.recorded(query.query_id, place)

    def _settle_requests(self) -> None:
        """The outbox is empty, so what is not in the log now never will be."""
        waiting = self._results.half_recorded()
        if not waiting:
            return
        after = min(query.requests_from or 0 for query in waiting)
        refs = self._recording.recorded_since(SUBMITTED, after, _name("query_id"))
        for query in waiting:
            if query.query_id in refs:
                self._results.recorded(query.query_id, refs[query.query_id])
            else:
                self._results.drop(query.query_id)

    def _settle_digests(self) -> None:
        waiting = self._results.materialised_only()
        if not waiting:
            return
        after = min(query.results_from or 0 for query in waiting)
        refs = self._recording.recorded_since(RESULT, after, _name("result_id"))
        for query in waiting:
            if query.result_id in refs:
                self._results.completed(query.query_id, refs[query.result_id], self._clock_ms())

    def _subject(self, query: Query) -> str:
        principal = self._principal_of(query.principal)
        return principal.subject_id if principal else query.principal

    def _unsettling(self) -> _Unsettling:
        return _Unsettling(self._unsettle)

    def _unsettle(self, error: VeenError) -> None:
        self._is_settled = False
        _log.warning("the hub did not record: %s", error)


class _Unsettling:
    """A context in which a failure leaves it unknown what was recorded, to be settled later."""

    def __init__(self, failed: Callable[[VeenError], None]) -> None:
        self._failed = failed

    def __enter__(self) -> None:
        return None

    def __exit__(self, _: object, error: BaseException | None, __: object) -> bool:
        if not isinstance(error, VeenError):
            return False
        self._failed(error)
        return True


def _name(key: str) -> Callable[[Any], str | None]:
    def name_of(payload: Any) -> str | None:
        name = payload.get(key) if isinstance(payload, dict) else None
        return name if isinstance(name, str) else None

    return name_of
