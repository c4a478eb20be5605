"""Collection of the facts of a zone, from its hub, its import ledger and its carriers (AGB0 4.7).

A carrier states its ledger, whose entries are exports, and the checkpoints that it brings.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Any, Final, Protocol, TypeVar

from bridge.audit_log import RecordedEntry, read_log
from bridge.carrier.directory import carrier_name
from bridge.carrier.format import CarrierLedger, CarrierLedgerEntry
from bridge.carrier.medium import carriers
from bridge.carrier.verify import VerifyContext, VerifyReport, check_carrier
from bridge.connect import author_of
from bridge.errors import Level
from bridge.reconcile.collect_logs import (
    PlacedImport,
    carried_log,
    import_facts,
    is_refused,
    offline_facts,
    online_facts,
    walk,
)
from bridge.reconcile.facts import (
    CheckpointFact,
    End,
    Export,
    Fact,
    ForeignFact,
    LedgerFact,
    ReconcileFacts,
    RouteFact,
    facts_of,
    kind_of,
)
from bridge.settings import BridgeSettings
from bridge.stream_map import OFFLINE_LOG, ONLINE_LOG
from veen.client.checkpoints import latest_recorder_checkpoint, recorder_checkpoints_since
from veen.client.client import Client
from veen.client.log_head import is_missing
from veen.client.transport import HubRefused
from veen.errors import VeenError
from veen.recorder_checkpoint import RecorderCheckpoint
from veen.system import sqlite

T = TypeVar("T")


def of_ledger(ledger: CarrierLedger) -> Iterator[LedgerFact | Export]:
    for entry in ledger.tail:
        yield from of_entry(ledger.bridge_id, entry)


def of_entry(bridge_id: bytes, entry: CarrierLedgerEntry) -> Iterator[LedgerFact | Export]:
    yield LedgerFact(
        bridge_id,
        entry.n,
        entry.prev,
        entry.entry_hash(),
        entry.bundle_id or b"",
    )
    if entry.bundle_id is not None:
        yield Export(
            entry.hub_id,
            entry.stream,
            entry.from_seq,
            entry.to_seq,
            entry.bundle_id,
            "ledger",
        )


class BadLedgerFile(VeenError):
    """An importer's ledger that cannot be read."""


class Carried:
    """Collects the facts of valid carriers, and C1 of each hub: the newest checkpoint that they
    contain, or the checkpoint ``chosen`` by its id.
    """

    def __init__(self, context: VerifyContext, chosen: Collection[bytes] = ()) -> None:
        self._context = context
        self._chosen = chosen
        self.facts: list[Fact] = []
        self.checkpoints: dict[bytes, RecorderCheckpoint] = {}
        self.refused: list[str] = []

    def add(self, places: Sequence[Path]) -> None:
        """Verify the carriers in directories; of a refused carrier only its name is collected."""
        for bags in carriers(places) if places else ():
            report = check_carrier(bags, Level.VALID, self._context)
            if report.refusal is not None or report.ledger is None:
                self.refused.append(f"{carrier_name(bags[0].name)}: {report.refusal}")
            else:
                self._take(report, report.ledger)

    def _take(self, report: VerifyReport, ledger: CarrierLedger) -> None:
        self.facts += of_ledger(ledger)
        checkpoint = report.heartbeat
        if report.bundle is not None:
            header = report.bundle.header
            checkpoint = header.export_checkpoint
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
        if checkpoint is not None:
            known = self.checkpoints.get(checkpoint.hub_id)
            if known is None or self._weight(checkpoint) > self._weight(known):
                self.checkpoints[checkpoint.hub_id] = checkpoint

    def _weight(self, checkpoint: RecorderCheckpoint) -> tuple[bool, int]:
        return checkpoint.checkpoint_id in self._chosen, checkpoint.created_at


def archived(state: Path) -> list[Path]:
    """The bags of carriers in an importer's archive."""
    archive = state / "archive"
    if not archive.is_dir():
        return []
    return sorted(bag for place in archive.iterdir() if place.is_dir() for bag in place.iterdir())


def ledger_facts(ledger: Path) -> Iterator[Fact]:
    """Facts about carriers from an importer's ledger.db, which is opened read-only."""
    with (
        sqlite.errors_translated(ledger, BadLedgerFile, "see veen bridge status"),
        closing(sqlite.connect_read_only(ledger)) as db,
    ):
        entries = db.execute("SELECT bridge_id, entry FROM carriers").fetchall()
        bundles = db.execute(
            "SELECT source_hub_id, stream, from_seq, to_seq, bundle_id FROM bundles"
        ).fetchall()
    for bridge_id, entry in entries:
        yield from of_entry(bytes(bridge_id), CarrierLedgerEntry.decode(entry))
    for hub_id, stream, first, last, bundle_id in bundles:
        yield Export(bytes(hub_id), stream, first, last, bytes(bundle_id), "bundle")


class Listener(Protocol):
    """Receives everything that is read, as it is read."""

    def placed(self, import_: PlacedImport | ForeignFact) -> None: ...

    def online(self, entry: RecordedEntry) -> None: ...

    def offline(self, entry: RecordedEntry) -> None: ...


class NullCollector:
    def placed(self, import_: PlacedImport | ForeignFact) -> None:
        pass

    def online(self, entry: RecordedEntry) -> None:
        pass

    def offline(self, entry: RecordedEntry) -> None:
        pass


_NULL_COLLECTOR: Final = NullCollector()


@dataclass(frozen=True, slots=True)
class Collected:
    """The facts of a zone; ``refused`` are carriers without facts, and why."""

    facts: ReconcileFacts
    refused: tuple[str, ...] = ()


