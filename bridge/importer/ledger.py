"""The import ledger: an SQLite database of imported events and pending actions.

A change is durable when the call returns. Each event of a stream is in one run at most, which
keeps it from being imported twice. The ledger can be rebuilt from the import streams and the audit
log of this zone.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import astuple, dataclass, fields, replace
from pathlib import Path
from typing import Any, Final, NamedTuple, Self

from bridge.audit_log import Equivocation
from bridge.carrier.format import CarrierLedger, CarrierLedgerEntry
from bridge.importer.outcome import ImportState
from veen.errors import VeenError
from veen.system import sqlite

ENTRY_BYTES: Final = 64
"""The size of an entry: the leaf hash of an event, and the root of the source stream at it."""

_TABLES: Final = """
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
SCHEMA: Final = sqlite.Schema(_TABLES)
REMEDY: Final = "make it again with veen bridge import --rebuild-ledger"
_UNCOVERED: Final = "uncovered/"
"""The prefix of the name of a bundle that no checkpoint covers yet."""
_FIELDS: Final = {"kept_out": "excluded", "told": "detail"}
"""Columns whose field has a different name."""


class SourceStream(NamedTuple):
    """A stream of a source hub."""

    source_hub_id: bytes
    name: str


class SeqSpan(NamedTuple):
    """A range of a stream, both ends included."""

    first: int
    last: int

    @property
    def size(self) -> int:
        return self.last - self.first + 1


class BundleRun(NamedTuple):
    """Held or planned events of one bundle; ``entries`` has ENTRY_BYTES for each."""

    span: SeqSpan
    bundle_id: bytes
    entries: bytes

    def leaf(self, seq: int) -> bytes:
        at = (seq - self.span.first) * ENTRY_BYTES
        return self.entries[at : at + 32]

    def root(self, seq: int) -> bytes:
        at = (seq - self.span.first) * ENTRY_BYTES
        return self.entries[at + 32 : at + ENTRY_BYTES]


@dataclass(frozen=True, slots=True, kw_only=True)
class BundleRow:
    """A verified bundle and its state."""

    bundle_id: bytes
    state: str
    source_hub_id: bytes
    stream: str
    target: str
    from_seq: int
    to_seq: int
    checkpoint_id: bytes
    checkpoint_at: int
    sha256: bytes
    """The hash of the bundle's bytes."""
    detail: str = ""

    @property
    def count(self) -> int:
        return self.to_seq - self.from_seq + 1


@dataclass(frozen=True, slots=True, kw_only=True)
class ImportPlan:
    """What an import is about to write, or has written if ``done``.

    ``base_client_seq`` and ``base_seq`` are the positions in the target stream before it.
    """

    bundle_id: bytes
    plan_id: bytes
    source: str
    inbox: str
    import_time: int
    written: int
    duplicates: int
    excluded: str
    """Exclusions, as JSON."""
    base_client_seq: int
    base_seq: int
    accepted_gap: str | None
    verification: str
    done: bool = False
    target_to: int = 0
    target_root: bytes = b""


@dataclass(frozen=True, slots=True, kw_only=True)
class PendingActions:
    """The actions that complete an outcome, in this order; each is idempotent.

    ``bodies`` are audit entries. Paths are inside the import directory.
    """

    token: bytes
    bodies: tuple[bytes, ...] = ()
    writes: tuple[tuple[str, str], ...] = ()
    moves: tuple[tuple[str, str], ...] = ()
    removals: tuple[str, ...] = ()

    def document(self) -> str:
        """Everything except the token, as JSON."""
        return json.dumps(
            {
                "bodies": [body.hex() for body in self.bodies],
                "writes": self.writes,
                "moves": self.moves,
                "removals": self.removals,
            }
        )

    @classmethod
    def read(cls, token: bytes, document: str) -> PendingActions:
        values = json.loads(document)
        return cls(
            token=token,
            bodies=tuple(bytes.fromhex(body) for body in values["bodies"]),
            writes=tuple((path, text) for path, text in values["writes"]),
            moves=tuple((old, new) for old, new in values["moves"]),
            removals=tuple(values["removals"]),
        )


