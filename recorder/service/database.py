"""The service's own SQLite file: queries and their states, audits to be sent, signatures taken."""

from __future__ import annotations

import os
import sqlite3
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

from veen import durable
from veen.errors import VeenError

VERSION: Final = 4
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
_UPGRADES: Final = {
    1: _EXPIRED + _COUNTED + _BATCHES, 2: _COUNTED + _BATCHES, 3: _BATCHES,
}  # fmt: skip
"""By the version it comes from: what an older file lacks."""

_SCHEMA: Final = """
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
    BEGIN SELECT RAISE(ABORT, 'a query that was recorded is not forgotten'); END;
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


class BadDatabase(VeenError):
    """The service's file cannot be read or written; nothing is answered from it."""


class Database:
    """Several processes and threads share the file; each thread has a connection of its own."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._local = threading.local()
        self._create()

    @contextmanager
    def changing(self) -> Iterator[sqlite3.Connection]:
        """All that is done within, on disk on return, or nothing."""
        with self._told():
            db = self._connection()
            db.execute("BEGIN IMMEDIATE")
            try:
                yield db
                db.execute("COMMIT")
            except BaseException:
                if db.in_transaction:
                    db.execute("ROLLBACK")
                raise

    def rows(self, query: str, *values: object) -> list[Any]:
        with self._told():
            return self._connection().execute(query, values).fetchall()

    @contextmanager
    def _told(self) -> Iterator[None]:
        try:
            yield
        except sqlite3.IntegrityError:
            raise
        except sqlite3.Error as error:
            raise BadDatabase(f"{self._path}: {error}; look at the disk and its space") from error

    def _create(self) -> None:
        durable.make_directory(self._path.parent)
        # SQLite gives its other files the mode of this one.
        os.close(os.open(self._path, os.O_CREAT | os.O_RDWR | os.O_NOFOLLOW, durable.FILE_MODE))
        with self.changing() as db:
            (version,) = db.execute("PRAGMA user_version").fetchone()
            if version not in (0, VERSION, *_UPGRADES):
                raise BadDatabase(f"{self._path} is of version {version}, this is {VERSION}")
            if version != VERSION:
                for statement in _statements(_UPGRADES.get(version, _SCHEMA + _UPGRADES[1])):
                    db.execute(statement)
                db.execute(f"PRAGMA user_version = {VERSION}")
        durable.sync_directory(self._path.parent)

    def _connection(self) -> sqlite3.Connection:
        found: sqlite3.Connection | None = getattr(self._local, "db", None)
        if found is None:
            found = sqlite3.connect(self._path, isolation_level=None, timeout=_BUSY_MS / 1000)
            found.execute("PRAGMA journal_mode = WAL")
            found.execute("PRAGMA synchronous = FULL")
            self._local.db = found
        return found


def _statements(script: str) -> Iterator[str]:
    """One by one: executescript would end the transaction they are to be in."""
    statement = ""
    for line in script.splitlines(keepends=True):
        statement += line
        if sqlite3.complete_statement(statement):
            yield statement
            statement = ""
