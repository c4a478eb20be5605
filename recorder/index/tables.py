"""The SQLite tables of an index, the connection to them, and the directory of generations.

The primary key of a row is one number: the number of the stream, then the sequence number. So the
rows of a stream are in its order, and so is every SQLite index, which ends in the row number: hub
time never goes back within a stream. A query scans its streams in this order and merges them, and
nothing is sorted.

lock         held by the writer
current      a link to the generation that is read
g-1/         index.sqlite and nodes/, the first generation
imports.cbor the import streams that are indexed, if any
"""

from __future__ import annotations

import logging
import shutil
import sqlite3
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import combinations
from pathlib import Path
from typing import Any, Final, NamedTuple

from veen.errors import LATER_RELEASE, VeenError
from veen.label import stream_id
from veen.system import durable, filelock, sqlite
from veen.system.durable import NoSpace

_log = logging.getLogger(__name__)
_CURRENT: Final = "current"
_PREFIX: Final = "g-"
VERSION: Final = 1
SEQ_BITS: Final = 40
REMEDY: Final = "rebuild it with veen recorder index rebuild"
_CACHE: Final = {"cache_size": -16384}
_WRITER: Final = {**_CACHE, "wal_autocheckpoint": 4000}
_SCHEMA: Final = """
CREATE TABLE meta (key TEXT PRIMARY KEY, value) WITHOUT ROWID;
CREATE TABLE streams (
  stream_no INTEGER PRIMARY KEY, hub_id BLOB NOT NULL, name TEXT NOT NULL,
  position INTEGER NOT NULL, root BLOB NOT NULL, last_ts INTEGER NOT NULL,
  unread INTEGER NOT NULL, checked INTEGER NOT NULL,
  head_seq INTEGER NOT NULL, head_ts INTEGER NOT NULL, UNIQUE (hub_id, name)) STRICT;
CREATE TABLE events (
  place INTEGER PRIMARY KEY, stream_no INTEGER NOT NULL, hub_ts INTEGER NOT NULL,
  leaf_hash BLOB NOT NULL, unread INTEGER NOT NULL, fault TEXT,
  subject_id TEXT, principal_id BLOB, event_type TEXT, event_time INTEGER, origin TEXT,
  payload BLOB) STRICT;
CREATE INDEX by_time ON events (stream_no, hub_ts);
CREATE INDEX by_subject ON events (subject_id) WHERE subject_id IS NOT NULL;
CREATE INDEX by_type ON events (event_type) WHERE event_type IS NOT NULL;
CREATE INDEX by_origin ON events (origin) WHERE origin IS NOT NULL;
CREATE TABLE pairs (place INTEGER PRIMARY KEY, msg BLOB, receipt BLOB, body_key BLOB) STRICT;
CREATE TABLE checkpoints (
  number INTEGER PRIMARY KEY, checkpoint_id BLOB NOT NULL UNIQUE, created_at INTEGER NOT NULL,
  document BLOB NOT NULL) STRICT;
CREATE TABLE alarms (
  number INTEGER PRIMARY KEY, stream TEXT NOT NULL, told TEXT NOT NULL, document BLOB NOT NULL,
  receipt BLOB) STRICT;
"""
_ORIGINS: Final = """
CREATE TABLE IF NOT EXISTS origins (
  place INTEGER PRIMARY KEY, stream_no INTEGER NOT NULL, complete_at INTEGER NOT NULL,
  source_hub BLOB NOT NULL, source_stream TEXT NOT NULL, source_seq INTEGER NOT NULL,
  source_ts INTEGER NOT NULL, source_leaf BLOB NOT NULL) STRICT
"""
"""The positions of imported events at their origin."""
KEYED: Final = ("subject_id", "event_type", "origin", "principal_id")
"""The columns of events that a filter can name; each, and each pair of them, has an index."""


def key_name(columns: Sequence[str]) -> str:
    """The name of the index over some columns of events, in the order of ``KEYED``."""
    return _FIRST_NAMES.get(tuple(columns)) or f"by_{'_'.join(columns)}"


def _create_key(columns: Sequence[str]) -> str:
    # Of an event no column is null, of another message all of them are.
    return (
        f"CREATE INDEX IF NOT EXISTS {key_name(columns)} ON events ({', '.join(columns)}) "
        f"WHERE {columns[0]} IS NOT NULL"
    )


