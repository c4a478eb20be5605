"""The import ledger: which events of which source are here, and what is still to be done.

It is on disk when a call returns. Of a stream each event is in one run at most, which is what
keeps an event from being imported twice; all of it can be made again from the import streams and
the audit log of this zone.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import astuple, fields, replace
from typing import Any, Final

from bridge.audit_events import Equivocation
from bridge.carrier.ledger import Ledger, LedgerEntry
from bridge.importer.ledger_file import BadLedger as BadLedger  # noqa: PLC0414 - its fault
from bridge.importer.ledger_file import LedgerFile
from bridge.importer.ledger_tables import (
    BundleRow,
    Closing,
    Plan,
    Restored,
    Run,
    Span,
    Stream,
    Uncovered,
)
from bridge.importer.outcome import State

_UNCOVERED: Final = "uncovered/"
"""How a bundle is noted that no checkpoint covers yet."""


class ImportLedger(LedgerFile):
    def bundle(self, bundle_id: bytes) -> BundleRow | None:
        rows = self._all("SELECT * FROM bundles WHERE bundle_id = ?", bundle_id)
        return BundleRow(**rows[0]) if rows else None

    def bundles(self, *states: State) -> list[BundleRow]:
        """Those in any of the states, or all; by stream and place."""
        marks = ", ".join("?" * len(states))
        those = f"WHERE state IN ({marks})" if states else ""
        order = "ORDER BY source_hub_id, stream, from_seq, to_seq, bundle_id"
        query = f"SELECT * FROM bundles {those} {order}"  # noqa: S608 - marks alone
        return [BundleRow(**row) for row in self._all(query, *(one.value for one in states))]

    def plan(self, bundle_id: bytes) -> Plan | None:
        rows = self._all("SELECT * FROM plans WHERE bundle_id = ?", bundle_id)
        return _plan(rows[0]) if rows else None

    def knows_plan(self, plan_id: bytes) -> bool:
        return bool(self._all("SELECT 1 FROM plans WHERE plan_id = ?", plan_id))

    def open_plans(self) -> list[Plan]:
        return [_plan(row) for row in self._all("SELECT * FROM plans WHERE NOT done")]

    def closings(self) -> list[Closing]:
        rows = self._all("SELECT document, token FROM closings ORDER BY n")
        return [Closing.read(row["token"], row["document"]) for row in rows]

    def runs(self, stream: Stream, within: Span) -> list[Run]:
        """What is held of a stretch, in order; runs are given whole."""
        query = """
            SELECT from_seq, to_seq, bundle_id, entries FROM runs WHERE source_hub_id = ?
            AND stream = ? AND to_seq >= ? AND from_seq <= ? AND is_held ORDER BY from_seq
        """
        rows = self._all(query, *stream, *within)
        return [
            Run(Span(row["from_seq"], row["to_seq"]), row["bundle_id"], row["entries"])
            for row in rows
        ]

    def planned(self, bundle_id: bytes) -> list[Span]:
        query = "SELECT from_seq, to_seq FROM runs WHERE bundle_id = ? ORDER BY from_seq"
        return [Span(row["from_seq"], row["to_seq"]) for row in self._all(query, bundle_id)]

    def spans(self, stream: Stream) -> list[Span]:
        """Where events of a stream are held, in order, without their leaves."""
        query = """
            SELECT from_seq, to_seq FROM runs WHERE source_hub_id = ? AND stream = ? AND is_held
            ORDER BY from_seq
        """
        return [Span(row["from_seq"], row["to_seq"]) for row in self._all(query, *stream)]

    def holds(self, stream: Stream, seq: int) -> bool:
        """Whether an event is held."""
        query = """
            SELECT to_seq FROM runs WHERE source_hub_id = ? AND stream = ? AND from_seq <= ?
            AND is_held ORDER BY from_seq DESC LIMIT 1
        """
        rows = self._all(query, *stream, seq)
        return bool(rows) and rows[0]["to_seq"] >= seq

    def frozen_at(self, stream: Stream) -> int | None:
        query = "SELECT seq FROM frozen WHERE source_hub_id = ? AND stream = ?"
        rows = self._all(query, *stream)
        return int(rows[0]["seq"]) if rows else None

    def frozen_by(self, stream: Stream) -> bytes | None:
        """The bundle that told the other history first."""
        query = "SELECT bundle_id FROM frozen WHERE source_hub_id = ? AND stream = ?"
        rows = self._all(query, *stream)
        return rows[0]["bundle_id"] if rows else None

    def carrier_entries(self) -> list[tuple[bytes, LedgerEntry]]:
        """What the ledgers of all carriers that came have told, with whose ledger it is.

        Two entries of one number are both here: that bridge has told two stories.
        """
        rows = self._all("SELECT bridge_id, entry FROM carriers ORDER BY bridge_id, n, entry")
        return [(row["bridge_id"], LedgerEntry.decode(row["entry"])) for row in rows]

    def told(self, name: str) -> bytes | None:
        rows = self._all("SELECT value FROM told WHERE name = ?", name)
        return rows[0]["value"] if rows else None

    def knows_heartbeat(self, ledger: Ledger) -> bool:
        """Whether the carrier of this heartbeat came before; its entry alone comes with others."""
        return self.told(_heartbeat(ledger)) is not None

    def note(self, row: BundleRow) -> None:
        with self._changing():
            self._put(row)

    def note_carrier(self, ledger: Ledger) -> None:
        rows = [(ledger.bridge_id, one.n, one.encode()) for one in ledger.tail]
        with self._changing():
            self._db.executemany("INSERT OR IGNORE INTO carriers VALUES (?, ?, ?)", rows)

    def begin(self, row: BundleRow, plan: Plan, runs: Sequence[Run]) -> None:
        """Keep a plan before anything of it is written; its events are nobody else's from now."""
        stream = Stream(row.source_hub_id, row.stream)
        with self._changing():
            self._put(row)
            self._insert(plan)
            self._db.executemany(
                "INSERT INTO runs VALUES (?, ?, ?, ?, ?, 0, ?)",
                [(*stream, *one.span, one.bundle_id, one.entries) for one in runs],
            )

    def finish(self, row: BundleRow, plan: Plan, closing: Closing, *, to_cover: bool) -> None:
        """All events of a plan are in the hub's log; a checkpoint is to cover them, or not."""
        with self._changing():
            if to_cover:
                name = _UNCOVERED + row.bundle_id.hex()
                self._db.execute("INSERT OR REPLACE INTO told VALUES (?, ?)", (name, b""))
            self._put(row)
            self._insert(replace(plan, done=True))
            self._db.execute("UPDATE runs SET is_held = 1 WHERE bundle_id = ?", (row.bundle_id,))
            self._add(closing)

    def conclude(
        self,
        row: BundleRow | None,
        closing: Closing,
        told: tuple[str, bytes] | None = None,
        abandoned: Plan | None = None,
    ) -> None:
        """Keep an outcome together with all that is still to be done about it.

        ``abandoned`` is a plan of which nothing was written, and nothing will be.
        """
        with self._changing():
            if abandoned is not None:
                mine = (abandoned.bundle_id,)
                self._db.execute("DELETE FROM plans WHERE bundle_id = ?", mine)
                self._db.execute("DELETE FROM runs WHERE bundle_id = ? AND NOT is_held", mine)
            if row is not None:
                self._put(row)
            if told is not None:
                self._db.execute("INSERT OR REPLACE INTO told VALUES (?, ?)", told)
            self._add(closing)

    def conclude_heartbeat(self, ledger: Ledger, closing: Closing) -> None:
        self.conclude(None, closing, told=(_heartbeat(ledger), b""))

    def note_heartbeat(self, ledger: Ledger) -> None:
        self.note_told((_heartbeat(ledger), b""))

    def note_told(self, told: tuple[str, bytes]) -> None:
        with self._changing():
            self._db.execute("INSERT OR REPLACE INTO told VALUES (?, ?)", told)

    def freeze(self, row: BundleRow | None, fork: Equivocation, closing: Closing) -> None:
        values = (fork.source_hub_id, fork.stream, fork.seq, fork.bundle_id or b"")
        with self._changing():
            if row is not None:
                self._put(row)
            self._db.execute("INSERT OR IGNORE INTO frozen VALUES (?, ?, ?, ?)", values)
            self._add(closing)

    def thaw(self, stream: Stream, closing: Closing) -> None:
        with self._changing():
            self._db.execute("DELETE FROM frozen WHERE source_hub_id = ? AND stream = ?", stream)
            self._add(closing)

    def uncovered(self) -> list[Uncovered]:
        """The bundles that were imported and that no checkpoint is known to cover yet."""
        query = "SELECT name, value FROM told WHERE name GLOB ? ORDER BY name"
        found = []
        for row in self._all(query, f"{_UNCOVERED}*"):
            target_to = int(row["value"]) if row["value"] else None
            bundle_id = bytes.fromhex(row["name"].removeprefix(_UNCOVERED))
            found.append(Uncovered(bundle_id, target_to))
        return found

    def cover(self, bundle_ids: Sequence[bytes], closing: Closing) -> None:
        names = [(_UNCOVERED + one.hex(),) for one in bundle_ids]
        with self._changing():
            self._db.executemany("DELETE FROM told WHERE name = ?", names)
            self._add(closing)

    def closed(self, closing: Closing) -> None:
        with self._changing():
            self._db.execute("DELETE FROM closings WHERE token = ?", (closing.token,))

    def restore(self, found: Restored, closing: Closing, *told: tuple[str, bytes]) -> None:
        """Fill an empty ledger with what the logs tell."""
        frozen = [(*stream, one.seq, one.bundle_id or b"") for stream, one in found.frozen]
        runs = [(*stream, *one.span, one.bundle_id, one.entries) for stream, one in found.runs]
        uncovered = [(_UNCOVERED + one.hex(), str(last).encode()) for one, last in found.uncovered]
        with self._changing():
            for row in found.rows:
                self._put(row)
            self._db.executemany("INSERT INTO runs VALUES (?, ?, ?, ?, ?, 1, ?)", runs)
            self._db.executemany("INSERT OR IGNORE INTO frozen VALUES (?, ?, ?, ?)", frozen)
            self._db.executemany("INSERT OR REPLACE INTO told VALUES (?, ?)", [*told, *uncovered])
            self._add(closing)

    def _put(self, row: BundleRow) -> None:
        self._db.execute(
            "INSERT OR REPLACE INTO bundles VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)", astuple(row)
        )

    def _insert(self, plan: Plan) -> None:
        marks = ", ".join("?" * len(fields(plan)))
        self._db.execute(f"INSERT OR REPLACE INTO plans VALUES ({marks})", astuple(plan))  # noqa: S608

    def _add(self, closing: Closing) -> None:
        values = (closing.token, closing.document())
        self._db.execute("INSERT INTO closings (token, document) VALUES (?, ?)", values)


def _heartbeat(ledger: Ledger) -> str:
    return f"heartbeat/{ledger.bridge_id.hex()}/{ledger.tail[-1].entry_hash().hex()}"


def _plan(row: dict[str, Any]) -> Plan:
    return Plan(**(row | {"done": bool(row["done"])}))
