"""The index of a hub in SQLite: the place of each entry, and the cursor of each client.

All of it is derived from the log. One transaction covers one group of commits, so the index always
is that of a prefix of the log; at a seal it is synced, so recovery reads no sealed chunk.
``CommitCursors`` caches client cursors and rate buckets in bounded memory.
"""

from __future__ import annotations

import re
import sqlite3
from collections import OrderedDict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final, NamedTuple, TypeVar

from hub.storage.datadir import DataDir
from veen.captoken import TokenBucket
from veen.invariants import NEW_CLIENT, ClientCursor
from veen.log import layout
from veen.log.layout import RecorderName
from veen.system import sqlite
from veen.system.durable import NoSpace

SCHEMA_VERSION: Final = 6
_CACHE: Final = {"cache_size": -8192}
# Sorts are of a chunk at most, and a temporary file could fail on a full disk.
_WRITER: Final[Mapping[str, int | str]] = {
    **_CACHE,
    "wal_autocheckpoint": 4000,
    "temp_store": "MEMORY",
}
_FIRST_SCHEMA: Final = """
CREATE TABLE meta (key TEXT PRIMARY KEY, value BLOB) WITHOUT ROWID;
CREATE TABLE labels (
  label_no INTEGER PRIMARY KEY, label BLOB NOT NULL UNIQUE,
  stream_id BLOB, epoch INTEGER NOT NULL, first_ts INTEGER NOT NULL,
  head_seq INTEGER NOT NULL, head_ts INTEGER NOT NULL, chunk_start INTEGER NOT NULL,
  closed INTEGER NOT NULL DEFAULT 0);
CREATE TABLE entries (
  label_no INTEGER, seq INTEGER, chunk_start INTEGER, at INTEGER, hub_ts INTEGER,
  client_no INTEGER, client_seq INTEGER, leaf INTEGER, PRIMARY KEY (label_no, seq)) WITHOUT ROWID;
CREATE UNIQUE INDEX by_client ON entries (client_no, client_seq);
CREATE TABLE chunks (
  label_no INTEGER, start_seq INTEGER, end_seq INTEGER, size INTEGER, last_ts INTEGER,
  PRIMARY KEY (label_no, start_seq)) WITHOUT ROWID;
CREATE TABLE leaves (
  leaf INTEGER, label_no INTEGER, seq INTEGER, PRIMARY KEY (leaf, label_no, seq)) WITHOUT ROWID;
CREATE TABLE checkpoints (
  label_no INTEGER, upto_seq INTEGER, PRIMARY KEY (label_no, upto_seq)) WITHOUT ROWID;
CREATE TABLE clients (
  client_no INTEGER PRIMARY KEY, label_no INTEGER, client_id BLOB,
  client_seq INTEGER, prev_ack INTEGER, UNIQUE (label_no, client_id));
CREATE TABLE buckets (auth_ref BLOB PRIMARY KEY, tokens INTEGER, at INTEGER) WITHOUT ROWID;
CREATE TABLE tokens (
  auth_ref BLOB PRIMARY KEY, token BLOB, issued_at INTEGER, seq INTEGER) WITHOUT ROWID;
CREATE TABLE streams (stream_id BLOB PRIMARY KEY, name TEXT, record BLOB) WITHOUT ROWID;
"""
_CHANGES: Final[Mapping[int, str]] = {
    2: """
CREATE TABLE index_extents (
  label_no INTEGER PRIMARY KEY, lines INTEGER, size INTEGER, late_size INTEGER);
CREATE INDEX with_late_lines ON index_extents (label_no) WHERE late_size;
""",
    3: """
CREATE TABLE open_leaves (
  leaf INTEGER, label_no INTEGER, seq INTEGER, PRIMARY KEY (leaf, label_no, seq)) WITHOUT ROWID;
INSERT INTO open_leaves SELECT e.leaf, e.label_no, e.seq FROM labels l JOIN entries e
  ON e.label_no = l.label_no AND e.seq >= l.chunk_start;
""",
    4: """
CREATE INDEX by_stream ON labels (stream_id);
CREATE INDEX by_head ON labels (head_ts, label_no) WHERE head_seq > 0;
CREATE INDEX unwritten ON labels (label_no) WHERE head_seq = 0;
""",
    5: """
CREATE TABLE resume_points (
  label_no INTEGER PRIMARY KEY, seq INTEGER, size INTEGER, peaks BLOB, hashes BLOB, digest BLOB);
""",
    6: """
CREATE TABLE recorder_checkpoints (
  created_at INTEGER, id_start BLOB, PRIMARY KEY (created_at, id_start)) WITHOUT ROWID;
""",
}
"""What each version adds to the schema of the version before; nothing is ever altered."""
_REMEMBERED: Final = 65_536
KeyT = TypeVar("KeyT")
ValueT = TypeVar("ValueT")
ClientKey = tuple[int, bytes]


