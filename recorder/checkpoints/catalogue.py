"""The catalogue of stored recorder checkpoints: rows by time and by id, in SQLite.

The files are the checkpoints; the catalogue is derived from them, so that finding the latest, a
page or an id does not list a directory that grows for years. A name is in ``writing`` before its
file is written or moved, and a row afterwards: while it is there, the file decides. The catalogue
holds the modification times of the directories as it last left them. If they differ and no process
holds the lock, something else changed the directories, or a change was interrupted, and they are
listed once. A catalogue that is missing, damaged or of a later release is discarded; who may not
write lists the files.
"""

from __future__ import annotations

import os
import re
import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Final, NamedTuple

from veen.log.layout import RecorderName
from veen.recorder_checkpoint import RecorderCheckpoint
from veen.system import filelock, sqlite
from veen.system.sqlite import Connection

_NAME: Final = re.compile(r"([0-9]{20})-([0-9a-f]{64})")
_SUFFIX: Final = ".cbor"
_ID_DIGITS: Final = 64
_PAGE: Final = 100
_SCHEMA: Final = sqlite.Schema("""
CREATE TABLE checkpoints (created_at INTEGER NOT NULL, checkpoint_id BLOB NOT NULL,
    PRIMARY KEY (created_at, checkpoint_id)) WITHOUT ROWID;
CREATE INDEX by_id ON checkpoints (checkpoint_id);
CREATE TABLE writing (created_at INTEGER NOT NULL, checkpoint_id BLOB NOT NULL,
    PRIMARY KEY (created_at, checkpoint_id)) WITHOUT ROWID;
CREATE TABLE state (total INTEGER NOT NULL, modified TEXT NOT NULL);
INSERT INTO state VALUES (0, '');
""")
_NEWEST_FIRST: Final = (
    "SELECT created_at, checkpoint_id FROM checkpoints "
    "WHERE (created_at, checkpoint_id) < (?, ?) ORDER BY created_at DESC, checkpoint_id DESC "
    "LIMIT ?"
)
_BY_ID: Final = (
    "SELECT created_at, checkpoint_id FROM checkpoints WHERE checkpoint_id BETWEEN ? AND ? LIMIT ?"
)
_NO_FILES: Final = {"journal_mode": "DELETE"}
"""A write-ahead log would leave files beside the catalogue, also after a mere read."""
_DAMAGED: Final = (sqlite3.SQLITE_ERROR, sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB)
_PRIMARY_CODE: Final = 0xFF
_LAST: Final = ((1 << 63) - 1, b"\xff" * 33)


class RecorderCheckpointName(NamedTuple):
    """The name of a checkpoint; sorts by time, which is unique for each hub."""

    created_at: int
    checkpoint_id: bytes

    @classmethod
    def of(cls, checkpoint: RecorderCheckpoint) -> RecorderCheckpointName:
        return cls(checkpoint.created_at, checkpoint.checkpoint_id)

    @property
    def short(self) -> RecorderName:
        """The name in a hub's data directory and in an archive."""
        return RecorderName.of(self.created_at, self.checkpoint_id)

    @property
    def stem(self) -> str:
        return f"{self.created_at:020d}-{self.checkpoint_id.hex()}"

    @property
    def file(self) -> str:
        return self.stem + _SUFFIX


def parse_name(file: str) -> RecorderCheckpointName | None:
    """Parse a file name; None when it is not that of a checkpoint."""
    match = _NAME.fullmatch(file.removesuffix(_SUFFIX))
    return RecorderCheckpointName(int(match[1]), bytes.fromhex(match[2])) if match else None


def files(folder: Path) -> list[str]:
    """The complete files of a directory, sorted; none if it does not exist."""
    try:
        return sorted(name for name in os.listdir(folder) if not name.startswith("."))  # noqa: PTH208
    except FileNotFoundError:
        return []


class CheckpointNames:
    """The names of the stored checkpoints at one moment."""

    def __init__(self, db: Connection, unfinished: Sequence[RecorderCheckpointName]) -> None:
        self._db = db
        self._unfinished = sorted(name for name in unfinished if not self._has(name))

    def count(self) -> int:
        ((total,),) = self._db.execute("SELECT total FROM state").fetchall()
        return int(total) + len(self._unfinished)

    def newest_first(self) -> Iterator[RecorderCheckpointName]:
        """All names from the newest on, read in pages."""
        unfinished = list(self._unfinished)
        for name in self._stored():
            while unfinished and unfinished[-1] > name:
                yield unfinished.pop()
            yield name
        yield from reversed(unfinished)

    def starting(self, prefix: str, limit: int) -> list[RecorderCheckpointName]:
        """At most ``limit`` names whose checkpoint_id in hex begins with a prefix."""
        if not re.fullmatch(f"[0-9a-f]{{0,{_ID_DIGITS}}}", prefix):
            return []
        bounds = (bytes.fromhex(prefix.ljust(_ID_DIGITS, digit)) for digit in "0f")
        rows = map(RecorderCheckpointName._make, self._db.execute(_BY_ID, (*bounds, limit)))
        late = (name for name in self._unfinished if name.checkpoint_id.hex().startswith(prefix))
        return [*rows, *late][:limit]

    def _stored(self) -> Iterator[RecorderCheckpointName]:
        last: tuple[int, bytes] = _LAST
        while rows := self._db.execute(_NEWEST_FIRST, (*last, _PAGE)).fetchall():
            yield from map(RecorderCheckpointName._make, rows)
            last = rows[-1]

    def _has(self, name: RecorderCheckpointName) -> bool:
        query = "SELECT 1 FROM checkpoints WHERE created_at = ? AND checkpoint_id = ?"
        return bool(self._db.execute(query, name).fetchone())