class Uncovered(NamedTuple):
    """An imported bundle that no checkpoint is known to cover; ``target_to`` is the place of its
    last event, None if its plan has it.
    """

    bundle_id: bytes
    target_to: int | None


class LedgerContents(NamedTuple):
    """The contents of a rebuilt ledger."""

    rows: Sequence[BundleRow]
    runs: Sequence[tuple[SourceStream, BundleRun]]
    frozen: Sequence[tuple[SourceStream, Equivocation]]
    uncovered: Sequence[Uncovered]


class BadLedger(VeenError):
    """A ledger that cannot be used; nothing is imported until it is rebuilt."""


class LedgerFile:
    """The SQLite database of the ledger; changes within a block are atomic and durable."""

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
        sqlite.create_private(self._path)
        with self._asked():
            db = sqlite.connect(self._path, synchronous="FULL")
            sqlite.migrate(db, self._path, SCHEMA)
        db.row_factory = sqlite3.Row
        return db

    def _asked(self) -> AbstractContextManager[None]:
        return sqlite.errors_translated(self._path, BadLedger, REMEDY)

    @contextmanager
    def _changing(self) -> Iterator[None]:
        with self._asked(), sqlite.transaction(self._db):
            yield


class ImportLedger(LedgerFile):
    def bundle(self, bundle_id: bytes) -> BundleRow | None:
        rows = self._all("SELECT * FROM bundles WHERE bundle_id = ?", bundle_id)
        return BundleRow(**_fields(rows[0])) if rows else None

    def bundles(self, *states: ImportState) -> list[BundleRow]:
        """Bundles in any of the states, or all, by stream and place."""
        marks = ", ".join("?" * len(states))
        those = f"WHERE state IN ({marks})" if states else ""
        order = "ORDER BY source_hub_id, stream, from_seq, to_seq, bundle_id"
        query = f"SELECT * FROM bundles {those} {order}"  # noqa: S608 - marks alone
        return [
            BundleRow(**_fields(row))
            for row in self._all(query, *(state.value for state in states))
        ]

    def plan(self, bundle_id: bytes) -> ImportPlan | None:
        rows = self._all("SELECT * FROM plans WHERE bundle_id = ?", bundle_id)
        return _plan(rows[0]) if rows else None

    def knows_plan(self, plan_id: bytes) -> bool:
        return bool(self._all("SELECT 1 FROM plans WHERE plan_id = ?", plan_id))

    def open_plans(self) -> list[ImportPlan]:
        return [_plan(row) for row in self._all("SELECT * FROM plans WHERE NOT done")]

    def closings(self) -> list[PendingActions]:
        rows = self._all("SELECT document, token FROM closings ORDER BY n")
        return [PendingActions.read(row["token"], row["document"]) for row in rows]

    def runs(self, stream: SourceStream, within: SeqSpan) -> list[BundleRun]:
        """Held runs that overlap a range, in order, not cut."""
        query = """
            SELECT from_seq, to_seq, bundle_id, entries FROM runs WHERE source_hub_id = ?
            AND stream = ? AND to_seq >= ? AND from_seq <= ? AND is_held ORDER BY from_seq
        """
        rows = self._all(query, *stream, *within)
        return [
            BundleRun(SeqSpan(row["from_seq"], row["to_seq"]), row["bundle_id"], row["entries"])
            for row in rows
        ]

    def planned(self, bundle_id: bytes) -> list[SeqSpan]:
        query = "SELECT from_seq, to_seq FROM runs WHERE bundle_id = ? ORDER BY from_seq"
        return [SeqSpan(row["from_seq"], row["to_seq"]) for row in self._all(query, bundle_id)]

    def spans(self, stream: SourceStream) -> list[SeqSpan]:
        """The held ranges of a stream, in order, without their entries."""
        query = """
            SELECT from_seq, to_seq FROM runs WHERE source_hub_id = ? AND stream = ? AND is_held
            ORDER BY from_seq
        """
        return [SeqSpan(row["from_seq"], row["to_seq"]) for row in self._all(query, *stream)]

    def holds(self, stream: SourceStream, seq: int) -> bool:
        """Whether an event is held."""
        query = """
            SELECT to_seq FROM runs WHERE source_hub_id = ? AND stream = ? AND from_seq <= ?
            AND is_held ORDER BY from_seq DESC LIMIT 1
        """
        rows = self._all(query, *stream, seq)
        return bool(rows) and rows[0]["to_seq"] >= seq

    def frozen_at(self, stream: SourceStream) -> int | None:
        query = "SELECT seq FROM frozen WHERE source_hub_id = ? AND stream = ?"
        rows = self._all(query, *stream)
        return int(rows[0]["seq"]) if rows else None

    def frozen_by(self, stream: SourceStream) -> bytes | None:
        """The bundle that first showed the other history."""
        query = "SELECT bundle_id FROM frozen WHERE source_hub_id = ? AND stream = ?"
        rows = self._all(query, *stream)
        return rows[0]["bundle_id"] if rows else None

    def carrier_entries(self) -> list[tuple[bytes, CarrierLedgerEntry]]:
        """The ledger entries of all imported carriers, each with its bridge_id.

        If a bridge has signed two entries of the same number, both are included.
        """
        rows = self._all("SELECT bridge_id, entry FROM carriers ORDER BY bridge_id, n, entry")
        return [(row["bridge_id"], CarrierLedgerEntry.decode(row["entry"])) for row in rows]

    def reported(self, name: str) -> bytes | None:
        rows = self._all("SELECT value FROM told WHERE name = ?", name)
        return rows[0]["value"] if rows else None

    def knows_heartbeat(self, ledger: CarrierLedger) -> bool:
        """Whether this heartbeat was imported before; its entry alone is also in later carriers."""
        return self.reported(_heartbeat(ledger)) is not None

    def note(self, row: BundleRow) -> None:
        with self._changing():
            self._put(row)

    def note_carrier(self, ledger: CarrierLedger) -> None:
        rows = [(ledger.bridge_id, entry.n, entry.encode()) for entry in ledger.tail]
        with self._changing():
            self._db.executemany("INSERT OR IGNORE INTO carriers VALUES (?, ?, ?)", rows)

    def begin(self, row: BundleRow, plan: ImportPlan, runs: Sequence[BundleRun]) -> None:
        """Store a plan before any of it is written, and reserve its events."""
        stream = SourceStream(row.source_hub_id, row.stream)
        with self._changing():
            self._put(row)
            self._insert(plan)
            self._db.executemany(
                "INSERT INTO runs VALUES (?, ?, ?, ?, ?, 0, ?)",
                [(*stream, *run.span, run.bundle_id, run.entries) for run in runs],
            )

    def finish(
        self, row: BundleRow, plan: ImportPlan, pending: PendingActions, *, to_cover: bool
    ) -> None:
        """Mark a plan as done: all its events are in the hub's log, and a checkpoint may be due."""
        with self._changing():
            if to_cover:
                name = _UNCOVERED + row.bundle_id.hex()
                self._db.execute("INSERT OR REPLACE INTO told VALUES (?, ?)", (name, b""))
            self._put(row)
            self._insert(replace(plan, done=True))
            self._db.execute("UPDATE runs SET is_held = 1 WHERE bundle_id = ?", (row.bundle_id,))
            self._add(pending)

    def conclude(
        self,
        row: BundleRow | None,
        pending: PendingActions,
        detail: tuple[str, bytes] | None = None,
        abandoned: ImportPlan | None = None,
    ) -> None:
        """Store an outcome together with its pending actions.

        ``abandoned`` is a plan of which nothing was written, and nothing will be.
        """
        with self._changing():
            if abandoned is not None:
                mine = (abandoned.bundle_id,)
                self._db.execute("DELETE FROM plans WHERE bundle_id = ?", mine)
                self._db.execute("DELETE FROM runs WHERE bundle_id = ? AND NOT is_held", mine)
            if row is not None:
                self._put(row)
            if detail is not None:
                self._db.execute("INSERT OR REPLACE INTO told VALUES (?, ?)", detail)
            self._add(pending)

    def conclude_heartbeat(self, ledger: CarrierLedger, pending: PendingActions) -> None:
        self.conclude(None, pending, detail=(_heartbeat(ledger), b""))

    def note_heartbeat(self, ledger: CarrierLedger) -> None:
        self.note_text((_heartbeat(ledger), b""))

    def note_text(self, value: tuple[str, bytes]) -> None:
        with self._changing():
            self._db.execute("INSERT OR REPLACE INTO told VALUES (?, ?)", value)

    def freeze(self, row: BundleRow | None, fork: Equivocation, pending: PendingActions) -> None:
        values = (fork.source_hub_id, fork.stream, fork.seq, fork.bundle_id or b"")
        with self._changing():
            if row is not None:
                self._put(row)
            self._db.execute("INSERT OR IGNORE INTO frozen VALUES (?, ?, ?, ?)", values)
            self._add(pending)

    def unfreeze(self, stream: SourceStream, pending: PendingActions) -> None:
        with self._changing():
            self._db.execute("DELETE FROM frozen WHERE source_hub_id = ? AND stream = ?", stream)
            self._add(pending)

    def uncovered(self) -> list[Uncovered]:
        """Imported bundles that no checkpoint is known to cover."""
        query = "SELECT name, value FROM told WHERE name GLOB ? ORDER BY name"
        uncovered = []
        for row in self._all(query, f"{_UNCOVERED}*"):
            target_to = int(row["value"]) if row["value"] else None
            bundle_id = bytes.fromhex(row["name"].removeprefix(_UNCOVERED))
            uncovered.append(Uncovered(bundle_id, target_to))
        return uncovered

    def cover(self, bundle_ids: Sequence[bytes], pending: PendingActions) -> None:
        names = [(_UNCOVERED + bundle_id.hex(),) for bundle_id in bundle_ids]
        with self._changing():
            self._db.executemany("DELETE FROM told WHERE name = ?", names)
            self._add(pending)

    def closed(self, pending: PendingActions) -> None:
        with self._changing():
            self._db.execute("DELETE FROM closings WHERE token = ?", (pending.token,))

    def restore(
        self, contents: LedgerContents, pending: PendingActions, *detail: tuple[str, bytes]
    ) -> None:
        """Fill an empty ledger from the logs."""
        frozen = [(*stream, fork.seq, fork.bundle_id or b"") for stream, fork in contents.frozen]
        runs = [(*stream, *run.span, run.bundle_id, run.entries) for stream, run in contents.runs]
        uncovered = [
            (_UNCOVERED + bundle_id.hex(), str(last).encode())
            for bundle_id, last in contents.uncovered
        ]
        with self._changing():
            for row in contents.rows:
                self._put(row)
            self._db.executemany("INSERT INTO runs VALUES (?, ?, ?, ?, ?, 1, ?)", runs)
            self._db.executemany("INSERT OR IGNORE INTO frozen VALUES (?, ?, ?, ?)", frozen)
            self._db.executemany("INSERT OR REPLACE INTO told VALUES (?, ?)", [*detail, *uncovered])
            self._add(pending)

    def _put(self, row: BundleRow) -> None:
        self._db.execute(
            "INSERT OR REPLACE INTO bundles VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)", astuple(row)
        )

    def _insert(self, plan: ImportPlan) -> None:
        marks = ", ".join("?" * len(fields(plan)))
        self._db.execute(f"INSERT OR REPLACE INTO plans VALUES ({marks})", astuple(plan))  # noqa: S608

    def _add(self, pending: PendingActions) -> None:
        values = (pending.token, pending.document())
        self._db.execute("INSERT INTO closings (token, document) VALUES (?, ?)", values)


def _heartbeat(ledger: CarrierLedger) -> str:
    return f"heartbeat/{ledger.bridge_id.hex()}/{ledger.tail[-1].entry_hash().hex()}"


def _plan(row: dict[str, Any]) -> ImportPlan:
    return ImportPlan(**(_fields(row) | {"done": bool(row["done"])}))


def _fields(row: dict[str, Any]) -> dict[str, Any]:
    return {_FIELDS.get(column, column): value for column, value in row.items()}
