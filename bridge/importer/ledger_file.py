"""The SQLite file of the import ledger: its tables, their versions, and how it is opened.

An import migrates a ledger of an earlier version. A status reads it as it is, since it opens the
file read-only.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import AbstractContextManager, closing, contextmanager
from pathlib import Path
from typing import Any, Final, Self

from veen.errors import VeenError
from veen.system import sqlite

_VERSION_1: Final = """
CREATE TABLE bundles (
  bundle_id BLOB PRIMARY KEY, state TEXT NOT NULL, source_hub_id BLOB NOT NULL,
  stream TEXT NOT NULL, target TEXT NOT NULL, from_seq INTEGER NOT NULL, to_seq INTEGER NOT NULL,
  checkpoint_id BLOB NOT NULL, checkpoint_at INTEGER NOT NULL, sha256 BLOB NOT NULL,
  told TEXT NOT NULL
) WITHOUT ROWID;
CREATE INDEX bundle_state ON bundles (state);
CREATE TABLE plans (
  bundle_id BLOB PRIMARY KEY, plan_id BLOB NOT NULL UNIQUE, source TEXT NOT NULL,
  inbox TEXT NOT NULL, import_time INTEGER NOT NULL, written INTEGER NOT NULL,
  duplicates INTEGER NOT NULL, kept_out TEXT NOT NULL, base_client_seq INTEGER NOT NULL,
  base_seq INTEGER NOT NULL, accepted_gap TEXT, verification TEXT NOT NULL, done INTEGER NOT NULL,
  target_to INTEGER NOT NULL, target_root BLOB NOT NULL
) WITHOUT ROWID;
CREATE TABLE runs (
  source_hub_id BLOB NOT NULL, stream TEXT NOT NULL, from_seq INTEGER NOT NULL,
  to_seq INTEGER NOT NULL, bundle_id BLOB NOT NULL, is_held INTEGER NOT NULL,
  entries BLOB NOT NULL, PRIMARY KEY (source_hub_id, stream, from_seq)
);
CREATE TABLE closings (n INTEGER PRIMARY KEY, token BLOB NOT NULL, document TEXT NOT NULL);
CREATE TABLE frozen (
  source_hub_id BLOB NOT NULL, stream TEXT NOT NULL, seq INTEGER NOT NULL,
  bundle_id BLOB NOT NULL, PRIMARY KEY (source_hub_id, stream)
) WITHOUT ROWID;
CREATE TABLE carriers (
  bridge_id BLOB NOT NULL, n INTEGER NOT NULL, entry BLOB NOT NULL,
  PRIMARY KEY (bridge_id, n, entry)
) WITHOUT ROWID;
CREATE TABLE told (name TEXT PRIMARY KEY, value BLOB NOT NULL) WITHOUT ROWID;
"""
_VERSION_2: Final = """
ALTER TABLE told RENAME TO notes;
ALTER TABLE closings RENAME TO pending;
ALTER TABLE bundles RENAME COLUMN told TO detail;
ALTER TABLE plans RENAME COLUMN kept_out TO excluded;
"""
_SCHEMA: Final = sqlite.Schema(_VERSION_1, (_VERSION_2,))
_VERSION_1_VIEWS: Final = (
    "CREATE TEMP VIEW notes AS SELECT * FROM main.told",
    "CREATE TEMP VIEW pending AS SELECT * FROM main.closings",
)
"""With these a ledger of version 1 is read as one of version 2; the columns that were renamed are
read by position."""
_REMEDY: Final = "rebuild it with veen bridge import --rebuild-ledger"


class BadLedger(VeenError):
    """A ledger that cannot be used; nothing is imported until it is rebuilt."""


class LedgerFile:
    """The SQLite database of the ledger; changes within a transaction are atomic and durable."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._db = self._open()

    def close(self) -> None:
        self._db.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _all(self, query: str, *values: object) -> list[dict[str, Any]]:
        with _errors_translated(self._path):
            return [dict(row) for row in self._db.execute(query, values).fetchall()]

    def _open(self) -> sqlite3.Connection:
        sqlite.create_private(self._path)
        with _errors_translated(self._path):
            db = sqlite.connect(self._path, synchronous="FULL")
            sqlite.migrate(db, self._path, _SCHEMA)
        db.row_factory = sqlite3.Row
        return db

    @contextmanager
    def _transaction(self) -> Iterator[None]:
        with _errors_translated(self._path), sqlite.transaction(self._db):
            yield


@contextmanager
def read_only(path: Path) -> Iterator[sqlite3.Connection | None]:
    """Open a ledger in one read transaction, without creating files; None while it is being
    created.
    """
    with (
        _errors_translated(path),
        closing(
            sqlite.connect_read_only(path, pragmas={"temp_store": "MEMORY"}, leave_no_files=True)
        ) as db,
    ):
        db.execute("BEGIN")
        version = sqlite.verified_version(db, path, _SCHEMA)
        if version == 1:
            for view in _VERSION_1_VIEWS:
                db.execute(view)
        yield db if version else None


def _errors_translated(path: Path) -> AbstractContextManager[None]:
    return sqlite.errors_translated(path, BadLedger, _REMEDY)
