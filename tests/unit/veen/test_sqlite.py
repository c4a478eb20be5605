"""Databases: versions and migrations, read-only opening, transactions, and a full disk."""

from __future__ import annotations

import sqlite3
import stat
from contextlib import closing
from pathlib import Path

import pytest

from veen.errors import VeenError
from veen.system import sqlite
from veen.system.durable import NoSpace
from veen.system.sqlite import NewerVersion, Schema

FIRST = Schema("CREATE TABLE a (x);\nINSERT INTO a VALUES (1);\n")
THIRD = Schema(
    FIRST.first, ("ALTER TABLE a ADD COLUMN y DEFAULT 2;", "CREATE TABLE b (z);\nDROP TABLE b")
)


class Broken(VeenError):
    """The caller's own error."""


def _opened(path: Path, schema: Schema) -> sqlite.Connection:
    sqlite.create_private(path)
    db = sqlite.connect(path, synchronous="FULL")
    sqlite.migrate(db, path, schema)
    return db


def test_creates_private_files_of_the_latest_version(tmp_path: Path) -> None:
    with closing(_opened(tmp_path / "db", THIRD)) as db:
        assert db.execute("SELECT * FROM a").fetchall() == [(1, 2)]
        assert db.execute("PRAGMA user_version").fetchone() == (3,)
        assert db.execute("PRAGMA journal_mode").fetchone() == ("wal",)
        modes = {stat.S_IMODE(path.stat().st_mode) for path in tmp_path.iterdir()}
    assert modes == {0o600}


def test_migrates_an_older_database_step_by_step(tmp_path: Path) -> None:
    _opened(tmp_path / "db", FIRST).close()
    with closing(_opened(tmp_path / "db", THIRD)) as db:
        assert db.execute("SELECT * FROM a").fetchall() == [(1, 2)]


def test_a_failed_migration_changes_nothing(tmp_path: Path) -> None:
    _opened(tmp_path / "db", FIRST).close()
    broken = Schema(FIRST.first, ("CREATE TABLE b (z);\nCREATE TABLE a (x);",))
    with pytest.raises(sqlite3.OperationalError):
        _opened(tmp_path / "db", broken)
    with closing(_opened(tmp_path / "db", FIRST)) as db:
        assert db.execute("SELECT name FROM sqlite_master").fetchall() == [("a",)]


def test_refuses_a_database_of_a_later_release(tmp_path: Path) -> None:
    _opened(tmp_path / "db", THIRD).close()
    with pytest.raises(NewerVersion, match=r"expected version 1 or older, got version 3.*run that"):
        _opened(tmp_path / "db", FIRST)


def test_does_not_follow_a_link(tmp_path: Path) -> None:
    (tmp_path / "db").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(OSError, match="symbolic links"):
        sqlite.create_private(tmp_path / "db")


def test_a_read_only_connection_writes_nothing(tmp_path: Path) -> None:
    _opened(tmp_path / "db", FIRST).close()
    with closing(sqlite.connect_read_only(tmp_path / "db", leave_no_files=True)) as db:
        assert db.execute("SELECT * FROM a").fetchall() == [(1,)]
        assert [path.name for path in tmp_path.iterdir()] == ["db"]
        with pytest.raises(sqlite3.OperationalError):
            db.execute("INSERT INTO a VALUES (2)")
    with pytest.raises(sqlite3.OperationalError):
        sqlite.connect_read_only(tmp_path / "missing").execute("SELECT * FROM a")


def test_a_reader_that_leaves_no_files_sees_what_a_writer_has_committed(tmp_path: Path) -> None:
    with closing(_opened(tmp_path / "db", FIRST)) as writer:
        writer.execute("INSERT INTO a VALUES (2)")
        with closing(sqlite.connect_read_only(tmp_path / "db", leave_no_files=True)) as db:
            assert db.execute("SELECT count(*) FROM a").fetchone() == (2,)


def test_an_error_rolls_the_transaction_back(tmp_path: Path) -> None:
    with closing(_opened(tmp_path / "db", FIRST)) as db:
        with pytest.raises(sqlite3.OperationalError), sqlite.transaction(db):
            _insert_then_fail(db)
        assert db.execute("SELECT * FROM a").fetchall() == [(1,)]


def _insert_then_fail(db: sqlite.Connection) -> None:
    db.execute("INSERT INTO a VALUES (2)")
    db.execute("SELECT * FROM missing")


def test_a_full_disk_is_no_space(tmp_path: Path) -> None:
    with closing(_opened(tmp_path / "db", FIRST)) as db:
        db.execute("PRAGMA max_page_count = 2")
        with (
            pytest.raises(NoSpace, match="db"),
            sqlite.errors_translated(tmp_path / "db", Broken, "rebuild it"),
            sqlite.transaction(db),
        ):
            db.execute("INSERT INTO a VALUES (zeroblob(100000))")


def test_other_errors_are_the_callers_with_the_remedy(tmp_path: Path) -> None:
    (tmp_path / "db").write_bytes(b"not a database, but long enough to be one" * 20)
    with (
        pytest.raises(Broken, match=r"db: file is not a database; rebuild it"),
        sqlite.errors_translated(tmp_path / "db", Broken, "rebuild it"),
    ):
        _opened(tmp_path / "db", FIRST)


def test_a_directory_that_was_removed_is_the_callers_error_too(tmp_path: Path) -> None:
    path = tmp_path / "removed" / "db"
    with (
        pytest.raises(Broken, match="unable to open database file; rebuild it"),
        sqlite.errors_translated(path, Broken, "rebuild it"),
    ):
        sqlite.connect_read_only(path, pragmas={"user_version": 0})


def test_a_passing_error_is_not_translated(tmp_path: Path) -> None:
    with (
        pytest.raises(sqlite3.IntegrityError),
        sqlite.errors_translated(tmp_path, Broken, "", passing=(sqlite3.IntegrityError,)),
    ):
        raise sqlite3.IntegrityError
