"""H29: the index of a hub is made in one transaction."""

from __future__ import annotations

import sqlite3
from pathlib import Path

import pytest

from hub.storage.index import Index


def test_h29_an_index_whose_making_is_cut_short_is_empty(tmp_path: Path) -> None:
    index = Index(tmp_path / "index.sqlite", writable=True)

    def no_rows(action: int, table: str | None, *_: str | None) -> int:
        is_row = action == sqlite3.SQLITE_INSERT and table == "meta"
        return sqlite3.SQLITE_DENY if is_row else sqlite3.SQLITE_OK

    index._db.set_authorizer(no_rows)
    with pytest.raises(sqlite3.DatabaseError):
        index.create(bytes(32))
    index._db.set_authorizer(None)
    assert index._db.execute("SELECT count(*) FROM sqlite_master").fetchone() == (0,)
    index.create(bytes(32))
    assert index.is_of(bytes(32))
