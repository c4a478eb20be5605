"""The outbox: events to be delivered to a hub exactly once and in order, across crashes.

Events are stored encrypted in SQLite. A message with a client_seq is stored as the bytes that are
sent, so retries are idempotent. Every change is durable when the call returns.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, closing, contextmanager
from dataclasses import dataclass, field
from functools import lru_cache
from itertools import groupby
from operator import attrgetter
from pathlib import Path
from threading import RLock
from typing import Any, Final, NamedTuple, TypedDict

from veen.captoken import CapToken
from veen.client.queued import InFlight, MessageTemplate, QueueCipher, QueuedMessage, SubmitAttempt
from veen.digest import h
from veen.errors import Malformed, Untrusted, VeenError
from veen.keystore.sealed import Randomness
from veen.label import Profile
from veen.msg import Msg
from veen.payload import PayloadHdr
from veen.receipt import Receipt
from veen.system import sqlite

_FIRST: Final = """
CREATE TABLE events (
  id INTEGER PRIMARY KEY AUTOINCREMENT, hub BLOB NOT NULL, lane BLOB NOT NULL, sealed BLOB NOT NULL
);
CREATE INDEX event_lane ON events (lane, id);
CREATE TABLE flights (
  n INTEGER PRIMARY KEY, event INTEGER NOT NULL, label BLOB NOT NULL, epoch INTEGER NOT NULL,
  client_id BLOB NOT NULL, client_seq INTEGER NOT NULL, prev_ack INTEGER NOT NULL, auth_ref BLOB,
  leaf BLOB NOT NULL, coids BLOB NOT NULL, msg BLOB NOT NULL, withdrawn INTEGER NOT NULL
);
CREATE INDEX flight_slot ON flights (label, client_id, client_seq);
CREATE INDEX flight_event ON flights (event);
CREATE TABLE late (event INTEGER PRIMARY KEY, receipt BLOB NOT NULL);
"""
_NOTES: Final = "CREATE TABLE notes (name TEXT PRIMARY KEY, value BLOB NOT NULL) WITHOUT ROWID;"
_RENAMED: Final = """
DROP INDEX event_lane;
DROP INDEX flight_slot;
DROP INDEX flight_event;
ALTER TABLE events RENAME COLUMN lane TO queue;
ALTER TABLE flights RENAME TO attempts;
CREATE INDEX event_queue ON events (queue, id);
CREATE INDEX attempt_slot ON attempts (label, client_id, client_seq);
CREATE INDEX attempt_event ON attempts (event);
"""
SCHEMA: Final = sqlite.Schema(_FIRST, (_NOTES, _RENAMED))
COLUMNS: Final = (
    "event, label, epoch, client_id, client_seq, prev_ack, auth_ref, leaf, coids, msg, withdrawn"
)
PUT: Final = f"INSERT INTO attempts ({COLUMNS}) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"  # noqa: S608
SLOT: Final = "label = ? AND client_id = ? AND client_seq = ?"
BYTES_SCHEMA: Final = h(b"veen.bytes.v1")
"""The default schema: a body of plain bytes."""


row_of: Final = attrgetter(
    "event_id", "label", "epoch", "client_id", "client_seq", "prev_ack", "auth_ref", "leaf",
    "coids", "msg", "withdrawn",
)  # fmt: skip
"""The row of an attempt, in the order of COLUMNS."""


def attempt_of(row: Sequence[Any]) -> SubmitAttempt:
    return SubmitAttempt(
        event_id=row[0], label=row[1], epoch=row[2], client_id=row[3], client_seq=row[4],
        prev_ack=row[5], auth_ref=row[6], leaf=row[7], coids=row[8], msg=row[9],
        withdrawn=bool(row[10]),
    )  # fmt: skip


class OutboxFull(VeenError):
    """The outbox has reached its quota; nothing was added."""


class BadOutbox(VeenError):
    """An outbox that cannot be read; nothing is sent from it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Bounds:
    """The quota of an outbox: its maximum number of events and bytes."""

    max_events: int = 1_000_000
    max_bytes: int = 4 << 30


@dataclass(frozen=True, slots=True)
class Late:
    """An event that was withdrawn but that the hub had accepted."""

    event_id: int
    receipt: Receipt