class CheckpointCatalogue:
    """The catalogue of the checkpoints in some directories; who changes them holds ``lock``."""

    def __init__(self, path: Path, folders: Sequence[Path], lock: Path) -> None:
        self._path = path
        self._folders = tuple(folders)
        self._lock = lock

    @contextmanager
    def reading(self) -> Iterator[CheckpointNames]:
        """Read the names; a catalogue that is not of these directories is written again."""
        with closing(self._current()) as db:
            db.execute("BEGIN")
            yield CheckpointNames(db, [name for name in _writing(db) if self._exists(name)])

    @contextmanager
    def changing(self, name: RecorderCheckpointName) -> Iterator[None]:
        """Write, move or remove the file of a name meanwhile."""
        with closing(self._open()) as db:
            if _writing(db) or not self._is_current(db):
                self._refill(db)
            with sqlite.transaction(db):
                db.execute("INSERT OR IGNORE INTO writing VALUES (?, ?)", name)
            try:
                yield
            finally:
                self._finish(db, name)

    def _finish(self, db: Connection, name: RecorderCheckpointName) -> None:
        where = "WHERE created_at = ? AND checkpoint_id = ?"
        with sqlite.transaction(db):
            if self._exists(name):
                added = db.execute("INSERT OR IGNORE INTO checkpoints VALUES (?, ?)", name).rowcount
            else:
                added = -db.execute(f"DELETE FROM checkpoints {where}", name).rowcount  # noqa: S608
            db.execute(f"DELETE FROM writing {where}", name)  # noqa: S608
            db.execute("UPDATE state SET total = total + ?, modified = ?", (added, self._times()))

    def _current(self) -> Connection:
        """A connection to rows that are those of the directories."""
        try:
            db = sqlite.connect_read_only(self._path)
        except sqlite3.Error:
            return self._written_again()
        try:
            version = sqlite.verified_version(db, self._path, _SCHEMA)
            if version == _SCHEMA.version and (self._is_changing(db) or self._is_current(db)):
                return db
        except (sqlite3.Error, sqlite.NewerVersion):
            pass
        db.close()
        return self._written_again()

    def _written_again(self) -> Connection:
        try:
            db = self._open()
        except (sqlite3.Error, OSError):
            # Not writable here, or the disk is full: the names are sorted in a temporary file.
            db = sqlite.connect_temporary()
            for statement in sqlite.statements(_SCHEMA.first):
                db.execute(statement)
        try:
            self._refill(db)
        except BaseException:
            db.close()
            raise
        return db

    def _open(self) -> Connection:
        try:
            return self._connect()
        except sqlite3.DatabaseError as error:
            if error.sqlite_errorcode & _PRIMARY_CODE not in _DAMAGED:
                raise
        except sqlite.NewerVersion:
            pass
        for suffix in ("", "-wal", "-shm"):
            self._path.with_name(self._path.name + suffix).unlink(missing_ok=True)
        return self._connect()

    def _connect(self) -> Connection:
        sqlite.create_private(self._path)
        db = sqlite.connect(self._path, synchronous="FULL", pragmas=_NO_FILES)
        try:
            sqlite.migrate(db, self._path, _SCHEMA)
            _writing(db)
        except BaseException:
            db.close()
            raise
        return db

    def _refill(self, db: Connection) -> None:
        """Replace the rows by the files."""
        with sqlite.transaction(db):
            modified = self._times()
            listed = {name for folder in self._folders for name in files(folder)}
            names = [name for name in map(parse_name, listed) if name is not None]
            db.execute("DELETE FROM checkpoints")
            db.execute("DELETE FROM writing")
            db.executemany("INSERT INTO checkpoints VALUES (?, ?)", sorted(names))
            db.execute("UPDATE state SET total = ?, modified = ?", (len(names), modified))

    def _is_current(self, db: Connection) -> bool:
        ((modified,),) = db.execute("SELECT modified FROM state").fetchall()
        return bool(modified == self._times())

    def _is_changing(self, db: Connection) -> bool:
        return bool(_writing(db)) and filelock.is_locked(self._lock)

    def _times(self) -> str:
        return " ".join(map(_modified, self._folders))

    def _exists(self, name: RecorderCheckpointName) -> bool:
        return any((folder / name.file).exists() for folder in self._folders)


def _writing(db: Connection) -> list[RecorderCheckpointName]:
    rows = db.execute("SELECT created_at, checkpoint_id FROM writing")
    return list(map(RecorderCheckpointName._make, rows))


def _modified(folder: Path) -> str:
    try:
        return str(folder.stat().st_mtime_ns)
    except FileNotFoundError:
        return "-"
