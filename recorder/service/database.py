"""The service's SQLite database: queries and their states, pending audits, used signatures.

The HTTP workers and the runner share it (Query API 8.1). A change is durable when the call returns.
That terminal states are final is enforced by the database itself, whichever process writes.
"""

from __future__ import annotations

import json
import sqlite3
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import Any, Final

from recorder.service.errors import ErrorCode, Refusal
from veen.errors import VeenError
from veen.system import durable, sqlite

_BUSY_MS: Final = 10_000
_EXPIRED: Final = """
CREATE TABLE expired (result_id TEXT PRIMARY KEY, time INTEGER NOT NULL) WITHOUT ROWID;
"""
_COUNTED: Final = """
CREATE TABLE counted (
    minute INTEGER NOT NULL, source TEXT NOT NULL, status INTEGER NOT NULL, outcome TEXT NOT NULL,
    count INTEGER NOT NULL, route TEXT NOT NULL, PRIMARY KEY (minute, source, status)
) WITHOUT ROWID;
INSERT INTO counted SELECT minute, source, 401, 'unauthorized', count, route FROM refusals;
DROP TABLE refusals;
"""
_BATCHES: Final = """
CREATE TABLE incarnation (id TEXT NOT NULL);
INSERT INTO incarnation VALUES (lower(hex(randomblob(16))));
ALTER TABLE audits ADD COLUMN batch BLOB;
"""
_KEYED: Final = """
CREATE INDEX request_places ON queries (request_event ->> 'seq') WHERE request_event IS NOT NULL;
CREATE INDEX result_places ON queries (result_event ->> 'seq') WHERE result_event IS NOT NULL;
CREATE INDEX begun_audits ON audits (batch) WHERE batch IS NOT NULL;
CREATE TABLE state_counts (state TEXT PRIMARY KEY, count INTEGER NOT NULL) WITHOUT ROWID;
INSERT INTO state_counts SELECT state, count(*) FROM queries GROUP BY state;
CREATE TRIGGER count_added AFTER INSERT ON queries BEGIN
    INSERT INTO state_counts VALUES (NEW.state, 1) ON CONFLICT DO UPDATE SET count = count + 1; END;
CREATE TRIGGER count_deleted AFTER DELETE ON queries BEGIN
    UPDATE state_counts SET count = count - 1 WHERE state = OLD.state; END;
CREATE TRIGGER count_moved AFTER UPDATE OF state ON queries WHEN OLD.state <> NEW.state BEGIN
    UPDATE state_counts SET count = count - 1 WHERE state = OLD.state;
    INSERT INTO state_counts VALUES (NEW.state, 1) ON CONFLICT DO UPDATE SET count = count + 1; END;
CREATE TABLE unexpired (finished INTEGER NOT NULL, result_id TEXT NOT NULL,
    PRIMARY KEY (finished, result_id)) WITHOUT ROWID;
INSERT INTO unexpired SELECT finished, result_id FROM queries
    WHERE state IN ('completed', 'failed') AND finished IS NOT NULL
    AND result_id NOT IN (SELECT result_id FROM expired);
CREATE TRIGGER to_expire AFTER UPDATE OF state ON queries
    WHEN NEW.state IN ('completed', 'failed') AND NEW.finished IS NOT NULL
    BEGIN INSERT OR IGNORE INTO unexpired VALUES (NEW.finished, NEW.result_id); END;
CREATE TABLE unremoved (result_id TEXT PRIMARY KEY) WITHOUT ROWID;
INSERT INTO unremoved SELECT result_id FROM expired;
"""
"""Nothing that is asked regularly scans the queries ever made: the last positions, the number of
queries by state, results that may expire, and expired results whose rows are still on disk."""
_FIRST: Final = """
CREATE TABLE queries (
    query_id TEXT PRIMARY KEY, result_id TEXT NOT NULL UNIQUE, principal TEXT NOT NULL,
    descriptor BLOB NOT NULL, submitted INTEGER NOT NULL, state TEXT NOT NULL DEFAULT 'pending',
    engine TEXT, owner TEXT, attempts INTEGER NOT NULL DEFAULT 0,
    requests_from INTEGER, request_event TEXT, digest BLOB, results_from INTEGER,
    result_event TEXT, error_code TEXT, message TEXT, started INTEGER, finished INTEGER
) WITHOUT ROWID;
CREATE INDEX open_queries ON queries (state, submitted) WHERE state IN ('pending', 'running');
CREATE TRIGGER ended_stays BEFORE UPDATE ON queries WHEN OLD.state IN ('completed', 'failed')
    BEGIN SELECT RAISE(ABORT, 'a query that has ended does not change'); END;
CREATE TRIGGER begun_stays BEFORE DELETE ON queries
    WHEN OLD.state <> 'pending' OR OLD.request_event IS NOT NULL
    BEGIN SELECT RAISE(ABORT, 'a query that was recorded is not deleted'); END;
CREATE TRIGGER one_way BEFORE UPDATE OF state ON queries
    WHEN OLD.state || ' ' || NEW.state NOT IN ('pending pending', 'pending running',
        'pending failed', 'running running', 'running completed', 'running failed')
    BEGIN SELECT RAISE(ABORT, 'a query goes from pending to running to its end'); END;
CREATE TRIGGER completed_is_recorded BEFORE UPDATE OF state ON queries
    WHEN NEW.state = 'completed' AND (NEW.digest IS NULL OR NEW.result_event IS NULL)
    BEGIN SELECT RAISE(ABORT, 'a result without a recorded digest is none'); END;
CREATE TABLE audits (id INTEGER PRIMARY KEY AUTOINCREMENT, entry BLOB NOT NULL);
CREATE TABLE refusals (
    minute INTEGER NOT NULL, source TEXT NOT NULL, count INTEGER NOT NULL, route TEXT NOT NULL,
    PRIMARY KEY (minute, source)
) WITHOUT ROWID;
CREATE TABLE signatures (covered BLOB PRIMARY KEY, until INTEGER NOT NULL) WITHOUT ROWID;
CREATE INDEX old_signatures ON signatures (until);
"""
_SCHEMA: Final = sqlite.Schema(_FIRST, (_EXPIRED, _COUNTED, _BATCHES, _KEYED))
_OPEN: Final = "state IN ('pending', 'running')"
"""The condition of the index ``open_queries``, without which SQLite does not use it."""
COLUMNS: Final = (
    "query_id, result_id, principal, descriptor, submitted, state, engine, owner, attempts, "
    "requests_from, request_event, digest, results_from, result_event, error_code, message"
)


