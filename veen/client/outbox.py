"""The outbox: events that are to reach a hub once and in order, through any crash.

Events lie here encrypted; what has a client_seq lies beside them as the very bytes that are sent.
What a call here changes is on disk when it returns.

The tables of the outbox, and how a flight lies in them.

What a program says when it sends, and what it is told when that has landed.
"""

from __future__ import annotations

import json
import os
import sqlite3
from collections.abc import Iterable, Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from itertools import groupby
from pathlib import Path
from threading import RLock
from typing import Any, Final, NamedTuple, TypedDict

from veen.captoken import CapToken
from veen.client.queued import Drafts, InFlight, MessageTemplate, QueuedMessage, SubmitAttempt
from veen.digest import h
from veen.errors import Malformed, Untrusted, VeenError
from veen.keystore.sealed import Randomness
from veen.label import DEFAULT_PROFILE, Profile
from veen.msg import Msg
from veen.payload import PayloadHdr
from veen.receipt import Receipt
from veen.system import durable

VERSION: Final = 2
_NOTES: Final = "CREATE TABLE notes (name TEXT PRIMARY KEY, value BLOB NOT NULL) WITHOUT ROWID;"
UPGRADES: Final = {1: _NOTES}
"""By the version it comes from: what an older outbox lacks."""

SCHEMA: Final = f"""
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
{_NOTES}
"""
COLUMNS: Final = (
    "event, label, epoch, client_id, client_seq, prev_ack, auth_ref, leaf, coids, msg, withdrawn"
)
PUT: Final = f"INSERT INTO flights ({COLUMNS}) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"  # noqa: S608
SLOT: Final = "label = ? AND client_id = ? AND client_seq = ?"


def row_of(attempt: SubmitAttempt) -> tuple[object, ...]:
    return (
        attempt.event_id, attempt.label, attempt.epoch, attempt.client_id, attempt.client_seq,
        attempt.prev_ack, attempt.auth_ref, attempt.leaf,
        attempt.coids, attempt.msg, attempt.withdrawn,
    )  # fmt: skip


def attempt_of(row: Sequence[Any]) -> SubmitAttempt:
    return SubmitAttempt(
        event_id=row[0], label=row[1], epoch=row[2], client_id=row[3], client_seq=row[4],
        prev_ack=row[5], auth_ref=row[6], leaf=row[7], coids=row[8], msg=row[9],
        withdrawn=bool(row[10]),
    )  # fmt: skip


class OutboxFull(VeenError):
    """The outbox holds as much as it may; nothing of what was emitted was kept."""


