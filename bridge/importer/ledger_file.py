"""The database of the import ledger: opened, read and changed, with its faults told."""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Self

from bridge.importer.ledger_tables import SCHEMA, VERSION
from veen import durable
from veen.errors import VeenError


class BadLedger(VeenError):
    """A ledger that cannot be used; nothing is imported until it is whole again."""


class LedgerFile:
    """What was changed in a block is on disk when it ends, or nothing of it."""

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
        with self._asked():
            return [dict(row) for row in self._db.execute(query, values).fetchall()]

    def _open(self) -> sqlite3.Connection:
        os.close(os.open(self._path, os.O_CREAT | os.O_RDWR | os.O_NOFOLLOW, durable.FILE_MODE))
        with self._asked():
            db = sqlite3.connect(self._path, isolation_level=None)
            db.row_factory = sqlite3.Row
            db.execute("PRAGMA journal_mode = WAL")
            db.execute("PRAGMA synchronous = FULL")
            (version,) = db.execute("PRAGMA user_version").fetchone()
            if version == 0:
                db.executescript(f"BEGIN; {SCHEMA} PRAGMA user_version = {VERSION}; COMMIT")
                durable.sync_directory(self._path.parent)
        if version not in (0, VERSION):
            raise BadLedger(f"{self._path} is of version {version}, this is {VERSION}")
        return db

    @contextmanager
    def _asked(self) -> Iterator[None]:
        try:
            yield
        except sqlite3.Error as error:
            if error.sqlite_errorcode == sqlite3.SQLITE_FULL:
                raise durable.NoSpace(f"{self._path}: {error}") from error
            raise BadLedger(
                f"{self._path}: {error}; make it again with veen bridge import --rebuild-ledger"
            ) from error

    @contextmanager
    def _changing(self) -> Iterator[None]:
        with self._asked():
            self._db.execute("BEGIN IMMEDIATE")
            try:
                yield
                self._db.execute("COMMIT")
            except BaseException:
                if self._db.in_transaction:
                    self._db.execute("ROLLBACK")
                raise