def checkpoint_fact(document: RecorderCheckpoint) -> CheckpointFact:
    """The fact of a verified checkpoint."""
    ends = [
        End(name, end.last_seq, end.mmr_root)
        for name, end in zip(document.names, document.ends, strict=True)
    ]
    return CheckpointFact(
        document.hub_id,
        document.checkpoint_id,
        document.created_at,
        document.log_root,
        tuple(sorted(ends)),
    )


def collect_online(
    settings: BridgeSettings, reader: Client, chosen: Collection[bytes] = ()
) -> Collected:
    """The facts of the exporting side, which does not know what became of its bundles. C1 is the
    hub's newest checkpoint, or the ``chosen`` checkpoint.
    """
    session = reader.meet()
    picked = [
        checkpoint
        for checkpoint in (recorder_checkpoints_since(session, None) if chosen else ())
        if checkpoint.checkpoint_id in chosen
    ]
    source = picked[-1] if picked else latest_recorder_checkpoint(session, None)
    foreign = _ForeignMessages()
    author = author_of(settings.audit)
    log = if_there(read_log(reader, ONLINE_LOG, author=author, left_out=foreign.add))
    sources = (checkpoint_fact(source),) if source else ()
    facts = [*online_facts(log), *_routes(settings), *foreign.facts]
    return Collected(together(facts, sources, None))


def collect_offline(
    settings: BridgeSettings,
    reader: Client,
    carried: Carried,
    media: Sequence[Path] = (),
    listener: Listener = _NULL_COLLECTOR,
) -> Collected:
    """The facts of the importing side. C1 of a hub is its newest checkpoint in a carrier; C2 is
    this hub's own checkpoint, taken before anything is read.
    """
    target = latest_recorder_checkpoint(reader.meet(), None)
    facts: list[Fact] = list(_routes(settings))
    if settings.importing is not None:
        state = settings.importing.state
        carried.add([*archived(state), *media])
        if (state / "ledger.db").exists():
            facts += ledger_facts(state / "ledger.db")
    facts += carried.facts
    for route in settings.streams.routes:
        placed = if_there(walk(reader, route.target, author_of(settings.bridge)))
        facts += _imports(route.source, heard(placed, listener.placed), listener)
    came = {fact.bundle_id for fact in facts if isinstance(fact, Export)}
    foreign = _ForeignMessages()
    entries = read_log(reader, OFFLINE_LOG, author=author_of(settings.audit), left_out=foreign.add)
    log = _of_routes(settings, came, if_there(entries))
    facts += offline_facts(heard(log, listener.offline))
    facts += foreign.facts
    sources = tuple(checkpoint_fact(checkpoint) for checkpoint in carried.checkpoints.values())
    reconcile_facts = together(facts, sources, checkpoint_fact(target) if target else None)
    return Collected(reconcile_facts, tuple(carried.refused))


class _ForeignMessages:
    """Messages of an audit log that are no entries of it."""

    def __init__(self) -> None:
        self.facts: list[ForeignFact] = []

    def add(self, stream: str, seq: int, _error: VeenError) -> None:
        self.facts.append(ForeignFact(stream, seq))


def if_there(items: Iterable[T]) -> Iterator[T]:
    """The items, or none if the hub does not know the stream: nothing was written to it. If the hub
    hides a stream, everything that should be in it is reported as missing.
    """
    begun = False
    try:
        for item in items:
            begun = True
            yield item
    except HubRefused as error:
        if begun or not is_missing(error):
            raise


def together(
    facts: Iterable[Fact], sources: tuple[CheckpointFact, ...], target: CheckpointFact | None
) -> ReconcileFacts:
    by_kind: dict[str, list[Any]] = defaultdict(list)
    for fact in facts:
        by_kind[kind_of(fact)].append(fact)
    by_kind["source"], by_kind["target"] = list(sources), [target] if target else []
    return facts_of(by_kind)


def _of_routes(
    settings: BridgeSettings, came: Collection[bytes], log: Iterable[RecordedEntry]
) -> Iterator[RecordedEntry]:
    """The log without entries of a bridge with other settings, whose streams are not read here.

    A quarantined carrier of a stream without a route is included if it ``came`` to this importer or
    was refused because it has no route, and no later entry is about it.
    """
    mine = {(route.hub_id, route.source) for route in settings.streams.routes}
    refused: dict[bytes, RecordedEntry] = {}
    for entry in log:
        hub_id, stream, bundle_id = (
            getattr(entry.event, name, None) for name in ("source_hub_id", "stream", "bundle_id")
        )
        if hub_id is None or stream is None or (hub_id, stream) in mine:
            yield entry
        elif bundle_id is not None and is_refused(entry.event, came):
            refused[bundle_id] = entry
        elif bundle_id is not None:
            refused.pop(bundle_id, None)
    yield from refused.values()


def _routes(settings: BridgeSettings) -> Iterator[RouteFact]:
    for route in settings.streams.routes:
        yield RouteFact(route.hub_id, route.source, route.target)


def heard(items: Iterable[T], hear: Callable[[T], None]) -> Iterator[T]:
    for item in items:
        hear(item)
        yield item


def _imports(
    source: str, placed: Iterator[PlacedImport | ForeignFact], listener: Listener
) -> Iterator[Fact]:
    if source != ONLINE_LOG:
        return import_facts(placed)
    # The log is both an imported stream and the record of what was exported.
    held = list(placed)
    return chain(import_facts(held), online_facts(heard(carried_log(held), listener.online)))
