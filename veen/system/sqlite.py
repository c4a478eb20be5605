"""SQLite databases: opening, transactions, schema versions and migrations, full disks.

The version of a schema is the ``user_version`` of its database. A new database is created, and an
older one migrated, in one transaction; one of a later release is refused.
"""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Literal

from veen.errors import VeenError
from veen.system import durable
from veen.system.durable import NoSpace

Connection = sqlite3.Connection
Error = sqlite3.Error
DEFAULT_BUSY_MS: Final = 5_000
_CREATE_FAILED: Final = (
    sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_IOERR_WRITE,
    sqlite3.SQLITE_IOERR_SHMOPEN, sqlite3.SQLITE_IOERR_SHMSIZE,
)  # fmt: skip


class NewerVersion(VeenError):
    """A database that a later release wrote."""


@dataclass(frozen=True, slots=True)
class Schema:
    """The script of version 1, and a migration from each version to the next one."""

    first: str
    migrations: tuple[str, ...] = ()

    @property
    def version(self) -> int:
        return 1 + len(self.migrations)

    def scripts_from(self, version: int) -> tuple[str, ...]:
        """The scripts that lead from a version, 0 for an empty database, to this one."""
        return (self.first, *self.migrations)[version:]


def connect(
    path: Path,
    *,
    synchronous: Literal["FULL", "NORMAL"],
    busy_ms: int = DEFAULT_BUSY_MS,
    pragmas: Mapping[str, int | str] | None = None,
    any_thread: bool = False,
) -> Connection:
    """Open a database for writing, with a write-ahead log.

    With ``synchronous`` FULL each transaction is durable when it ends; with NORMAL the last ones
    may be lost in a power failure, and the database remains consistent.
    """
    settings = {"journal_mode": "WAL", "synchronous": synchronous, **(pragmas or {})}
    return _connect(f"{path.absolute().as_uri()}?mode=rwc", busy_ms, settings, any_thread)


def connect_read_only(
    path: Path,
    *,
    pragmas: Mapping[str, int | str] | None = None,
    any_thread: bool = False,
    leave_no_files: bool = False,
) -> Connection:
    """Open an existing database read-only.

    ``leave_no_files``: without a write-ahead log no process has the database open, and it is read
    as immutable, which keeps SQLite from creating a shared memory file beside it.
    """
    is_static = leave_no_files and not path.with_name(f"{path.name}-wal").exists()
    mode = "immutable=1" if is_static else "mode=ro"
    address = f"{path.absolute().as_uri()}?{mode}"
    return _connect(address, DEFAULT_BUSY_MS, pragmas or {}, any_thread)


def connect_temporary() -> Connection:
    """Open an empty database in a temporary file, which is deleted with the connection."""
    return _connect("", DEFAULT_BUSY_MS, {}, any_thread=False)


def create_private(path: Path) -> None:
    """Create the file of a database for its owner alone; SQLite gives its other files this mode."""
    os.close(os.open(path, os.O_CREAT | os.O_RDWR | os.O_NOFOLLOW, durable.FILE_MODE))


def migrate(db: Connection, path: Path, schema: Schema) -> None:
    """Create the tables of an empty database, or migrate an older one, durably."""
    if verified_version(db, path, schema) == schema.version:
        return
    with transaction(db):
        # Another process may have migrated it meanwhile.
        for script in schema.scripts_from(verified_version(db, path, schema)):
            for statement in statements(script):
                db.execute(statement)
        db.execute(f"PRAGMA user_version = {schema.version}")
    durable.sync_directory(path.parent)


def verified_version(db: Connection, path: Path, schema: Schema) -> int:
    """The version of a database, 0 for an empty one; NewerVersion if a later release wrote it."""
    (version,) = db.execute("PRAGMA user_version").fetchone()
    if not 0 <= version <= schema.version:
        raise NewerVersion(
            f"{path}: expected version {schema.version} or older, got version {version}: a later "
            "release wrote it; run that release, or a later one"
        )
    return int(version)


def statements(script: str) -> Iterator[str]:
    """Split a script, since ``executescript`` would commit the current transaction."""
    statement = ""
    for line in script.splitlines(keepends=True):
        statement += line
        if sqlite3.complete_statement(statement):
            yield statement
            statement = ""
    if statement.strip():
        yield statement


@contextmanager
def transaction(db: Connection) -> Iterator[None]:
    """Run an atomic transaction, which is rolled back if it fails."""
    try:
        db.execute("BEGIN IMMEDIATE")
        yield
        db.execute("COMMIT")
    except BaseException:
        if db.in_transaction:
            db.execute("ROLLBACK")
        raise


@contextmanager
def errors_translated(
    path: Path,
    failure: Callable[[str], VeenError],
    remedy: str,
    passing: tuple[type[sqlite3.Error], ...] = (),
) -> Iterator[None]:
    """Translate errors of a database: a full disk to NoSpace, others to ``failure``, except those
    in ``passing``."""
    try:
        yield
    except passing:
        raise
    except NewerVersion as error:
        raise failure(str(error)) from error
    except sqlite3.Error as error:
        if is_full(error, path.parent):
            raise NoSpace(f"{path}: {error}") from error
        raise failure(f"{path}: {error}; {remedy}") from error


def is_full(error: sqlite3.Error, directory: Path | None = None) -> bool:
    """Whether the disk is full.

    SQLite has other codes for files it cannot create or extend; they mean a full disk if the disk
    of ``directory`` is full.
    """
    code = getattr(error, "sqlite_errorcode", None)
    if code == sqlite3.SQLITE_FULL:
        return True
    if code not in _CREATE_FAILED or directory is None:
        return False
    try:
        volume = os.statvfs(directory)
    except OSError:
        # The directory was removed, or may not be entered: that is not a full disk.
        return False
    # File systems that allocate inodes dynamically report 0 of 0.
    return not volume.f_bavail or bool(volume.f_files and not volume.f_favail)


def _connect(
    address: str, busy_ms: int, pragmas: Mapping[str, int | str], any_thread: bool
) -> Connection:
    db = sqlite3.connect(
        address,
        uri=bool(address),
        timeout=busy_ms / 1000,
        isolation_level=None,
        check_same_thread=not any_thread,
    )
    try:
        for name, value in pragmas.items():
            db.execute(f"PRAGMA {name} = {value}")
    except BaseException:
        db.close()
        raise
    return db