class LabelRow(NamedTuple):
    label_no: int
    label: bytes
    stream_id: bytes | None
    epoch: int
    first_ts: int
    head_seq: int
    head_ts: int
    chunk_start: int
    closed: int


class EntryRow(NamedTuple):
    label_no: int
    seq: int
    chunk_start: int
    at: int
    hub_ts: int
    client_no: int
    client_seq: int
    leaf: int


class ClientRow(NamedTuple):
    client_no: int
    cursor: ClientCursor


class TokenRow(NamedTuple):
    """A capability with its issue time and its stream_seq in the control log."""

    auth_ref: bytes
    token: bytes
    issued_at: int
    seq: int


class ChunkRow(NamedTuple):
    label_no: int
    start_seq: int
    end_seq: int
    size: int
    last_ts: int


class IndexExtent(NamedTuple):
    """The complete part of a checkpoint index: its lines, its bytes, and those of late lines."""

    lines: int
    size: int
    late_size: int


class ResumePoint(NamedTuple):
    """The state of a label after ``seq``, from which a start goes on; all of it is derived.

    ``size`` is that of the open chunk, ``peaks`` the nodes of the label's MMR and ``hashes`` those
    of the MMR over the entry hashes of the chunk. The digest covers the rest of the row.
    """

    seq: int
    size: int
    peaks: bytes
    hashes: bytes
    digest: bytes


NO_EXTENT: Final = IndexExtent(0, 0, 0)


def added_since(version: int) -> set[str]:
    """The tables and indexes that an index of an earlier version lacks."""
    if version < 1:
        return set()
    schemas = "".join(_CHANGES[later] for later in range(version + 1, SCHEMA_VERSION + 1))
    return set(re.findall(r"CREATE (?:TABLE|INDEX) ([a-z_]+)", schemas))


def leaf_key(leaf_hash: bytes) -> int:
    """The part of a leaf hash that is indexed; the log has the whole."""
    return int.from_bytes(leaf_hash[:8], "big", signed=True)