class Note(NamedTuple):
    """State that a program stores with its events, such as its read position; not encrypted."""

    name: str
    value: bytes


class Outbox:
    """The queue on disk. Any thread may add events; one thread at a time sends them."""

    def __init__(
        self, path: Path, key: bytes, random: Randomness, bounds: Bounds | None = None
    ) -> None:
        self._path = path
        self._bounds = bounds or Bounds()
        self._drafts = QueueCipher(key, random)
        self._lock = RLock()
        self._db = self._open()
        with self._translate_errors():
            self._count, self._bytes = self._db.execute(
                "SELECT count(*), coalesce(sum(length(sealed)), 0) FROM events"
            ).fetchone()

    def close(self) -> None:
        self._db.close()

    def add(
        self, hub_id: bytes, messages: Sequence[QueuedMessage], note: Note | None = None
    ) -> list[int]:
        """Add events atomically; their ids grow in the given order.

        The note replaces that of the same name in the same transaction.
        """
        with self._transaction():
            # The id after the last ever assigned: ids are not reused.
            first = self._scalar("SELECT coalesce(max(seq), 0) + 1 FROM sqlite_sequence")
            templates = {id(message.template): message.template for message in messages}
            queues = {number: template.queue(hub_id) for number, template in templates.items()}
            rows = [
                (number, hub_id, queues[id(message.template)], self._drafts.seal(number, message))
                for number, message in enumerate(messages, first)
            ]
            self._verify_bounds(len(rows), sum(len(row[3]) for row in rows))
            self._db.executemany("INSERT INTO events VALUES (?, ?, ?, ?)", rows)
            if note is not None:
                self._db.execute("INSERT OR REPLACE INTO notes VALUES (?, ?)", note)
        return [row[0] for row in rows]

    def note(self, name: str) -> bytes | None:
        rows = self._rows("SELECT value FROM notes WHERE name = ?", name)
        return rows[0][0] if rows else None

    def notes(self, prefix: str) -> frozenset[str]:
        """The names of notes that begin with ``prefix``."""
        query = "SELECT name FROM notes WHERE substr(name, 1, ?) = ?"
        return frozenset(name for (name,) in self._rows(query, len(prefix), prefix))

    def pending(self, hub_id: bytes) -> int:
        return int(self._scalar("SELECT count(*) FROM events WHERE hub = ?", hub_id))

    def queues(self, hub_id: bytes) -> list[QueuedMessage]:
        """The first event of each stream that has any, in the order they were emitted."""
        query = "SELECT min(id), sealed FROM events WHERE hub = ? GROUP BY queue ORDER BY 1"
        return [self._unseal(*row) for row in self._rows(query, hub_id)]

    def first(self, queue: bytes) -> int:
        return int(self._scalar("SELECT coalesce(min(id), 0) FROM events WHERE queue = ?", queue))

    def message(self, event_id: int) -> QueuedMessage:
        ((sealed,),) = self._rows("SELECT sealed FROM events WHERE id = ?", event_id)
        return self._unseal(event_id, sealed)

    def waiting(
        self, queue: bytes, after: int, upto: int, count: int, size: int
    ) -> list[tuple[int, QueuedMessage]]:
        """The next events without an attempt, up to a count and a size, but at least one."""
        query = """
            SELECT id, sealed FROM events WHERE queue = ? AND id > ? AND id <= ? AND NOT EXISTS
            (SELECT 1 FROM attempts WHERE event = id AND NOT withdrawn) ORDER BY id LIMIT ?
        """
        events: list[tuple[int, QueuedMessage]] = []
        for event_id, sealed in self._rows(query, queue, after, upto, count):
            size -= len(sealed)
            if size < 0 and events:
                break
            events.append((event_id, self._unseal(event_id, sealed)))
        return events

    def slots(self, queue: bytes, upto: int, count: int) -> list[InFlight]:
        """The first sequence positions of a queue that wait for an answer."""
        pending = """
            SELECT DISTINCT label, client_id, client_seq, event AS due FROM attempts
            JOIN events ON id = event WHERE queue = ? AND NOT withdrawn AND id <= ?
            ORDER BY event LIMIT ?
        """
        columns = ", ".join(f"f.{name}" for name in COLUMNS.split(", "))
        query = (
            f"SELECT {columns}, due FROM attempts f JOIN ({pending}) "  # noqa: S608
            "USING (label, client_id, client_seq) ORDER BY due, n"
        )
        rows = self._rows(query, queue, upto, count)
        return [
            InFlight(tuple(attempt_of(row) for row in group))
            for _, group in groupby(rows, lambda row: row[-1])
        ]

    def withdrawn(self, label: bytes, client_id: bytes) -> list[SubmitAttempt]:
        query = f"SELECT {COLUMNS} FROM attempts WHERE label = ? AND client_id = ? AND withdrawn"  # noqa: S608
        return [attempt_of(row) for row in self._rows(f"{query} ORDER BY n", label, client_id)]

    def last_seq(self, label: bytes, client_id: bytes) -> int:
        """The last client_seq that an event is assigned to, or 0."""
        query = """
            SELECT coalesce(max(client_seq), 0) FROM attempts
            WHERE label = ? AND client_id = ? AND NOT withdrawn
        """
        return int(self._scalar(query, label, client_id))

    def journal(self, attempts: Iterable[SubmitAttempt]) -> None:
        """Write attempts to the journal before they are sent (write-ahead)."""
        with self._transaction():
            self._db.executemany(PUT, map(row_of, attempts))

    def settle(self, slots: Sequence[InFlight]) -> None:
        """Delete acknowledged positions and their events."""
        places = [
            (slot.current.label, slot.current.client_id, slot.current.client_seq) for slot in slots
        ]
        with self._transaction():
            self._db.executemany(f"DELETE FROM attempts WHERE {SLOT}", places)  # noqa: S608
            self._delete([slot.current.event_id for slot in slots])

    def settle_late(self, slot: InFlight, late: Late, queue: bytes) -> None:
        """Delete a position that a withdrawn event has; the queue's events get new positions."""
        place = slot.current.label, slot.current.client_id, slot.current.client_seq
        with self._transaction():
            self._db.execute(f"DELETE FROM attempts WHERE {SLOT}", place)  # noqa: S608
            self._release_queue(queue)
            row = (late.event_id, late.receipt.encode())
            self._db.execute("INSERT OR REPLACE INTO late VALUES (?, ?)", row)

    def release_queue(self, queue: bytes) -> None:
        """Release all events of a queue from positions that will never accept them."""
        with self._transaction():
            self._release_queue(queue)

    def release(self, event_id: int) -> None:
        """Release an event from a position that another message has."""
        with self._transaction():
            self._db.execute("DELETE FROM attempts WHERE event = ? AND NOT withdrawn", (event_id,))

    def withdraw(self, events: Sequence[int]) -> bool:
        """Delete events, but not their attempts; refused while later events have attempts."""
        rows = [(event,) for event in events]
        query = f"""
            SELECT count(*) FROM attempts JOIN events later ON later.id = event
            WHERE NOT withdrawn AND later.id NOT IN ({", ".join("?" * len(events))})
            AND EXISTS (SELECT 1 FROM events WHERE id = ? AND queue = later.queue AND id < later.id)
        """  # noqa: S608
        with self._transaction():
            if self._scalar(query, *events, min(events)):
                return False
            self._db.executemany("UPDATE attempts SET withdrawn = 1 WHERE event = ?", rows)
            self._delete(events)
        return True

    def late(self) -> list[Late]:
        rows = self._rows("SELECT event, receipt FROM late ORDER BY event")
        return [Late(event, Receipt.decode(receipt)) for event, receipt in rows]

    def _open(self) -> sqlite.Connection:
        sqlite.create_private(self._path)
        with self._translate_errors():
            db = sqlite.connect(self._path, synchronous="FULL", any_thread=True)
            sqlite.migrate(db, self._path, SCHEMA)
        return db

    def _translate_errors(self) -> AbstractContextManager[None]:
        return sqlite.errors_translated(
            self._path, BadOutbox, "nothing is sent until it is restored"
        )

    @contextmanager
    def _transaction(self) -> Iterator[None]:
        """Run an atomic transaction; the counts are restored if it fails."""
        with self._lock, self._translate_errors():
            before = self._count, self._bytes
            try:
                with sqlite.transaction(self._db):
                    yield
            except BaseException:
                self._count, self._bytes = before
                raise

    def _rows(self, query: str, *values: object) -> list[Any]:
        with self._lock, self._translate_errors():
            return self._db.execute(query, values).fetchall()

    def _scalar(self, query: str, *values: object) -> Any:
        ((value,),) = self._rows(query, *values)
        return value

    def _delete(self, events: Sequence[int]) -> None:
        matching = "FROM events WHERE id IN (SELECT value FROM json_each(?))"
        query = f"SELECT count(*), coalesce(sum(length(sealed)), 0) {matching}"
        ((count, size),) = self._rows(query, json.dumps(events))
        self._count, self._bytes = self._count - count, self._bytes - size
        self._db.execute(f"DELETE {matching}", (json.dumps(events),))
        self._drafts.forget(events)

    def _release_queue(self, queue: bytes) -> None:
        query = """
            DELETE FROM attempts
            WHERE NOT withdrawn AND event IN (SELECT id FROM events WHERE queue = ?)
        """
        self._db.execute(query, (queue,))

    def _verify_bounds(self, count: int, size: int) -> None:
        self._count, self._bytes = self._count + count, self._bytes + size
        if self._count > self._bounds.max_events or self._bytes > self._bounds.max_bytes:
            raise OutboxFull(
                f"the outbox may hold {self._bounds.max_events} events and "
                f"{self._bounds.max_bytes} bytes; send what it holds with veen outbox flush, or "
                "raise its limits"
            )

    def _unseal(self, event_id: int, sealed: bytes) -> QueuedMessage:
        try:
            return self._drafts.open(event_id, sealed)
        except (Untrusted, Malformed) as error:
            raise BadOutbox(f"{self._path}: event {event_id} is damaged: {error}") from error


