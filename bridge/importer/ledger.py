"""The import ledger: an SQLite database of imported events and pending actions.

A change is durable when the call returns. Each event of a stream is in one run at most, which
keeps it from being imported twice. The ledger can be rebuilt from the import streams and the audit
log of this zone.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import astuple, dataclass, fields, replace
from typing import Any, Final, NamedTuple

from bridge.audit_log import Equivocation
from bridge.carrier.format import CarrierLedger, CarrierLedgerEntry
from bridge.importer.ledger_file import LedgerFile
from bridge.importer.outcome import ImportState

ENTRY_BYTES: Final = 64
"""The size of an entry: the leaf hash of an event, and the root of the source stream at it."""

_UNCOVERED: Final = "uncovered/"
"""The prefix of the name of a bundle that no checkpoint covers yet."""


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


class LedgerNote(NamedTuple):
    """A named value of the ledger."""

    name: str
    value: bytes


class LedgerContents(NamedTuple):
    """The contents of a rebuilt ledger."""

    rows: Sequence[BundleRow]
    runs: Sequence[tuple[SourceStream, BundleRun]]
    forks: Sequence[Equivocation]
    uncovered: Sequence[Uncovered]


@dataclass(frozen=True, slots=True, kw_only=True)
class LedgerChange:
    """What an outcome changes in the ledger, atomically and together with its pending actions.

    ``done`` is a plan whose events are all in the hub's log, and ``to_cover`` whether a checkpoint
    is to cover them; ``abandoned`` a plan of which nothing was written, and nothing will be.
    ``covered`` are bundles that a checkpoint covers now.
    """

    row: BundleRow | None = None
    done: ImportPlan | None = None
    to_cover: bool = False
    abandoned: ImportPlan | None = None
    fork: Equivocation | None = None
    unfrozen: SourceStream | None = None
    covered: Sequence[bytes] = ()
    restored: LedgerContents | None = None
    notes: Sequence[LedgerNote] = ()


class ImportLedger(LedgerFile):
    def bundle(self, bundle_id: bytes) -> BundleRow | None:
        rows = self._all("SELECT * FROM bundles WHERE bundle_id = ?", bundle_id)
        return BundleRow(**rows[0]) if rows else None

    def bundles(self, *states: ImportState) -> list[BundleRow]:
        """Bundles in any of the states, or all, by stream and place."""
        marks = ", ".join("?" * len(states))
        where = f"WHERE state IN ({marks})" if states else ""
        order = "ORDER BY source_hub_id, stream, from_seq, to_seq, bundle_id"
        query = f"SELECT * FROM bundles {where} {order}"  # noqa: S608 - marks alone
        return [BundleRow(**row) for row in self._all(query, *(state.value for state in states))]

    def plan(self, bundle_id: bytes) -> ImportPlan | None:
        rows = self._all("SELECT * FROM plans WHERE bundle_id = ?", bundle_id)
        return _plan(rows[0]) if rows else None

    def knows_plan(self, plan_id: bytes) -> bool:
        return bool(self._all("SELECT 1 FROM plans WHERE plan_id = ?", plan_id))

    def open_plans(self) -> list[ImportPlan]:
        return [_plan(row) for row in self._all("SELECT * FROM plans WHERE NOT done")]

    def pending(self) -> list[PendingActions]:
        """The pending actions of outcomes that are not complete, in order."""
        rows = self._all("SELECT document, token FROM pending ORDER BY n")
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

    def noted(self, name: str) -> bytes | None:
        """The value of a note."""
        rows = self._all("SELECT value FROM notes WHERE name = ?", name)
        return rows[0]["value"] if rows else None

    def knows_heartbeat(self, ledger: CarrierLedger) -> bool:
        return self.noted(heartbeat_note(ledger).name) is not None

    def update(self, row: BundleRow) -> None:
        """Store the state of a bundle that has no pending actions."""
        with self._transaction():
            self._put(row)

    def note_carrier(self, ledger: CarrierLedger) -> None:
        rows = [(ledger.bridge_id, entry.n, entry.encode()) for entry in ledger.tail]
        with self._transaction():
            self._db.executemany("INSERT OR IGNORE INTO carriers VALUES (?, ?, ?)", rows)

    def begin(self, row: BundleRow, plan: ImportPlan, runs: Sequence[BundleRun]) -> None:
        """Store a plan before any of it is written, and reserve its events."""
        stream = SourceStream(row.source_hub_id, row.stream)
        with self._transaction():
            self._put(row)
            self._insert(plan)
            self._db.executemany(
                "INSERT INTO runs VALUES (?, ?, ?, ?, ?, 0, ?)",
                [(*stream, *run.span, run.bundle_id, run.entries) for run in runs],
            )

    def conclude(self, change: LedgerChange, pending: PendingActions) -> None:
        """Store the change of an outcome together with its pending actions."""
        with self._transaction():
            if change.restored is not None:
                self._restore(change.restored)
            if change.abandoned is not None:
                self._abandon(change.abandoned)
            if change.row is not None:
                self._put(change.row)
            if change.done is not None:
                self._finish(change.done, to_cover=change.to_cover)
            if change.fork is not None:
                self._freeze(change.fork)
            if change.unfrozen is not None:
                self._unfreeze(change.unfrozen)
            self._cover(change.covered)
            self._note(change.notes)
            self._db.execute(
                "INSERT INTO pending (token, document) VALUES (?, ?)",
                (pending.token, pending.document()),
            )

    def applied(self, pending: PendingActions) -> None:
        """Forget pending actions, all of which are done."""
        with self._transaction():
            self._db.execute("DELETE FROM pending WHERE token = ?", (pending.token,))

    def note(self, *notes: LedgerNote) -> None:
        with self._transaction():
            self._note(notes)

    def uncovered(self) -> list[Uncovered]:
        """Imported bundles that no checkpoint is known to cover."""
        query = "SELECT name, value FROM notes WHERE name GLOB ? ORDER BY name"
        uncovered = []
        for row in self._all(query, f"{_UNCOVERED}*"):
            target_to = int(row["value"]) if row["value"] else None
            bundle_id = bytes.fromhex(row["name"].removeprefix(_UNCOVERED))
            uncovered.append(Uncovered(bundle_id, target_to))
        return uncovered

    def _restore(self, contents: LedgerContents) -> None:
        """Fill an empty ledger from the logs."""
        runs = [(*stream, *run.span, run.bundle_id, run.entries) for stream, run in contents.runs]
        for row in contents.rows:
            self._put(row)
        self._db.executemany("INSERT INTO runs VALUES (?, ?, ?, ?, ?, 1, ?)", runs)
        for fork in contents.forks:
            self._freeze(fork)
        self._note(
            LedgerNote(_UNCOVERED + bundle_id.hex(), str(last).encode())
            for bundle_id, last in contents.uncovered
        )

    def _finish(self, plan: ImportPlan, *, to_cover: bool) -> None:
        """Mark a plan as done and its events as held."""
        if to_cover:
            self._note([LedgerNote(_UNCOVERED + plan.bundle_id.hex(), b"")])
        self._insert(replace(plan, done=True))
        self._db.execute("UPDATE runs SET is_held = 1 WHERE bundle_id = ?", (plan.bundle_id,))

    def _abandon(self, plan: ImportPlan) -> None:
        self._db.execute("DELETE FROM plans WHERE bundle_id = ?", (plan.bundle_id,))
        self._db.execute("DELETE FROM runs WHERE bundle_id = ? AND NOT is_held", (plan.bundle_id,))

    def _freeze(self, fork: Equivocation) -> None:
        values = (fork.source_hub_id, fork.stream, fork.seq, fork.bundle_id or b"")
        self._db.execute("INSERT OR IGNORE INTO frozen VALUES (?, ?, ?, ?)", values)

    def _unfreeze(self, stream: SourceStream) -> None:
        self._db.execute("DELETE FROM frozen WHERE source_hub_id = ? AND stream = ?", stream)

    def _cover(self, bundle_ids: Sequence[bytes]) -> None:
        names = [(_UNCOVERED + bundle_id.hex(),) for bundle_id in bundle_ids]
        self._db.executemany("DELETE FROM notes WHERE name = ?", names)

    def _note(self, notes: Iterable[LedgerNote]) -> None:
        self._db.executemany("INSERT OR REPLACE INTO notes VALUES (?, ?)", notes)

    def _put(self, row: BundleRow) -> None:
        self._db.execute(
            "INSERT OR REPLACE INTO bundles VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)", astuple(row)
        )

    def _insert(self, plan: ImportPlan) -> None:
        marks = ", ".join("?" * len(fields(plan)))
        self._db.execute(f"INSERT OR REPLACE INTO plans VALUES ({marks})", astuple(plan))  # noqa: S608


def heartbeat_note(ledger: CarrierLedger) -> LedgerNote:
    """The note that a heartbeat was imported; its entry alone is also in later carriers."""
    entry_hash = ledger.tail[-1].entry_hash()
    return LedgerNote(f"heartbeat/{ledger.bridge_id.hex()}/{entry_hash.hex()}", b"")


def _plan(row: dict[str, Any]) -> ImportPlan:
    return ImportPlan(**(row | {"done": bool(row["done"])}))