class BadDatabase(VeenError):
    """The service's database cannot be read or written."""


class Database:
    """A database shared by several processes and threads; each thread has its own connection."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._local = threading.local()
        self._create()

    @contextmanager
    def changing(self) -> Iterator[sqlite3.Connection]:
        """Run a transaction that is durable on return."""
        with self._translate_errors():
            db = self._connection()
            with sqlite.transaction(db):
                yield db

    def rows(self, query: str, *values: object) -> list[Any]:
        with self._translate_errors():
            return self._connection().execute(query, values).fetchall()

    def _translate_errors(self) -> AbstractContextManager[None]:
        remedy = "check the disk and its free space"
        violated = (sqlite3.IntegrityError,)
        return sqlite.errors_translated(self._path, BadDatabase, remedy, passing=violated)

    def _create(self) -> None:
        durable.make_directory(self._path.parent)
        sqlite.create_private(self._path)
        with self._translate_errors():
            sqlite.migrate(self._connection(), self._path, _SCHEMA)

    def _connection(self) -> sqlite3.Connection:
        connection: sqlite3.Connection | None = getattr(self._local, "db", None)
        if connection is None:
            connection = sqlite.connect(self._path, synchronous="FULL", busy_ms=_BUSY_MS)
            self._local.db = connection
        return connection


class QueryState(Enum):
    PENDING = "pending"
    RUNNING = "running"
    COMPLETED = "completed"
    FAILED = "failed"


@dataclass(frozen=True, slots=True)
class RecordRef:
    """The position in the log of an event of the service."""

    stream: str
    seq: int
    hub_id: str
    receipt_id: str

    def document(self) -> dict[str, Any]:
        return {
            "stream": self.stream,
            "seq": self.seq,
            "hub_id": self.hub_id,
            "receipt_id": self.receipt_id,
        }

    def encode(self) -> str:
        return json.dumps(self.document(), sort_keys=True)


@dataclass(frozen=True, slots=True)
class Query:
    """A submitted query. ``descriptor`` and ``digest`` are canonical JSON; ``submitted`` is in
    milliseconds.

    ``requests_from`` and ``results_from`` are the ends of the two streams before the query or its
    digest was sent: its events can only be after them.
    """

    query_id: str
    result_id: str
    principal: str
    descriptor: bytes
    submitted: int
    state: QueryState
    engine: str | None
    owner: str | None
    attempts: int
    requests_from: int | None
    request_event: RecordRef | None
    digest: bytes | None
    results_from: int | None
    result_event: RecordRef | None
    error_code: str | None
    message: str | None

    @property
    def has_ended(self) -> bool:
        return self.state in (QueryState.COMPLETED, QueryState.FAILED)


def query_of(row: tuple[Any, ...]) -> Query:
    """Decode a row with these columns."""
    values = list(row)
    values[5] = QueryState(values[5])
    for at in (10, 13):
        values[at] = RecordRef(**json.loads(values[at])) if values[at] else None
    return Query(*values)


class Results:
    """The states of all queries."""

    def __init__(self, database: Database) -> None:
        self._db = database

    def add(
        self, *, query_id: str, result_id: str, principal: str, descriptor: bytes, now_ms: int
    ) -> None:
        """Store a query to be recorded and run; its query_id must be new."""
        row = (query_id, result_id, principal, descriptor, now_ms)
        try:
            with self._db.changing() as db:
                db.execute(
                    "INSERT INTO queries (query_id, result_id, principal, descriptor, submitted) "
                    "VALUES (?, ?, ?, ?, ?)",
                    row,
                )
        except sqlite3.IntegrityError as error:
            raise Refusal(
                ErrorCode.DUPLICATE_QUERY_ID,
                f"query_id {query_id} is taken; submit without one, or choose another",
            ) from error

    def by_result(self, result_id: str) -> Query | None:
        return self._first("result_id = ?", result_id)

    def by_query(self, query_id: str) -> Query | None:
        return self._first("query_id = ?", query_id)

    def unrecorded(self) -> list[Query]:
        """Queries whose descriptor has no receipt yet, in order of submission."""
        return self._all(
            f"{_OPEN} AND state = 'pending' AND request_event IS NULL ORDER BY submitted, query_id"
        )

    def half_recorded(self) -> list[Query]:
        """Queries whose descriptor may or may not be in the log."""
        return self._all(
            f"{_OPEN} AND state = 'pending' AND request_event IS NULL AND requests_from IS NOT NULL"
        )

    def materialised_only(self) -> list[Query]:
        """Queries whose digest may or may not be in the log."""
        return self._all(f"{_OPEN} AND state = 'running' AND digest IS NOT NULL")

    def last_seq(self, event: str) -> int:
        """The last known position of request_event or result_event in its stream."""
        query = f"SELECT max({event} ->> 'seq') FROM queries WHERE {event} IS NOT NULL"  # noqa: S608
        ((seq,),) = self._db.rows(query)
        return int(seq or 0)

    def runnable(self, owner: str) -> list[Query]:
        """Queries to run: recorded ones, and those of a runner that has ended."""
        return self._all(
            f"{_OPEN} AND request_event IS NOT NULL AND digest IS NULL "
            "AND owner IS NOT ? ORDER BY submitted, query_id",
            owner,
        )

    def counts(self) -> Mapping[str, int]:
        rows = self._db.rows("SELECT state, count FROM state_counts")
        return {state.value: 0 for state in QueryState} | dict(rows)

    def begin_recording(self, query_id: str, requests_from: int) -> bool:
        """Store the earliest position of the descriptor; False when the query was cancelled."""
        return self._changed(
            "requests_from = ? WHERE query_id = ? AND request_event IS NULL",
            requests_from, query_id,
        )  # fmt: skip

    def recorded(self, query_id: str, event: RecordRef) -> None:
        self._changed("request_event = ? WHERE query_id = ?", event.encode(), query_id)

    def cancel(self, query_id: str) -> bool:
        """Delete a query that is not being recorded yet; False when it is."""
        return self._deleted("requests_from IS NULL", query_id)

    def drop(self, query_id: str) -> None:
        """Delete a query that could not be recorded and is not in the log."""
        self._deleted("request_event IS NULL", query_id)

    def begin(self, query_id: str, *, owner: str, engine: str, now_ms: int) -> None:
        """Start an attempt; a change of engine by the same runner is no new attempt."""
        self._changed(
            "state = 'running', attempts = attempts + (owner IS NOT ?), owner = ?, engine = ?, "
            "started = ? WHERE query_id = ?",
            owner, owner, engine, now_ms, query_id,
        )  # fmt: skip

    def materialised(self, query_id: str, digest: bytes, results_from: int) -> None:
        """Store the digest of rows that are on disk; it will be recorded."""
        self._changed(
            "digest = ?, results_from = ? WHERE query_id = ? AND digest IS NULL",
            digest, results_from, query_id,
        )  # fmt: skip

    def completed(self, query_id: str, event: RecordRef, now_ms: int) -> None:
        self._changed(
            "state = 'completed', result_event = ?, finished = ? WHERE query_id = ?",
            event.encode(), now_ms, query_id,
        )  # fmt: skip

    def failed(self, query_id: str, code: ErrorCode, message: str, now_ms: int) -> None:
        self._changed(
            "state = 'failed', error_code = ?, message = ?, finished = ? WHERE query_id = ?",
            code.code, message, now_ms, query_id,
        )  # fmt: skip

    def expire(self, ended_before: int, now_ms: int) -> None:
        """Mark results that ended before a time as expired; states and digests stay."""
        with self._db.changing() as db:
            past = "FROM unexpired WHERE finished < ?"
            db.execute(
                f"INSERT OR IGNORE INTO expired SELECT result_id, ? {past}",
                (now_ms, ended_before),
            )
            db.execute(
                f"INSERT OR IGNORE INTO unremoved SELECT result_id {past}",
                (ended_before,),
            )
            db.execute(f"DELETE {past}", (ended_before,))

    def unremoved(self, limit: int) -> list[str]:
        """Expired results whose rows may still be on disk, at most ``limit``."""
        query = "SELECT result_id FROM unremoved ORDER BY result_id LIMIT ?"
        return [result_id for (result_id,) in self._db.rows(query, limit)]

    def removed(self, result_ids: Sequence[str]) -> None:
        """Note that the rows of these results are no longer on disk."""
        with self._db.changing() as db:
            db.executemany(
                "DELETE FROM unremoved WHERE result_id = ?", [(name,) for name in result_ids]
            )

    def is_expired(self, result_id: str) -> bool:
        return bool(self._db.rows("SELECT 1 FROM expired WHERE result_id = ?", result_id))

    def _changed(self, change: str, *values: object) -> bool:
        with self._db.changing() as db:
            return db.execute(f"UPDATE queries SET {change}", values).rowcount > 0  # noqa: S608

    def _deleted(self, condition: str, query_id: str) -> bool:
        query = f"DELETE FROM queries WHERE query_id = ? AND {condition}"  # noqa: S608
        with self._db.changing() as db:
            return db.execute(query, (query_id,)).rowcount > 0

    def _first(self, condition: str, value: str) -> Query | None:
        return next(iter(self._all(condition, value)), None)

    def _all(self, condition: str, *values: object) -> list[Query]:
        query = f"SELECT {COLUMNS} FROM queries WHERE {condition}"  # noqa: S608
        return [query_of(row) for row in self._db.rows(query, *values)]