def events_in(path: Path) -> int:
    """The number of events in the outbox of a client, for all hubs; nothing is decrypted."""
    if not path.exists():
        return 0
    with (
        sqlite.errors_translated(path, BadOutbox, "nothing is sent until it is restored"),
        closing(sqlite.connect_read_only(path)) as db,
    ):
        ((count,),) = db.execute("SELECT count(*) FROM events").fetchall()
    return int(count)


class Options(TypedDict, total=False):
    """Options of an event. Without ``recipient`` it is sealed to the sender."""

    schema: bytes
    recipient: bytes | None
    attachments: Sequence[bytes]
    parent_id: bytes | None
    expires_at: int | None
    capability: CapToken | None
    profile: Profile


@dataclass(frozen=True, slots=True)
class SentEvent:
    """An acknowledged event; ``size`` is the verified size of its label."""

    event_id: int
    msg_bytes: bytes = field(repr=False)
    receipt: Receipt
    attachments: tuple[bytes, ...]
    size: int

    @property
    def msg(self) -> Msg:
        return Msg.decode(self.msg_bytes)


@dataclass(frozen=True, slots=True)
class Flushed:
    """The number of acknowledged events, and the withdrawn events that are in the log."""

    acknowledged: int
    late: tuple[Late, ...]


@lru_cache(maxsize=1_024)
def message_template(
    stream: str,
    *,
    profile: Profile,
    recipient: bytes,
    schema: bytes,
    parent_id: bytes | None,
    expires_at: int | None,
    auth_ref: bytes | None,
) -> MessageTemplate:
    """The template of messages with these options; those in use are encoded once."""
    header = PayloadHdr(schema=schema, parent_id=parent_id, expires_at=expires_at)
    return MessageTemplate(
        stream=stream, profile=profile, recipient=recipient, header=header, auth_ref=auth_ref
    )


def batches(bodies: Iterable[bytes], count: int, size: int) -> Iterator[list[bytes]]:
    """Bodies in batches of at most ``count`` and ``size`` bytes, but at least one body."""
    batch: list[bytes] = []
    left = size
    for body in bodies:
        if batch and (len(batch) == count or len(body) > left):
            yield batch
            batch, left = [], size
        batch.append(body)
        left -= len(body)
    if batch:
        yield batch
