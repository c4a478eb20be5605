"""The export history, folded from the audit log of the zone: cursors, the ledger, and begun exports
(AGB0 4.6).

The history is a database beside the exporter, derived from the log: it is read forward from the
last entry that was folded, and only if the hub's log still has the root that it had there. If the
database is lost, damaged, of another version or of another identity, it is made again from the
whole log. Its queries are keyed, so that an export costs what is new.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterable, Iterator
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, NamedTuple, Self

from bridge.audit_log import (
    ExportBegin,
    ExportFailed,
    ExportHeartbeat,
    ExportSuccess,
    RecordedEntry,
    read_log,
)
from bridge.carrier.format import TAIL, CarrierLedger, CarrierLedgerEntry
from bridge.exporter.build import Cursor, RolledBack
from bridge.stream_map import ONLINE_LOG
from veen.client.client import Client
from veen.errors import Malformed, Untrusted, VeenError
from veen.system import sqlite
from veen.system.sqlite import Connection, Schema

SCHEMA: Final = Schema("""
CREATE TABLE head (
  bridge_id BLOB PRIMARY KEY,
  last_seq INTEGER NOT NULL,
  root BLOB NOT NULL,
  last_n INTEGER NOT NULL,
  longest INTEGER NOT NULL
) STRICT;
CREATE TABLE entries (
  n INTEGER PRIMARY KEY,
  entry BLOB NOT NULL,
  is_done INTEGER NOT NULL
) STRICT;
CREATE INDEX begun ON entries (n) WHERE NOT is_done;
CREATE TABLE successes (
  seq INTEGER PRIMARY KEY,
  stream TEXT NOT NULL,
  to_seq INTEGER NOT NULL,
  bridge_id BLOB NOT NULL,
  bundle_id BLOB NOT NULL,
  medium TEXT NOT NULL,
  document TEXT NOT NULL
) STRICT;
CREATE INDEX ends ON successes (stream, to_seq);
CREATE INDEX deliveries ON successes (bundle_id, bridge_id, medium);
CREATE TABLE cursors (
  stream TEXT PRIMARY KEY,
  to_seq INTEGER NOT NULL,
  root BLOB NOT NULL
) STRICT;
CREATE TABLE news (seq INTEGER PRIMARY KEY) STRICT;
""")
"""``last_n`` is the last entry of the ledger, ``longest`` the largest difference between the ends
of an exported range."""
_EARLIER: Final = ("log.jsonl", "log.head")
"""The cache of earlier releases."""
_TABLES: Final = ("head", "entries", "successes", "cursors", "news")
_NEXT_SEQ: Final = "SELECT coalesce(max(seq), 0) + 1 FROM successes"


class HistoryDamaged(VeenError):
    """The database contradicts itself."""


class Head(NamedTuple):
    """The last entry of the log that was folded, and the root of the log there."""

    last_seq: int
    root: bytes


@dataclass(frozen=True, slots=True)
class ExportedRoots:
    """The roots of a stream at the end of each exported bundle, which the next must continue."""

    history: ExportHistory
    stream: str

    def last_seq(self) -> int:
        return self.history.cursor(self.stream).seq

    def root_at(self, seq: int) -> bytes | None:
        return self.history.root_at(self.stream, seq)


class ExportHistory:
    """The exports so far. ``bridge_id`` is the exporter whose ledger this is."""

    def __init__(self, db: Connection, name: str, bridge_id: bytes) -> None:
        self._db = db
        self._name = name
        self.bridge_id = bridge_id

    @classmethod
    @contextmanager
    def opened(
        cls, path: Path, bridge_id: bytes, reader: Client, author: bytes | None = None
    ) -> Iterator[Self]:
        """The history up to the end of the hub's log, with the database at ``path``."""
        for name in _EARLIER:
            path.with_name(name).unlink(missing_ok=True)
        remedy = "it is derived: remove it, and it is made again from the hub's log"
        with (
            sqlite.errors_translated(path, HistoryDamaged, remedy),
            closing(_open(path)) as db,
        ):
            result = cls(db, str(path), bridge_id)
            result.update(reader, author)
            yield result

    @classmethod
    @contextmanager
    def folded(cls, log: Iterable[RecordedEntry], bridge_id: bytes) -> Iterator[Self]:
        """The history of a bridge from the complete audit log, without a file that stays."""
        with closing(sqlite.connect_temporary()) as db:
            _create(db)
            result = cls(db, "the history", bridge_id)
            result.fold(log)
            yield result

    def update(self, reader: Client, author: bytes | None) -> None:
        """Fold the entries of the log that are new, and verify that it continues the old ones."""
        if not self.is_sound():
            self._reset()
        head = self._head()
        if head.last_seq and _root_at(reader, head.last_seq) != head.root:
            raise RolledBack(
                f"{ONLINE_LOG} has another root at {head.last_seq} than the one that was read "
                "before: the hub signed two histories (equivocation); stop it, and compare it "
                "with its archive"
            )
        with sqlite.transaction(self._db):
            last = self.fold(read_log(reader, ONLINE_LOG, head.last_seq + 1, author=author))
            if last > head.last_seq:
                self._set_head(last, _root_at(reader, last))

    @contextmanager
    def uncommitted(self) -> Iterator[None]:
        """Add entries of this run, and discard them at its end: the log has them then."""
        self._db.execute("BEGIN")
        try:
            yield
        finally:
            with suppress(sqlite3.Error):
                self._db.execute("ROLLBACK")

    def cursor(self, stream: str) -> Cursor:
        """The last exported event of a stream; of several bundles that end there, the first."""
        row = self._one("SELECT to_seq, root FROM cursors WHERE stream = ?", stream)
        return Cursor(row[0], row[1]) if row else Cursor(0, None)

    def roots(self, stream: str) -> ExportedRoots:
        return ExportedRoots(self, stream)

    def root_at(self, stream: str, seq: int) -> bytes | None:
        query = """
            SELECT document FROM successes WHERE stream = ? AND to_seq = ? ORDER BY seq DESC LIMIT 1
        """
        row = self._one(query, stream, seq)
        return _success(row[0]).root if row else None

    def has_news(self, after: int, upto: int) -> bool:
        """Whether the log has entries there about anything but the export of the log itself."""
        query = "SELECT 1 FROM news WHERE seq > ? AND seq <= ? LIMIT 1"
        return self._one(query, after, upto) is not None

    @property
    def last_n(self) -> int:
        """The number of the last entry of the ledger; 0 if there is none."""
        return int(self._value("SELECT coalesce(max(n), 0) FROM entries"))

    def entry(self, n: int) -> CarrierLedgerEntry:
        row = self._one("SELECT entry FROM entries WHERE n = ?", n)
        if row is None:
            raise HistoryDamaged(f"{self._name}: expected entry {n} of the ledger, got none")
        return CarrierLedgerEntry.decode(row[0])

    def ledger(self, upto: int | None = None) -> CarrierLedger:
        """The tail of the ledger up to an entry, or of all of it, as a carrier contains it."""
        query = "SELECT entry FROM entries WHERE n <= ? ORDER BY n DESC LIMIT ?"
        rows = self._db.execute(query, (self.last_n if upto is None else upto, TAIL)).fetchall()
        tail = tuple(CarrierLedgerEntry.decode(raw) for (raw,) in reversed(rows))
        return CarrierLedger(bridge_id=self.bridge_id, tail=tail)

    def begun(self) -> tuple[CarrierLedgerEntry, ...]:
        """Entries that were begun and are not known to be on a medium."""
        query = "SELECT entry FROM entries WHERE NOT is_done ORDER BY n"
        return tuple(CarrierLedgerEntry.decode(raw) for (raw,) in self._db.execute(query))

    def done_total(self) -> int:
        """How many entries are known to be on a medium."""
        return self.last_n - int(self._value("SELECT count(*) FROM entries WHERE NOT is_done"))

    def is_recorded(self, event: ExportSuccess) -> bool:
        """Whether this bridge already recorded the bundle on that medium. The carrier of another
        bridge is a different carrier, with another ledger and signature.
        """
        query = "SELECT 1 FROM successes WHERE bundle_id = ? AND bridge_id = ? AND medium = ?"
        return self._one(query, event.bundle_id, event.bridge_id, event.medium) is not None

    def overlapping(self, stream: str, first: int, last: int) -> tuple[ExportSuccess, ...]:
        """Every bundle with an event of a range, once, in order."""
        query = """
            SELECT document FROM successes
            WHERE stream = ? AND to_seq BETWEEN ? AND ? ORDER BY seq
        """
        end = last + int(self._value("SELECT coalesce(max(longest), 0) FROM head"))
        successes = (_success(raw) for (raw,) in self._db.execute(query, (stream, first, end)))
        by_bundle = {item.bundle_id: item for item in successes if item.from_seq <= last}
        return tuple(sorted(by_bundle.values(), key=lambda item: item.from_seq))

    def add_entry(self, entry: CarrierLedgerEntry) -> None:
        if entry.n != self.last_n + 1:
            raise HistoryDamaged(f"{self._name}: expected entry {self.last_n + 1}, got {entry.n}")
        self._db.execute("INSERT INTO entries VALUES (?, ?, 0)", (entry.n, entry.encode()))

    def add_success(self, event: ExportSuccess) -> None:
        """Add a success of this run, which has no sequence number in the log yet."""
        self._add_success(int(self._value(_NEXT_SEQ)), event)
        self.add_done(event.n)

    def add_done(self, n: int) -> None:
        self._db.execute("UPDATE entries SET is_done = 1 WHERE n = ?", (n,))

    def fold(self, log: Iterable[RecordedEntry]) -> int:
        """Fold entries of the log; the sequence number of the last one, or 0."""
        self._db.execute(
            "INSERT INTO head VALUES (?, 0, x'', 0, 0) ON CONFLICT DO NOTHING", (self.bridge_id,)
        )
        last = 0
        for last, _, event in log:
            if isinstance(event, ExportBegin) and event.bridge_id == self.bridge_id:
                self.add_entry(self._following(event, last))
            if isinstance(event, ExportSuccess):
                self._add_success(last, event)
            if (
                isinstance(event, ExportSuccess | ExportHeartbeat)
                and event.bridge_id == self.bridge_id
            ):
                self.add_done(event.n)
            if not _is_own_carrying(event):
                self._db.execute("INSERT INTO news VALUES (?)", (last,))
        self._db.execute("UPDATE head SET last_n = ?", (self.last_n,))
        return last

    def _following(self, event: ExportBegin, seq: int) -> CarrierLedgerEntry:
        expected = self.last_n + 1
        if event.n != expected:
            raise Untrusted(
                f"{ONLINE_LOG}, stream_seq {seq}: expected ledger entry {expected}, got "
                f"{event.n}: two exporters have used one identity; stop both, and give the bridge "
                "a new identity"
            )
        return event.ledger_entry(self.entry(expected - 1) if expected > 1 else None)

    def _add_success(self, seq: int, event: ExportSuccess) -> None:
        document = json.dumps(event.document(), sort_keys=True)
        row = (seq, event.stream, event.to_seq, event.bridge_id, event.bundle_id, event.medium)
        self._db.execute("INSERT INTO successes VALUES (?, ?, ?, ?, ?, ?, ?)", (*row, document))
        self._db.execute(
            """
            INSERT INTO cursors VALUES (?, ?, ?) ON CONFLICT (stream) DO UPDATE
            SET to_seq = excluded.to_seq, root = excluded.root WHERE excluded.to_seq > to_seq
            """,
            (event.stream, event.to_seq, event.root),
        )
        self._db.execute(
            "UPDATE head SET longest = max(longest, ?)", (event.to_seq - event.from_seq,)
        )

    def _head(self) -> Head:
        row = self._one("SELECT last_seq, root FROM head")
        return Head(row[0], row[1]) if row else Head(0, b"")

    def _set_head(self, last_seq: int, root: bytes) -> None:
        self._db.execute("UPDATE head SET last_seq = ?, root = ?", (last_seq, root))

    def is_sound(self) -> bool:
        """Whether the tables are of this bridge and agree about the ends of the history."""
        try:
            heads = self._db.execute("SELECT bridge_id, last_n FROM head").fetchall()
            self.ledger()
            is_whole = heads == [(self.bridge_id, self.last_n)]
            return is_whole and all(map(self._cursor_agrees, self._streams()))
        except (sqlite3.DatabaseError, ValueError, Malformed):
            return False

    def _streams(self) -> list[str]:
        """The exported streams, by both tables that have them; one keyed read for each."""
        query = """
            WITH RECURSIVE names (stream) AS (
              SELECT min(stream) FROM successes
              UNION ALL
              SELECT (SELECT min(stream) FROM successes WHERE stream > names.stream)
              FROM names WHERE names.stream IS NOT NULL)
            SELECT stream FROM names WHERE stream IS NOT NULL UNION SELECT stream FROM cursors
        """
        return [name for (name,) in self._db.execute(query)]

    def _cursor_agrees(self, stream: str) -> bool:
        query = """
            SELECT to_seq, document FROM successes WHERE stream = ?
            ORDER BY to_seq DESC, seq LIMIT 1
        """
        row = self._one(query, stream)
        if row is None:
            return False
        event = _success(row[1])
        is_same = (event.stream, event.to_seq) == (stream, row[0])
        return is_same and self.cursor(stream) == Cursor(event.to_seq, event.root)

    def _reset(self) -> None:
        with sqlite.transaction(self._db):
            for table in _TABLES:
                self._db.execute(f"DELETE FROM {table}")  # noqa: S608 - a name from above

    def _one(self, query: str, *values: object) -> Any:
        return self._db.execute(query, values).fetchone()

    def _value(self, query: str) -> int:
        return int(self._one(query)[0])


