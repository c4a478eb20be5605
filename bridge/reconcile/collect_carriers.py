"""What carriers tell: their ledgers, and the checkpoints that they bring (AGB0 4.7)."""

from __future__ import annotations

import sqlite3
from collections.abc import Collection, Iterator, Sequence
from pathlib import Path

from bridge.carrier.bag_path import carrier_name
from bridge.carrier.check import Means, Report, check_carrier
from bridge.carrier.ledger import Ledger, LedgerEntry
from bridge.medium_bags import carriers
from bridge.reconcile.fact_file import Fact
from bridge.reconcile.facts import Export
from bridge.reconcile.ledger_facts import of_entry, of_ledger
from bridge.refusal import Level
from veen.errors import VeenError
from veen.recorder_checkpoint import RecorderCheckpoint


class BadLedgerFile(VeenError):
    """An importer's ledger that cannot be read."""


class Carried:
    """The facts of valid carriers, and C1 of each hub: the newest checkpoint that they brought, or
    the one that is ``chosen`` by its id.
    """

    def __init__(self, means: Means, chosen: Collection[bytes] = ()) -> None:
        self._means = means
        self._chosen = chosen
        self.facts: list[Fact] = []
        self.checkpoints: dict[bytes, RecorderCheckpoint] = {}
        self.refused: list[str] = []

    def add(self, places: Sequence[Path]) -> None:
        """Check the carriers in directories; one that is refused tells nothing but its name."""
        for bags in carriers(places) if places else ():
            report = check_carrier(bags, Level.VALID, self._means)
            if report.refusal is not None or report.ledger is None:
                self.refused.append(f"{carrier_name(bags[0].name)}: {report.refusal}")
            else:
                self._take(report, report.ledger)

    def _take(self, report: Report, ledger: Ledger) -> None:
        self.facts += of_ledger(ledger)
        found = report.heartbeat
        if report.bundle is not None:
            header = report.bundle.header
            found = header.export_checkpoint
            self.facts.append(
                Export(
                    header.source_hub_id,
                    header.export_stream,
                    header.export_seq_from,
                    header.export_seq_to,
                    header.bundle_id or b"",
                    "bundle",
                    report.bundle.root,
                )
            )
        if found is not None:
            known = self.checkpoints.get(found.hub_id)
            if known is None or self._weight(found) > self._weight(known):
                self.checkpoints[found.hub_id] = found

    def _weight(self, one: RecorderCheckpoint) -> tuple[bool, int]:
        return one.checkpoint_id in self._chosen, one.created_at


def archived(state: Path) -> list[Path]:
    """Where the carriers lie that an importer has kept."""
    archive = state / "archive"
    if not archive.is_dir():
        return []
    return sorted(bag for place in archive.iterdir() if place.is_dir() for bag in place.iterdir())


def ledger_facts(ledger: Path) -> Iterator[Fact]:
    """What an importer's ledger.db has kept of the carriers that it has seen; it is only read."""
    try:
        db = sqlite3.connect(f"{ledger.absolute().as_uri()}?mode=ro", uri=True)
        try:
            entries = db.execute("SELECT bridge_id, entry FROM carriers").fetchall()
            bundles = db.execute(
                "SELECT source_hub_id, stream, from_seq, to_seq, bundle_id FROM bundles"
            ).fetchall()
        finally:
            db.close()
    except sqlite3.Error as error:
        raise BadLedgerFile(f"{ledger}: {error}; see veen bridge status") from error
    for bridge_id, entry in entries:
        yield from of_entry(bytes(bridge_id), LedgerEntry.decode(entry))
    for hub_id, stream, first, last, bundle_id in bundles:
        yield Export(bytes(hub_id), stream, first, last, bytes(bundle_id), "bundle")
