"""The status of an importing zone, from its ledger alone, and the next safe command.

The ledger is opened read-only, and is also checked to be present and up to date. Counts are made by
SQLite, so that the cost does not grow with the ledger.
"""

from __future__ import annotations

import sqlite3
from contextlib import closing
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Final

from bridge.importer.commit import PLAN_NOTE
from bridge.importer.directory import ImportDirectory
from bridge.importer.ledger import BundleRow, SeqSpan, SourceStream
from bridge.importer.ledger_file import BadLedger, read_only
from bridge.importer.outcome import ImportState
from bridge.importer.run import LAST_PLAN
from veen.system import sqlite

EVERYTHING: Final = -1
_OPEN: Final = (
    ImportState.WAITING,
    ImportState.BLOCKED,
    ImportState.FROZEN,
    ImportState.COMMITTING,
    ImportState.PARTIAL,
)
_MARKS: Final = ", ".join("?" * len(_OPEN))
_STATES: Final = "SELECT state, count(*) FROM bundles GROUP BY state ORDER BY state"
_UNFINISHED: Final = f"""
    SELECT * FROM bundles WHERE state IN ({_MARKS})
    ORDER BY source_hub_id, stream, from_seq, to_seq, bundle_id LIMIT ?
"""  # noqa: S608 - marks alone
_STREAMS: Final = """
    WITH known AS (
      SELECT source_hub_id, stream FROM bundles
      UNION SELECT source_hub_id, stream FROM runs WHERE is_held
      UNION SELECT source_hub_id, stream FROM frozen)
    SELECT source_hub_id, stream, seq, count(*) OVER () FROM known
    LEFT JOIN frozen USING (source_hub_id, stream) ORDER BY 1, 2 LIMIT ?
"""
_HELD: Final = """
    WITH stepped AS (
      SELECT from_seq, to_seq, lag(to_seq, 1, -1) OVER (ORDER BY from_seq) + 1 <> from_seq AS is_new
      FROM runs WHERE source_hub_id = ? AND stream = ? AND is_held),
    numbered AS (
      SELECT from_seq, to_seq, sum(is_new) OVER (ORDER BY from_seq) AS n FROM stepped)
    SELECT min(from_seq), max(to_seq), count(*) OVER () FROM numbered GROUP BY n ORDER BY n LIMIT ?
"""
"""Merges adjacent runs. Sequence numbers begin at 1, so that -1 precedes no run."""


def ledger_is_stale(ledger: Path, outbox: Path) -> bool:
    """Whether ``verify_ledger_current`` would fail, without opening the identity of the outbox.

    The outbox is read first: a plan is in the ledger before it is handed over.
    """
    last = _read_value(outbox, "SELECT value FROM notes WHERE name = ?", PLAN_NOTE)
    if last is None:
        return False
    if not ledger.exists():
        return True
    try:
        with read_only(ledger) as db:
            return db is None or not _has_plan(db, last)
    except BadLedger:
        return True


def _has_plan(db: sqlite3.Connection, plan_id: bytes) -> bool:
    query = """
        SELECT 1 FROM notes WHERE name = ? AND value = ?
        UNION ALL SELECT 1 FROM plans WHERE plan_id = ?
    """
    return db.execute(query, (LAST_PLAN, plan_id, plan_id)).fetchone() is not None


def _read_value(path: Path, query: str, name: str | bytes) -> bytes | None:
    """A value of a database, which is opened without creating files; None if there is none."""
    if not path.exists():
        return None
    try:
        with closing(sqlite.connect_read_only(path, leave_no_files=True)) as db:
            row = db.execute(query, (name,)).fetchone()
    except sqlite3.Error:
        return None
    return bytes(row[0]) if row else None