class BadOutbox(VeenError):
    """An outbox that cannot be read; nothing is sent from it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Bounds:
    """How much an outbox may hold."""

    max_events: int = 1_000_000
    max_bytes: int = 4 << 30


@dataclass(frozen=True, slots=True)
class Late:
    """An event that was withdrawn, and that the hub had taken all the same."""

    event_id: int
    receipt: Receipt


class Note(NamedTuple):
    """What a program remembers beside its events, such as how far it had read; not encrypted."""

    name: str
    value: bytes


class Outbox:
    """Any thread may add to it; one at a time drains it."""

    def __init__(
        self, path: Path, key: bytes, random: Randomness, bounds: Bounds | None = None
    ) -> None:
        self._path = path
        self._bounds = bounds or Bounds()
        self._drafts = Drafts(key, random)
        self._lock = RLock()
        self._db = self._open()
        with self._describe():
            self._count, self._bytes = self._db.execute(
                "SELECT count(*), coalesce(sum(length(sealed)), 0) FROM events"
            ).fetchone()

    def close(self) -> None:
        self._db.close()

    def add(
        self, hub_id: bytes, drafts: Sequence[QueuedMessage], note: Note | None = None
    ) -> list[int]:
        """Keep events, all of them or none; their numbers grow in the order they are given.

        The note replaces the one of its name in the same instant.
        """
        with self._changing():
            first = self._last_id() + 1
            forms = {id(draft.form): draft.form for draft in drafts}
            queues = {number: form.queue(hub_id) for number, form in forms.items()}
            rows = [
                (number, hub_id, queues[id(draft.form)], self._drafts.seal(number, draft))
                for number, draft in enumerate(drafts, first)
            ]
            self._refuse_beyond(len(rows), sum(len(row[3]) for row in rows))
            self._db.executemany("INSERT INTO events VALUES (?, ?, ?, ?)", rows)
            if note is not None:
                self._db.execute("INSERT OR REPLACE INTO notes VALUES (?, ?)", note)
        return [row[0] for row in rows]

    def note(self, name: str) -> bytes | None:
        rows = self._all("SELECT value FROM notes WHERE name = ?", name)
        return rows[0][0] if rows else None

    def notes(self, prefix: str) -> frozenset[str]:
        """The names of notes that begin with ``prefix``."""
        query = "SELECT name FROM notes WHERE substr(name, 1, ?) = ?"
        return frozenset(name for (name,) in self._all(query, len(prefix), prefix))

    def pending(self, hub_id: bytes) -> int:
        return int(self._one("SELECT count(*) FROM events WHERE hub = ?", hub_id))

    def queues(self, hub_id: bytes) -> list[QueuedMessage]:
        """The first event of each stream that has any, in the order they were emitted."""
        query = "SELECT min(id), sealed FROM events WHERE hub = ? GROUP BY lane ORDER BY 1"
        return [self._unseal(*row) for row in self._all(query, hub_id)]

    def first(self, queue: bytes) -> int:
        return int(self._one("SELECT coalesce(min(id), 0) FROM events WHERE lane = ?", queue))

    def draft(self, event_id: int) -> QueuedMessage:
        ((sealed,),) = self._all("SELECT sealed FROM events WHERE id = ?", event_id)
        return self._unseal(event_id, sealed)

    def waiting(
        self, queue: bytes, after: int, upto: int, count: int, size: int
    ) -> list[tuple[int, QueuedMessage]]:
        """The next events without a flight: so many at most, or so many bytes, but one at least."""
        query = """
            SELECT id, sealed FROM events WHERE lane = ? AND id > ? AND id <= ? AND NOT EXISTS
            (SELECT 1 FROM flights WHERE event = id AND NOT withdrawn) ORDER BY id LIMIT ?
        """
        result: list[tuple[int, QueuedMessage]] = []
        for event_id, sealed in self._all(query, queue, after, upto, count):
            size -= len(sealed)
            if size < 0 and result:
                break
            result.append((event_id, self._unseal(event_id, sealed)))
        return result

    def slots(self, queue: bytes, upto: int, count: int) -> list[InFlight]:
        """The first places that events of a lane have and wait for an answer from."""
        expected = """
            SELECT DISTINCT label, client_id, client_seq, event AS due FROM flights
            JOIN events ON id = event WHERE lane = ? AND NOT withdrawn AND id <= ?
            ORDER BY event LIMIT ?
        """
        columns = ", ".join(f"f.{name}" for name in COLUMNS.split(", "))
        query = (
            f"SELECT {columns}, due FROM flights f JOIN ({expected}) "  # noqa: S608
            "USING (label, client_id, client_seq) ORDER BY due, n"
        )
        rows = self._all(query, queue, upto, count)
        return [
            InFlight(tuple(attempt_of(row) for row in some))
            for _, some in groupby(rows, lambda r: r[-1])
        ]

    def withdrawn(self, label: bytes, client_id: bytes) -> list[SubmitAttempt]:
        query = f"SELECT {COLUMNS} FROM flights WHERE label = ? AND client_id = ? AND withdrawn"  # noqa: S608
        return [attempt_of(row) for row in self._all(f"{query} ORDER BY n", label, client_id)]

    def last_seq(self, label: bytes, client_id: bytes) -> int:
        """The last client_seq that an event waits in; 0 where none does."""
        query = """
            SELECT coalesce(max(client_seq), 0) FROM flights
            WHERE label = ? AND client_id = ? AND NOT withdrawn
        """
        return int(self._one(query, label, client_id))

    def journal(self, attempts: Iterable[SubmitAttempt]) -> None:
        """Keep what is about to leave."""
        with self._changing():
            self._db.executemany(PUT, map(row_of, attempts))

    def settle(self, slots: Sequence[InFlight]) -> None:
        """Forget places that are filled, and the events that fill them."""
        places = [(slot.label, slot.client_id, slot.client_seq) for slot in slots]
        with self._changing():
            self._db.executemany(f"DELETE FROM flights WHERE {SLOT}", places)  # noqa: S608
            self._forget([slot.event_id for slot in slots])

    def settle_late(self, slot: InFlight, late: Late, queue: bytes) -> None:
        """Forget a place that a withdrawn event fills; the events of the lane wait for others."""
        place = slot.label, slot.client_id, slot.client_seq
        with self._changing():
            self._db.execute(f"DELETE FROM flights WHERE {SLOT}", place)  # noqa: S608
            self._ground_lane(queue)
            row = (late.event_id, late.receipt.encode())
            self._db.execute("INSERT OR REPLACE INTO late VALUES (?, ?)", row)

    def ground_lane(self, queue: bytes) -> None:
        """Take all events of a lane out of places that will never take them."""
        with self._changing():
            self._ground_lane(queue)

    def ground(self, event_id: int) -> None:
        """Take an event out of a place that another message has; it waits for another one."""
        with self._changing():
            self._db.execute("DELETE FROM flights WHERE event = ? AND NOT withdrawn", (event_id,))

    def withdraw(self, events: Sequence[int]) -> bool:
        """Forget events, but not what may be on its way; not while later ones of a lane fly."""
        rows = [(event,) for event in events]
        query = f"""
            SELECT count(*) FROM flights JOIN events later ON later.id = event
            WHERE NOT withdrawn AND later.id NOT IN ({", ".join("?" * len(events))})
            AND EXISTS (SELECT 1 FROM events WHERE id = ? AND lane = later.lane AND id < later.id)
        """  # noqa: S608
        with self._changing():
            if self._one(query, *events, min(events)):
                return False
            self._db.executemany("UPDATE flights SET withdrawn = 1 WHERE event = ?", rows)
            self._forget(events)
        return True

    def late(self) -> list[Late]:
        rows = self._all("SELECT event, receipt FROM late ORDER BY event")
        return [Late(event, Receipt.decode(receipt)) for event, receipt in rows]

    def _open(self) -> sqlite3.Connection:
        # SQLite gives its other files the mode of this one.
        os.close(os.open(self._path, os.O_CREAT | os.O_RDWR | os.O_NOFOLLOW, durable.FILE_MODE))
        with self._describe():
            db = sqlite3.connect(self._path, isolation_level=None, check_same_thread=False)
            db.execute("PRAGMA journal_mode = WAL")
            db.execute("PRAGMA synchronous = FULL")
            (version,) = db.execute("PRAGMA user_version").fetchone()
            if version == 0:
                db.executescript(f"BEGIN; {SCHEMA} PRAGMA user_version = {VERSION}; COMMIT")
                durable.sync_directory(self._path.parent)
            elif version in UPGRADES:
                db.executescript(
                    f"BEGIN; {UPGRADES[version]} PRAGMA user_version = {VERSION}; COMMIT"
                )
        if version not in (0, VERSION, *UPGRADES):
            raise BadOutbox(f"{self._path} is of version {version}, this is {VERSION}")
        return db

    @contextmanager
    def _describe(self) -> Iterator[None]:
        try:
            yield
        except sqlite3.Error as error:
            if error.sqlite_errorcode == sqlite3.SQLITE_FULL:
                raise durable.NoSpace(f"{self._path}: {error}") from error
            raise BadOutbox(f"{self._path}: {error}; nothing is sent until it is whole") from error

    @contextmanager
    def _changing(self) -> Iterator[None]:
        """All that is done within, or nothing; the counts are those of what is there."""
        with self._lock, self._describe():
            before = self._count, self._bytes
            self._db.execute("BEGIN IMMEDIATE")
            try:
                yield
                self._db.execute("COMMIT")
            except BaseException:
                self._count, self._bytes = before
                if self._db.in_transaction:
                    self._db.execute("ROLLBACK")
                raise

    def _all(self, query: str, *values: object) -> list[Any]:
        with self._lock, self._describe():
            return self._db.execute(query, values).fetchall()

    def _one(self, query: str, *values: object) -> Any:
        ((value,),) = self._all(query, *values)
        return value

    def _last_id(self) -> int:
        """Also of events that are gone: a number is given once."""
        return int(self._one("SELECT coalesce(max(seq), 0) FROM sqlite_sequence"))

    def _forget(self, events: Sequence[int]) -> None:
        those = "FROM events WHERE id IN (SELECT value FROM json_each(?))"
        query = f"SELECT count(*), coalesce(sum(length(sealed)), 0) {those}"
        ((count, size),) = self._all(query, json.dumps(events))
        self._count, self._bytes = self._count - count, self._bytes - size
        self._db.execute(f"DELETE {those}", (json.dumps(events),))

    def _ground_lane(self, queue: bytes) -> None:
        query = """
            DELETE FROM flights
            WHERE NOT withdrawn AND event IN (SELECT id FROM events WHERE lane = ?)
        """
        self._db.execute(query, (queue,))

    def _refuse_beyond(self, count: int, size: int) -> None:
        self._count, self._bytes = self._count + count, self._bytes + size
        if self._count > self._bounds.max_events or self._bytes > self._bounds.max_bytes:
            raise OutboxFull(
                f"the outbox may hold {self._bounds.max_events} events and "
                f"{self._bounds.max_bytes} bytes; send what it holds, or give it more room"
            )

    def _unseal(self, event_id: int, sealed: bytes) -> QueuedMessage:
        try:
            return self._drafts.open(event_id, sealed)
        except (Untrusted, Malformed) as error:
            raise BadOutbox(f"{self._path}: event {event_id} is damaged: {error}") from error


def events_in(path: Path) -> int:
    """How many events the outbox of a client holds, for any hub; they stay sealed."""
    if not path.exists():
        return 0
    try:
        with closing(sqlite3.connect(f"{path.absolute().as_uri()}?mode=ro", uri=True)) as db:
            ((count,),) = db.execute("SELECT count(*) FROM events").fetchall()
    except sqlite3.Error as error:
        raise BadOutbox(f"{path}: {error}") from error
    return int(count)


BYTES_SCHEMA: Final = h(b"veen.bytes.v1")
"""The schema of a body that says nothing of itself."""


class Options(TypedDict, total=False):
    """Beside stream and body. Without ``recipient`` an event is sealed to ourselves."""

    schema: bytes
    recipient: bytes | None
    attachments: Sequence[bytes]
    parent_id: bytes | None
    expires_at: int | None
    capability: CapToken | None
    profile: Profile


@dataclass(frozen=True, slots=True)
class SentEvent:
    """An event that is in the log; ``size`` is how much of the label is proved to us by now."""

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
    """How many events landed, and which had landed though they were withdrawn before."""

    landed: int
    late: tuple[Late, ...]


def form_of(
    stream: str, options: Options, recipient: bytes, auth_ref: bytes | None
) -> MessageTemplate:
    return MessageTemplate(
        stream=stream,
        profile=options.get("profile", DEFAULT_PROFILE),
        recipient=recipient,
        header=PayloadHdr(
            schema=options.get("schema", BYTES_SCHEMA),
            parent_id=options.get("parent_id"),
            expires_at=options.get("expires_at"),
        ),
        auth_ref=auth_ref,
    )


def batches(bodies: Iterable[bytes], count: int, size: int) -> Iterator[list[bytes]]:
    """Bodies in lists of so many at most, or so many bytes, but one at least."""
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