def _open(path: Path) -> Connection:
    """The database of a history; one that cannot be read as such is replaced."""
    try:
        return _opened(path)
    except (sqlite3.DatabaseError, sqlite.NewerVersion) as error:
        if isinstance(error, sqlite3.OperationalError):
            raise
    for suffix in ("", "-wal", "-shm"):
        path.with_name(path.name + suffix).unlink(missing_ok=True)
    return _opened(path)


def _opened(path: Path) -> Connection:
    sqlite.create_private(path)
    db = sqlite.connect(path, synchronous="NORMAL")
    try:
        sqlite.migrate(db, path, SCHEMA)
    except BaseException:
        db.close()
        raise
    return db


def _create(db: Connection) -> None:
    for statement in sqlite.statements(SCHEMA.first):
        db.execute(statement)


def _success(document: str) -> ExportSuccess:
    return ExportSuccess.read(json.loads(document))


def _root_at(reader: Client, seq: int) -> bytes:
    """The root of the log after an entry, as signed and proven by the hub."""
    root = b""
    for pair in reader.read(ONLINE_LOG, from_seq=seq, to_seq=seq):
        root = pair.receipt.mmr_root
    if not root:
        raise RolledBack(
            f"{ONLINE_LOG} ends before {seq}, which was read before: the hub was restored to an "
            "older state; compare it with its archive"
        )
    return root


def _is_own_carrying(event: object) -> bool:
    """Whether an entry is only about the export of the log itself, which need not be exported."""
    if isinstance(event, ExportBegin | ExportSuccess):
        return event.stream in (ONLINE_LOG, "")
    if isinstance(event, ExportFailed):
        return event.stream == ONLINE_LOG
    return isinstance(event, ExportHeartbeat)