class Index:
    def __init__(self, path: Path, *, writable: bool) -> None:
        self._directory = path.parent
        self._db = (
            sqlite.connect(path, synchronous="NORMAL", pragmas=_WRITER, any_thread=True)
            if writable
            else sqlite.connect_read_only(path, pragmas=_CACHE, any_thread=True)
        )

    def create(self, hub_id: bytes) -> None:
        """Create the tables atomically."""
        with self.transaction():
            for schema in (_FIRST_SCHEMA, *_CHANGES.values()):
                self._execute(schema)
            self._db.execute("INSERT INTO meta VALUES ('version', ?)", (SCHEMA_VERSION,))
            self._db.execute("INSERT INTO meta VALUES ('hub_id', ?)", (hub_id,))

    def is_of(self, hub_id: bytes) -> bool:
        """Whether this is an index of the current schema for that hub."""
        return self._meta() == {"version": SCHEMA_VERSION, "hub_id": hub_id}

    def migrate(self, hub_id: bytes) -> None:
        """Bring an index of an earlier version of this hub to the current one, atomically."""
        meta = self._meta()
        version = int(meta.get("version", 0))
        if meta.get("hub_id") != hub_id or not 1 <= version < SCHEMA_VERSION:
            return
        with self.durable_transaction():
            for later in range(version + 1, SCHEMA_VERSION + 1):
                self._execute(_CHANGES[later])
            self._db.execute("UPDATE meta SET value = ? WHERE key = 'version'", (SCHEMA_VERSION,))

    def _meta(self) -> dict[str, Any]:
        try:
            return dict(self._db.execute("SELECT key, value FROM meta").fetchall())
        except sqlite3.DatabaseError:
            return {}

    def _execute(self, statements: str) -> None:
        for statement in statements.split(";\n"):
            self._db.execute(statement)

    @contextmanager
    def transaction(self) -> Iterator[None]:
        """Run an atomic transaction; a full disk raises NoSpace."""
        try:
            with sqlite.transaction(self._db):
                yield
        except sqlite3.OperationalError as error:
            if sqlite.is_full(error, self._directory):
                raise NoSpace(f"disk full: the index cannot be written: {error}") from error
            raise

    @contextmanager
    def durable_transaction(self) -> Iterator[None]:
        """Run a transaction that is durable, with all before it, when it ends."""
        self._db.execute("PRAGMA synchronous = FULL")
        try:
            with self.transaction():
                yield
        finally:
            self._db.execute("PRAGMA synchronous = NORMAL")

    def labels(self) -> list[LabelRow]:
        rows = self._db.execute("SELECT * FROM labels ORDER BY label_no").fetchall()
        return [LabelRow(*row) for row in rows]

    def label(self, label: bytes) -> LabelRow | None:
        row = self._db.execute("SELECT * FROM labels WHERE label = ?", (label,)).fetchone()
        return LabelRow(*row) if row else None

    def labels_of(self, stream_id: bytes) -> list[LabelRow]:
        rows = self._db.execute(
            "SELECT * FROM labels WHERE stream_id = ? ORDER BY label_no", (stream_id,)
        ).fetchall()
        return [LabelRow(*row) for row in rows]

    def latest_label(self) -> LabelRow | None:
        """The label with the latest entry, and of several the last one."""
        row = self._db.execute(
            "SELECT * FROM labels WHERE head_seq > 0 AND head_ts >= 0"
            " ORDER BY head_ts DESC, label_no DESC LIMIT 1"
        ).fetchone()
        return LabelRow(*row) if row else None

    def count_labels(self) -> int:
        """The number of labels with entries. Labels are numbered from 1 and never deleted."""
        (last,) = self._db.execute("SELECT max(label_no) FROM labels").fetchone()
        (unwritten,) = self._db.execute(
            "SELECT count(*) FROM labels INDEXED BY unwritten WHERE head_seq = 0"
        ).fetchone()
        return int(last or 0) - int(unwritten)

    def add_label(self, label: bytes, stream_id: bytes | None, epoch: int, now: int) -> int:
        cursor = self._db.execute(
            "INSERT INTO labels (label, stream_id, epoch, first_ts, head_seq, head_ts, chunk_start)"
            " VALUES (?, ?, ?, ?, 0, 0, 1)",
            (label, stream_id, epoch, now),
        )
        return int(cursor.lastrowid or 0)

    def move_head(self, label_no: int, seq: int, hub_ts: int) -> None:
        self._db.execute(
            "UPDATE labels SET head_seq = ?, head_ts = ? WHERE label_no = ?",
            (seq, hub_ts, label_no),
        )

    def name_label(self, label_no: int, stream_id: bytes) -> None:
        self._db.execute(
            "UPDATE labels SET stream_id = ? WHERE label_no = ?", (stream_id, label_no)
        )

    def close_label(self, label_no: int) -> None:
        self._db.execute("UPDATE labels SET closed = 1 WHERE label_no = ?", (label_no,))

    def add_entries(self, rows: Sequence[EntryRow]) -> None:
        """Add entries of an open chunk."""
        self._db.executemany("INSERT OR REPLACE INTO entries VALUES (?, ?, ?, ?, ?, ?, ?, ?)", rows)
        self._db.executemany(
            "INSERT OR IGNORE INTO open_leaves VALUES (?, ?, ?)",
            [(row.leaf, row.label_no, row.seq) for row in rows],
        )

    def entries(self, label_no: int, from_seq: int, to_seq: int) -> list[EntryRow]:
        rows = self._db.execute(
            "SELECT * FROM entries WHERE label_no = ? AND seq BETWEEN ? AND ? ORDER BY seq",
            (label_no, from_seq, to_seq),
        ).fetchall()
        return [EntryRow(*row) for row in rows]

    def seq_of(self, client_no: int, client_seq: int) -> int | None:
        row = self._db.execute(
            "SELECT seq FROM entries WHERE client_no = ? AND client_seq = ?",
            (client_no, client_seq),
        ).fetchone()
        return row[0] if row else None

    def hub_ts(self, label_no: int, seq: int) -> int:
        (hub_ts,) = self._db.execute(
            "SELECT hub_ts FROM entries WHERE label_no = ? AND seq = ?", (label_no, seq)
        ).fetchone()
        return int(hub_ts)

    def seal(self, chunk: ChunkRow) -> None:
        """Record a sealed chunk, and move its leaves, sorted, which is fast in bulk.

        Those of open chunks are apart, where a new one in any place changes few pages.
        """
        entries = (chunk.label_no, chunk.start_seq, chunk.end_seq)
        self._db.execute("INSERT OR REPLACE INTO chunks VALUES (?, ?, ?, ?, ?)", chunk)
        self._db.execute(
            "INSERT OR REPLACE INTO leaves SELECT leaf, label_no, seq FROM entries"
            " WHERE label_no = ? AND seq BETWEEN ? AND ? ORDER BY leaf",
            entries,
        )
        self._db.execute(
            "DELETE FROM open_leaves WHERE (leaf, label_no, seq) IN"
            " (SELECT leaf, label_no, seq FROM entries WHERE label_no = ? AND seq BETWEEN ? AND ?)",
            entries,
        )
        self._db.execute(
            "UPDATE labels SET chunk_start = ? WHERE label_no = ?",
            (chunk.end_seq + 1, chunk.label_no),
        )

    def chunk_of(self, label_no: int, seq: int) -> ChunkRow | None:
        """The sealed chunk that holds ``seq``, or None when it is in the open one."""
        row = self._db.execute(
            "SELECT * FROM chunks WHERE label_no = ? AND start_seq <= ?"
            " ORDER BY start_seq DESC LIMIT 1",
            (label_no, seq),
        ).fetchone()
        return ChunkRow(*row) if row and seq <= row[2] else None

    def chunks(self, label_no: int) -> list[ChunkRow]:
        rows = self._db.execute(
            "SELECT * FROM chunks WHERE label_no = ? ORDER BY start_seq", (label_no,)
        ).fetchall()
        return [ChunkRow(*row) for row in rows]

    def chunks_from(self, label_no: int, from_seq: int) -> Iterator[ChunkRow]:
        """The sealed chunks that begin at ``from_seq`` or later, read one by one."""
        rows = self._db.execute(
            "SELECT * FROM chunks WHERE label_no = ? AND start_seq >= ? ORDER BY start_seq",
            (label_no, from_seq),
        )
        return (ChunkRow(*row) for row in rows)

    def places_of(self, leaf_hash: bytes) -> list[tuple[bytes, int]]:
        """Every (label, seq) whose leaf may be this hash."""
        # One statement sees one state: a seal moves leaves from one table to the other.
        return self._db.execute(
            "SELECT label, seq FROM leaves JOIN labels USING (label_no) WHERE leaf = ?1 UNION ALL"
            " SELECT label, seq FROM open_leaves JOIN labels USING (label_no) WHERE leaf = ?1",
            (leaf_key(leaf_hash),),
        ).fetchall()

    def add_checkpoint(self, label_no: int, upto_seq: int) -> None:
        self._db.execute("INSERT OR IGNORE INTO checkpoints VALUES (?, ?)", (label_no, upto_seq))

    def index_extent(self, label_no: int) -> IndexExtent:
        row = self._db.execute(
            "SELECT lines, size, late_size FROM index_extents WHERE label_no = ?", (label_no,)
        ).fetchone()
        return IndexExtent(*row) if row else NO_EXTENT

    def put_index_extent(self, label_no: int, extent: IndexExtent) -> None:
        self._db.execute(
            "INSERT OR REPLACE INTO index_extents VALUES (?, ?, ?, ?)", (label_no, *extent)
        )

    def resume_point(self, label_no: int) -> ResumePoint | None:
        row = self._db.execute(
            "SELECT seq, size, peaks, hashes, digest FROM resume_points WHERE label_no = ?",
            (label_no,),
        ).fetchone()
        return ResumePoint(*row) if row else None

    def put_resume_point(self, label_no: int, point: ResumePoint) -> None:
        self._db.execute(
            "INSERT OR REPLACE INTO resume_points VALUES (?, ?, ?, ?, ?, ?)", (label_no, *point)
        )

    def recorder_checkpoints(self, after: int = -1, limit: int = -1) -> list[RecorderName]:
        """The recorder checkpoints that were created later, in order; a limit of -1 is none."""
        rows = self._db.execute(
            "SELECT created_at, id_start FROM recorder_checkpoints WHERE created_at > ?"
            " ORDER BY created_at, id_start LIMIT ?",
            (after, limit),
        ).fetchall()
        return [RecorderName(*row) for row in rows]

    def latest_recorder_checkpoint(self) -> RecorderName | None:
        row = self._db.execute(
            "SELECT created_at, id_start FROM recorder_checkpoints WHERE created_at >= 0"
            " ORDER BY created_at DESC, id_start DESC LIMIT 1"
        ).fetchone()
        return RecorderName(*row) if row else None

    def add_recorder_checkpoints(self, names: Iterable[RecorderName]) -> None:
        self._db.executemany("INSERT OR IGNORE INTO recorder_checkpoints VALUES (?, ?)", names)

    def remove_recorder_checkpoints(self, names: Iterable[RecorderName]) -> None:
        self._db.executemany(
            "DELETE FROM recorder_checkpoints WHERE created_at = ? AND id_start = ?", names
        )

    def labels_with_late_lines(self) -> list[tuple[int, bytes]]:
        return self._db.execute(
            "SELECT label_no, label FROM index_extents JOIN labels USING (label_no) WHERE late_size"
        ).fetchall()

    def has_checkpoint(self, label_no: int, upto_seq: int) -> bool:
        return self.checkpoints(label_no, upto_seq, 1) == [upto_seq]

    def all_checkpoints(self) -> Iterator[tuple[bytes, int]]:
        """(label, upto_seq) of every checkpoint of every label, in no order."""
        yield from self._db.execute(
            "SELECT label, upto_seq FROM checkpoints JOIN labels USING (label_no)"
        )

    def last_checkpoint(self, label_no: int) -> int | None:
        (upto_seq,) = self._db.execute(
            "SELECT max(upto_seq) FROM checkpoints WHERE label_no = ?", (label_no,)
        ).fetchone()
        return None if upto_seq is None else int(upto_seq)

    def checkpoints(self, label_no: int, from_seq: int, limit: int) -> list[int]:
        rows = self._db.execute(
            "SELECT upto_seq FROM checkpoints WHERE label_no = ? AND upto_seq >= ?"
            " ORDER BY upto_seq LIMIT ?",
            (label_no, from_seq, limit),
        ).fetchall()
        return [int(row[0]) for row in rows]

    def checkpoints_from(self, label_no: int, from_seq: int) -> Iterator[int]:
        rows = self._db.execute(
            "SELECT upto_seq FROM checkpoints WHERE label_no = ? AND upto_seq >= ?",
            (label_no, from_seq),
        )
        return (int(row[0]) for row in rows)

    def client(self, label_no: int, client_id: bytes) -> ClientRow | None:
        row = self._db.execute(
            "SELECT client_no, client_seq, prev_ack FROM clients"
            " WHERE label_no = ? AND client_id = ?",
            (label_no, client_id),
        ).fetchone()
        return ClientRow(row[0], ClientCursor(row[1], row[2])) if row else None

    def next_client_no(self) -> int:
        (last,) = self._db.execute("SELECT max(client_no) FROM clients").fetchone()
        return int(last or 0) + 1

    def put_clients(self, rows: Iterable[tuple[int, int, bytes, int, int]]) -> None:
        """Write rows (client_no, label_no, client_id, client_seq, prev_ack)."""
        self._db.executemany("INSERT OR REPLACE INTO clients VALUES (?, ?, ?, ?, ?)", rows)

    def bucket(self, auth_ref: bytes) -> TokenBucket | None:
        row = self._db.execute(
            "SELECT tokens, at FROM buckets WHERE auth_ref = ?", (auth_ref,)
        ).fetchone()
        return TokenBucket(*row) if row else None

    def put_buckets(self, rows: Iterable[tuple[bytes, int, int]]) -> None:
        self._db.executemany("INSERT OR REPLACE INTO buckets VALUES (?, ?, ?)", rows)

    def add_token(self, row: TokenRow) -> None:
        self._db.execute("INSERT OR IGNORE INTO tokens VALUES (?, ?, ?, ?)", row)

    def token(self, auth_ref: bytes) -> TokenRow | None:
        row = self._db.execute("SELECT * FROM tokens WHERE auth_ref = ?", (auth_ref,)).fetchone()
        return TokenRow(*row) if row else None

    def add_stream(self, stream_id: bytes, name: str, record: bytes) -> None:
        self._db.execute(
            "INSERT OR REPLACE INTO streams VALUES (?, ?, ?)", (stream_id, name, record)
        )

    def stream(self, stream_id: bytes) -> bytes | None:
        """The record of a stream."""
        row = self._db.execute(
            "SELECT record FROM streams WHERE stream_id = ?", (stream_id,)
        ).fetchone()
        return row[0] if row else None

    def streams(self) -> list[tuple[bytes, str, bytes]]:
        return self._db.execute(
            "SELECT stream_id, name, record FROM streams ORDER BY name"
        ).fetchall()

    def close(self) -> None:
        self._db.close()