_FIRST_NAMES: Final[Mapping[tuple[str, ...], str]] = {
    ("subject_id",): "by_subject",
    ("event_type",): "by_type",
    ("origin",): "by_origin",
}
_COMPOSITE: Final = (("principal_id",), *combinations(KEYED, 2))
_MIGRATIONS: Final = (
    _ORIGINS,
    "ALTER TABLE alarms RENAME COLUMN told TO detail",
    *map(_create_key, _COMPOSITE),
)
"""What an index of an earlier release lacks; ``user_version`` counts those that were applied."""


class NoIndex(VeenError):
    """A directory without an index."""


class IndexBusy(VeenError):
    """Another process writes this index."""


@dataclass(frozen=True, slots=True)
class IndexGeneration:
    """A complete index: the database and the node files of each stream."""

    root: Path

    @property
    def database(self) -> Path:
        return self.root / "index.sqlite"

    def nodes(self, stream_no: int) -> Path:
        return self.root / "nodes" / f"{stream_no:08d}"


@dataclass(frozen=True, slots=True)
class IndexHome:
    """The directory of an index."""

    root: Path

    @property
    def imports(self) -> Path:
        return self.root / "imports.cbor"

    @property
    def stream_map(self) -> Path:
        """The stream map that was accepted last; it is independent of generations."""
        return self.root / "stream_map.json"

    def exists(self) -> bool:
        return (self.root / _CURRENT).is_symlink()

    def current(self) -> IndexGeneration:
        """The generation that is read; open files of it remain valid after a swap."""
        if not self.exists():
            raise NoIndex(f"{self.root} holds no index yet: run veen recorder index follow")
        return IndexGeneration((self.root / _CURRENT).resolve())

    def fresh(self) -> IndexGeneration:
        """Create an empty generation beside the others; the caller holds the lock."""
        numbers = [int(path.name.removeprefix(_PREFIX)) for path in self.root.glob(f"{_PREFIX}*")]
        generation = IndexGeneration(self.root / f"{_PREFIX}{max(numbers, default=0) + 1}")
        durable.make_directory(generation.root / "nodes")
        durable.sync_directory(generation.root)
        return generation

    def swap(self, to: IndexGeneration) -> None:
        """Make a generation the current one, atomically."""
        link = self.root / f".{_CURRENT}"
        link.unlink(missing_ok=True)
        link.symlink_to(to.root.name)
        durable.rename(link, self.root / _CURRENT)

    def sweep(self) -> None:
        """Remove every generation except the current one."""
        root = self.current().root
        for path in self.root.glob(f"{_PREFIX}*"):
            if path.resolve() != root:
                shutil.rmtree(path)

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Hold the write lock; readers need none."""
        durable.make_directory(self.root)
        busy = IndexBusy(f"another process writes {self.root}: stop it first")
        with filelock.locked(self.root / "lock", busy=busy):
            yield


class BadIndex(VeenError):
    """A file that is not an index, has another version, or is damaged."""


class IndexedStream(NamedTuple):
    """How far a stream is indexed, and the head that the hub stated.

    ``unread`` counts the messages that are not recorder events. ``checked`` is the number of the
    last recorder checkpoint whose root was compared with ours.
    """

    stream_no: int
    hub_id: bytes
    name: str
    position: int
    root: bytes
    last_ts: int
    unread: int
    checked: int
    head_seq: int
    head_ts: int

    @property
    def stream_id(self) -> bytes:
        return stream_id(self.name)

    def place(self, seq: int) -> int:
        return place(self.stream_no, seq)


class EventRow(NamedTuple):
    """A message. ``unread`` counts the messages up to here that are not events.

    A message with a fault is not an event, and the columns after ``fault`` are null.
    """

    place: int
    stream_no: int
    hub_ts: int
    leaf_hash: bytes
    unread: int
    fault: str | None
    subject_id: str | None
    principal_id: bytes | None
    event_type: str | None
    event_time: int | None
    origin: str | None
    payload: bytes | None


class PairRow(NamedTuple):
    """The signed bytes of a message and its receipt."""

    place: int
    msg: bytes
    receipt: bytes
    body_key: bytes | None


class SourceRow(NamedTuple):
    """The position of an imported event at its origin; ``place`` is its position here.

    ``complete_at`` is the position in the import stream at which its bundle is complete.
    """

    place: int
    stream_no: int
    complete_at: int
    hub_id: bytes
    stream: str
    seq: int
    hub_ts: int
    leaf_hash: bytes


def place(stream_no: int, seq: int) -> int:
    return stream_no << SEQ_BITS | seq


def seq_of(place: int) -> int:
    return place & (1 << SEQ_BITS) - 1


def create(generation: IndexGeneration, hub_id: bytes) -> None:
    """Create the empty tables, for the hub whose streams are followed."""
    with connected(generation, writable=True) as db, transaction(db):
        for statement in _SCHEMA.split(";\n"):
            db.execute(statement)
        for number in range(len(_MIGRATIONS)):
            _apply_migration(db, number)
        db.execute("INSERT INTO meta VALUES ('version', ?), ('hub_id', ?)", (VERSION, hub_id))


def migrate(db: sqlite3.Connection) -> None:
    """Migrate an index of an earlier release, each step in a transaction of its own.

    A step over a long history takes minutes; queries go on meanwhile by the keys that exist.
    """
    while (number := _applied(db)) < len(_MIGRATIONS):
        _log.info("the index is migrated: step %d of %d", number + 1, len(_MIGRATIONS))
        with transaction(db):
            _apply_migration(db, number)


def _apply_migration(db: sqlite3.Connection, number: int) -> None:
    db.execute(_MIGRATIONS[number])
    db.execute(f"PRAGMA user_version = {number + 1}")


def keys(db: sqlite3.Connection) -> frozenset[str]:
    """The names of the keys of events; an index that is being migrated lacks some."""
    rows = db.execute("SELECT name FROM sqlite_master WHERE type = 'index' AND tbl_name = 'events'")
    return frozenset(name for (name,) in rows)


def _applied(db: sqlite3.Connection) -> int:
    (count,) = db.execute("PRAGMA user_version").fetchone()
    return int(count)


def alarms(db: sqlite3.Connection) -> tuple[str, ...]:
    """The alarms as text, by position of the column: a reader may see an index that its writer has
    not migrated yet."""
    return tuple(row[2] for row in db.execute("SELECT * FROM alarms ORDER BY number"))


def connect(generation: IndexGeneration, *, writable: bool) -> sqlite3.Connection:
    path = generation.database
    with sqlite.errors_translated(path, BadIndex, REMEDY):
        if not writable:
            return sqlite.connect_read_only(path, pragmas=_CACHE, any_thread=True)
        return sqlite.connect(path, synchronous="NORMAL", pragmas=_WRITER, any_thread=True)


@contextmanager
def connected(generation: IndexGeneration, *, writable: bool) -> Iterator[sqlite3.Connection]:
    db = connect(generation, writable=writable)
    try:
        yield db
    except sqlite3.DatabaseError as error:
        raise BadIndex(f"{generation.database}: {error}; {REMEDY}") from error
    finally:
        db.close()


@contextmanager
def transaction(db: sqlite3.Connection) -> Iterator[None]:
    """Run a transaction; a full disk raises NoSpace."""
    try:
        with sqlite.transaction(db):
            yield
    except sqlite3.DatabaseError as error:
        if sqlite.is_full(error):
            raise NoSpace(f"no disk space for the index: {error}") from error
        raise BadIndex(f"the index: {error}; {REMEDY}") from error


def meta(db: sqlite3.Connection) -> dict[str, Any]:
    """Return the metadata, after verifying the version."""
    try:
        rows = dict(db.execute("SELECT key, value FROM meta").fetchall())
    except sqlite3.DatabaseError as error:
        raise BadIndex(f"expected an index: {error}; {REMEDY}") from error
    if rows.get("version") != VERSION:
        raise BadIndex(f"expected version {VERSION}, got {rows.get('version')}; {REMEDY}")
    if _applied(db) > len(_MIGRATIONS):
        raise BadIndex(
            f"expected schema {len(_MIGRATIONS)} or older, got {_applied(db)}: {LATER_RELEASE}"
        )
    return rows


def streams(db: sqlite3.Connection) -> list[IndexedStream]:
    return [
        IndexedStream(*row) for row in db.execute("SELECT * FROM streams ORDER BY hub_id, name")
    ]