@dataclass(frozen=True, slots=True)
class ImportStreamStatus:
    """A stream; ``held`` are the first of ``held_total`` ranges."""

    stream: SourceStream
    held: tuple[SeqSpan, ...]
    held_total: int
    frozen_at: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class ImporterStatus:
    """``unclosed`` outcomes are decided, and have pending actions: audit entries or file moves.
    ``uncovered`` bundles are imported, and wait for the checkpoint that the settings require.
    ``streams`` and ``unfinished`` are the first of as many as their totals say.
    """

    streams: tuple[ImportStreamStatus, ...]
    streams_total: int
    bundles: dict[str, int]
    unfinished: tuple[BundleRow, ...]
    inbox: int
    unclosed: int
    uncovered: int

    @property
    def unfinished_total(self) -> int:
        return sum(self.bundles.get(state.value, 0) for state in _OPEN)

    def next_command(self) -> str:
        states = set(self.bundles)
        begun = states & {ImportState.COMMITTING.value, ImportState.PARTIAL.value}
        if self.unclosed or begun or self.inbox or self.uncovered:
            return "veen bridge import"
        if ImportState.BLOCKED.value in states:
            return "veen bridge approve"
        if ImportState.FROZEN.value in states or any(stream.frozen_at for stream in self.streams):
            return (
                "look at quarantine/, and ask the exporting zone which history is theirs; "
                "veen bridge thaw, if it is the one that is held"
            )
        if ImportState.WAITING.value in states:
            return "bring the missing carriers: veen bridge reconcile names them"
        return "veen bridge import --medium DIR"


@dataclass(frozen=True, slots=True, kw_only=True)
class StatusLimits:
    """The maximum number of each in a status."""

    bundles: int = EVERYTHING
    streams: int = EVERYTHING
    spans: int = EVERYTHING


def import_status(import_dir: ImportDirectory, most: StatusLimits | None = None) -> ImporterStatus:
    """The status from the ledger. Nothing is written; a concurrent run is not disturbed."""
    inbox = _names(import_dir.inbox)
    if not import_dir.ledger.exists():
        return _empty_status(inbox)
    with read_only(import_dir.ledger) as db:
        if db is None:
            return _empty_status(inbox)
        return read_status(db, inbox, most or StatusLimits())


def read_status(db: sqlite3.Connection, inbox: int, most: StatusLimits) -> ImporterStatus:
    streams = db.execute(_STREAMS, (most.streams,)).fetchall()
    open_states = [state.value for state in _OPEN]
    return ImporterStatus(
        streams=tuple(
            _stream(db, SourceStream(hub_id, name), frozen, most)
            for hub_id, name, frozen, _ in streams
        ),
        streams_total=streams[0][3] if streams else 0,
        bundles=dict(db.execute(_STATES).fetchall()),
        unfinished=tuple(
            _bundle(row) for row in db.execute(_UNFINISHED, (*open_states, most.bundles))
        ),
        inbox=inbox,
        unclosed=_count(db, "SELECT count(*) FROM pending"),
        uncovered=_count(db, "SELECT count(*) FROM notes WHERE name GLOB 'uncovered/*'"),
    )


def _empty_status(inbox: int) -> ImporterStatus:
    return ImporterStatus(
        streams=(),
        streams_total=0,
        bundles={},
        unfinished=(),
        inbox=inbox,
        unclosed=0,
        uncovered=0,
    )


def _stream(
    db: sqlite3.Connection, stream: SourceStream, frozen_at: int | None, most: StatusLimits
) -> ImportStreamStatus:
    rows = db.execute(_HELD, (*stream, most.spans)).fetchall()
    held = tuple(SeqSpan(first, last) for first, last, _ in rows)
    return ImportStreamStatus(stream, held, rows[0][2] if rows else 0, frozen_at)


def _bundle(row: tuple[object, ...]) -> BundleRow:
    names = [field.name for field in fields(BundleRow)]
    return BundleRow(**dict(zip(names, row, strict=True)))  # type: ignore[arg-type]


def _count(db: sqlite3.Connection, query: str) -> int:
    return int(db.execute(query).fetchone()[0])


def _names(folder: Path) -> int:
    if not folder.is_dir():
        return 0
    return sum(not path.name.startswith(".") for path in folder.iterdir())