def last_hub_ts(datadir: DataDir) -> int:
    """The latest hub time of a directory's entries and recorder checkpoints, or 0."""
    documents = map(layout.parse_recorder_checkpoint, datadir.recorder_names())
    made_at = max((document.created_at for document in documents if document), default=0)
    if not datadir.index.exists():
        return made_at
    index = Index(datadir.index, writable=False)
    try:
        latest = index.latest_label()
        return max(made_at, latest.head_ts if latest else 0)
    finally:
        index.close()


class CommitCursors:
    """The cursor of each (label, client) and the bucket of each capability, as of the last commit.

    The index holds them all; recently used ones are cached.
    """

    def __init__(self, index: Index) -> None:
        self._index = index
        self._clients: OrderedDict[ClientKey, ClientRow] = OrderedDict()
        self._buckets: OrderedDict[bytes, TokenBucket | None] = OrderedDict()
        self._next_client_no = index.next_client_no()

    def seq_of(self, label_no: int, client_id: bytes, client_seq: int) -> int | None:
        """The stream_seq of an earlier message of a client."""
        return self._index.seq_of(self.row(label_no, client_id).client_no, client_seq)

    def bucket(self, auth_ref: bytes) -> TokenBucket | None:
        if auth_ref not in self._buckets:
            _remember(self._buckets, auth_ref, self._index.bucket(auth_ref))
        return self._buckets[auth_ref]

    def store(
        self, clients: Mapping[ClientKey, ClientCursor], buckets: Mapping[bytes, TokenBucket]
    ) -> None:
        """Write cursors and buckets, inside a transaction of the index."""
        rows = []
        for (label_no, client_id), cursor in clients.items():
            client_no = self.row(label_no, client_id).client_no
            rows.append((client_no, label_no, client_id, cursor.client_seq, cursor.prev_ack))
            _remember(self._clients, (label_no, client_id), ClientRow(client_no, cursor))
        self._index.put_clients(rows)
        if buckets:
            self._index.put_buckets(
                [(auth_ref, bucket.tokens, bucket.at) for auth_ref, bucket in buckets.items()]
            )
        for auth_ref, bucket in buckets.items():
            _remember(self._buckets, auth_ref, bucket)

    def forget(self) -> None:
        """Clear the cache after a transaction that was rolled back."""
        self._clients.clear()
        self._buckets.clear()

    def row(self, label_no: int, client_id: bytes) -> ClientRow:
        """The cursor of a client in a label and the number of the pair, which may be new."""
        key = (label_no, client_id)
        row = self._clients.get(key)
        if row is not None:
            return row
        row = self._index.client(label_no, client_id)
        if row is None:
            row = ClientRow(self._next_client_no, NEW_CLIENT)
            self._next_client_no += 1
        _remember(self._clients, key, row)
        return row


def _remember(cache: OrderedDict[KeyT, ValueT], key: KeyT, value: ValueT) -> None:
    cache[key] = value
    cache.move_to_end(key)
    if len(cache) > _REMEMBERED:
        cache.popitem(last=False)
