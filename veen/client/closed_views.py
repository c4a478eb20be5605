"""Views of closed epochs, as rows beside ``state.json``: a view is looked up and stored by itself.

``state.json`` names the token of the file. A file without that token is of another state: it is
never read, and replaced when the first epoch is closed.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from veen.errors import BadState
from veen.system import sqlite

_SCHEMA: Final = sqlite.Schema("""
CREATE TABLE views (label BLOB PRIMARY KEY, view TEXT NOT NULL);
CREATE TABLE owner (token TEXT NOT NULL);
INSERT INTO owner VALUES (lower(hex(randomblob(16))));
""")
_REMEDY: Final = "restore it, or move state.json away, then: veen resync"
_PRAGMAS: Final = {"journal_mode": "DELETE"}
"""A client directory is copied and renamed as a whole; a write-ahead log would be a second file."""


class ClosedViews:
    """The views of closed epochs as JSON, by label."""

    def __init__(self, path: Path, token: str) -> None:
        self._path = path
        self.token = token

    @classmethod
    def create(cls, path: Path) -> ClosedViews:
        """Create an empty file in place of one that no state names."""
        for name in (path.name, f"{path.name}-journal"):
            path.with_name(name).unlink(missing_ok=True)
        sqlite.create_private(path)
        views = cls(path, "")
        with views._connected(writable=True) as db:
            sqlite.migrate(db, path, _SCHEMA)
            ((views.token,),) = db.execute("SELECT token FROM owner").fetchall()
        return views

    def get(self, label: bytes) -> str | None:
        with self._verified() as db:
            row = db.execute("SELECT view FROM views WHERE label = ?", (label,)).fetchone()
        return None if row is None else str(row[0])

    def labels(self) -> Iterator[bytes]:
        with self._verified() as db:
            yield from (bytes(label) for (label,) in db.execute("SELECT label FROM views"))

    def items(self) -> Iterator[tuple[bytes, str]]:
        with self._verified() as db:
            yield from db.execute("SELECT label, view FROM views")

    def put(self, views: Mapping[bytes, str]) -> None:
        """Store views durably."""
        with self._verified(writable=True) as db, sqlite.transaction(db):
            db.executemany("INSERT OR REPLACE INTO views VALUES (?, ?)", views.items())

    @contextmanager
    def _verified(self, *, writable: bool = False) -> Iterator[sqlite.Connection]:
        """Connect to the file that the state names."""
        if not self._path.exists():
            raise BadState(f"{self._path} is missing, and state.json names it; {_REMEDY}")
        with self._connected(writable=writable) as db:
            if sqlite.verified_version(db, self._path, _SCHEMA) != _SCHEMA.version:
                raise BadState(f"{self._path} is incomplete; {_REMEDY}")
            ((token,),) = db.execute("SELECT token FROM owner").fetchall()
            if token != self.token:
                raise BadState(
                    f"{self._path}: expected token {self.token} of state.json, got {token}: they "
                    f"are of two copies of the directory; {_REMEDY}"
                )
            yield db

    @contextmanager
    def _connected(self, *, writable: bool) -> Iterator[sqlite.Connection]:
        with sqlite.errors_translated(self._path, BadState, _REMEDY):
            db = (
                sqlite.connect(self._path, synchronous="FULL", pragmas=_PRAGMAS)
                if writable
                else sqlite.connect_read_only(self._path)
            )
            try:
                yield db
            finally:
                db.close()
