"""The outbox: events that are to reach a hub once and in order, through any crash.

Events lie here encrypted; what has a client_seq lies beside them as the very bytes that are sent.
What a call here changes is on disk when it returns.
"""

from __future__ import annotations

import json
import os
import sqlite3
from collections.abc import Iterable, Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from threading import RLock
from typing import Any, NamedTuple

from veen import durable
from veen.client.draft import Draft, Drafts
from veen.client.flight import Flight, Slot
from veen.client.outbox_tables import (
    COLUMNS,
    PUT,
    SCHEMA,
    SLOT,
    UPGRADES,
    VERSION,
    flight_of,
    row_of,
)
from veen.errors import Malformed, Untrusted, VeenError
from veen.keystore.sealed import Randomness
from veen.receipt import Receipt


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
        with self._told():
            self._count, self._bytes = self._db.execute(
                "SELECT count(*), coalesce(sum(length(sealed)), 0) FROM events"
            ).fetchone()

    def close(self) -> None:
        self._db.close()

    def add(self, hub_id: bytes, drafts: Sequence[Draft], note: Note | None = None) -> list[int]:
        """Keep events, all of them or none; their numbers grow in the order they are given.

        The note replaces the one of its name in the same instant.
        """
        with self._changing():
            first = self._last_id() + 1
            forms = {id(one.form): one.form for one in drafts}
            lanes = {number: form.lane(hub_id) for number, form in forms.items()}
            rows = [
                (number, hub_id, lanes[id(draft.form)], self._drafts.seal(number, draft))
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

    def lanes(self, hub_id: bytes) -> list[Draft]:
        """The first event of each stream that has any, in the order they were emitted."""
        query = "SELECT min(id), sealed FROM events WHERE hub = ? GROUP BY lane ORDER BY 1"
        return [self._unseal(*row) for row in self._all(query, hub_id)]

    def first(self, lane: bytes) -> int:
        return int(self._one("SELECT coalesce(min(id), 0) FROM events WHERE lane = ?", lane))

    def draft(self, event_id: int) -> Draft:
        ((sealed,),) = self._all("SELECT sealed FROM events WHERE id = ?", event_id)
        return self._unseal(event_id, sealed)

    def waiting(
        self, lane: bytes, after: int, upto: int, count: int, size: int
    ) -> list[tuple[int, Draft]]:
        """The next events without a flight: so many at most, or so many bytes, but one at least."""
        query = """
            SELECT id, sealed FROM events WHERE lane = ? AND id > ? AND id <= ? AND NOT EXISTS
            (SELECT 1 FROM flights WHERE event = id AND NOT withdrawn) ORDER BY id LIMIT ?
        """
        found: list[tuple[int, Draft]] = []
        for event_id, sealed in self._all(query, lane, after, upto, count):
            size -= len(sealed)
            if size < 0 and found:
                break
            found.append((event_id, self._unseal(event_id, sealed)))
        return found

    def slots(self, lane: bytes, upto: int, count: int) -> list[Slot]:
        """The first places that events of a lane have and wait for an answer from."""
        wanted = """
            SELECT DISTINCT label, client_id, client_seq, event AS due FROM flights
            JOIN events ON id = event WHERE lane = ? AND NOT withdrawn AND id <= ?
            ORDER BY event LIMIT ?
        """
        columns = ", ".join(f"f.{name}" for name in COLUMNS.split(", "))
        query = (
            f"SELECT {columns}, due FROM flights f JOIN ({wanted}) "  # noqa: S608
            "USING (label, client_id, client_seq) ORDER BY due, n"
        )
        rows = self._all(query, lane, upto, count)
        return [
            Slot(tuple(flight_of(row) for row in some))
            for _, some in groupby(rows, lambda r: r[-1])
        ]

    def withdrawn(self, label: bytes, client_id: bytes) -> list[Flight]:
        query = f"SELECT {COLUMNS} FROM flights WHERE label = ? AND client_id = ? AND withdrawn"  # noqa: S608
        return [flight_of(row) for row in self._all(f"{query} ORDER BY n", label, client_id)]

    def last_seq(self, label: bytes, client_id: bytes) -> int:
        """The last client_seq that an event waits in; 0 where none does."""
        query = """
            SELECT coalesce(max(client_seq), 0) FROM flights
            WHERE label = ? AND client_id = ? AND NOT withdrawn
        """
        return int(self._one(query, label, client_id))

    def journal(self, flights: Iterable[Flight]) -> None:
        """Keep what is about to leave."""
        with self._changing():
            self._db.executemany(PUT, map(row_of, flights))

    def settle(self, slots: Sequence[Slot]) -> None:
        """Forget places that are filled, and the events that fill them."""
        places = [(one.label, one.client_id, one.client_seq) for one in slots]
        with self._changing():
            self._db.executemany(f"DELETE FROM flights WHERE {SLOT}", places)  # noqa: S608
            self._forget([one.event_id for one in slots])

    def settle_late(self, slot: Slot, late: Late, lane: bytes) -> None:
        """Forget a place that a withdrawn event fills; the events of the lane wait for others."""
        place = slot.label, slot.client_id, slot.client_seq
        with self._changing():
            self._db.execute(f"DELETE FROM flights WHERE {SLOT}", place)  # noqa: S608
            self._ground_lane(lane)
            row = (late.event_id, late.receipt.encode())
            self._db.execute("INSERT OR REPLACE INTO late VALUES (?, ?)", row)

    def ground_lane(self, lane: bytes) -> None:
        """Take all events of a lane out of places that will never take them."""
        with self._changing():
            self._ground_lane(lane)

    def ground(self, event_id: int) -> None:
        """Take an event out of a place that another message has; it waits for another one."""
        with self._changing():
            self._db.execute("DELETE FROM flights WHERE event = ? AND NOT withdrawn", (event_id,))

    def withdraw(self, events: Sequence[int]) -> bool:
        """Forget events, but not what may be on its way; not while later ones of a lane fly."""
        rows = [(one,) for one in events]
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
        with self._told():
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
    def _told(self) -> Iterator[None]:
        try:
            yield
        except sqlite3.Error as error:
            if error.sqlite_errorcode == sqlite3.SQLITE_FULL:
                raise durable.NoSpace(f"{self._path}: {error}") from error
            raise BadOutbox(f"{self._path}: {error}; nothing is sent until it is whole") from error

    @contextmanager
    def _changing(self) -> Iterator[None]:
        """All that is done within, or nothing; the counts are those of what is there."""
        with self._lock, self._told():
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
        with self._lock, self._told():
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

    def _ground_lane(self, lane: bytes) -> None:
        query = """
            DELETE FROM flights
            WHERE NOT withdrawn AND event IN (SELECT id FROM events WHERE lane = ?)
        """
        self._db.execute(query, (lane,))

    def _refuse_beyond(self, count: int, size: int) -> None:
        self._count, self._bytes = self._count + count, self._bytes + size
        if self._count > self._bounds.max_events or self._bytes > self._bounds.max_bytes:
            raise OutboxFull(
                f"the outbox may hold {self._bounds.max_events} events and "
                f"{self._bounds.max_bytes} bytes; send what it holds, or give it more room"
            )

    def _unseal(self, event_id: int, sealed: bytes) -> Draft:
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
