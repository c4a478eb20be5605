"""The facts of one zone, from its hub, its import ledger and the carriers that lie in it.

What the ledger of a carrier tells: its entries, and that their bundles were exported.

What carriers tell: their ledgers, and the checkpoints that they bring (AGB0 4.7).
"""

from __future__ import annotations

import sqlite3
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
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


def of_ledger(ledger: CarrierLedger) -> Iterator[LedgerFact | Export]:
    for item in ledger.tail:
        yield from of_entry(ledger.bridge_id, item)


def of_entry(
    bridge_id: bytes, carrier_ledger_entry: CarrierLedgerEntry
) -> Iterator[LedgerFact | Export]:
    yield LedgerFact(
        bridge_id,
        carrier_ledger_entry.n,
        carrier_ledger_entry.prev,
        carrier_ledger_entry.entry_hash(),
        carrier_ledger_entry.bundle_id or b"",
    )
    if carrier_ledger_entry.bundle_id is not None:
        yield Export(
            carrier_ledger_entry.hub_id,
            carrier_ledger_entry.stream,
            carrier_ledger_entry.from_seq,
            carrier_ledger_entry.to_seq,
            carrier_ledger_entry.bundle_id,
            "ledger",
        )


class BadLedgerFile(VeenError):
    """An importer's ledger that cannot be read."""


class Carried:
    """The facts of valid carriers, and C1 of each hub: the newest checkpoint that they brought, or
    the one that is ``chosen`` by its id.
    """

    def __init__(self, means: VerifyContext, chosen: Collection[bytes] = ()) -> None:
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

    def _take(self, report: VerifyReport, ledger: CarrierLedger) -> None:
        self.facts += of_ledger(ledger)
        heartbeat = report.heartbeat
        if report.bundle is not None:
            header = report.bundle.header
            heartbeat = header.export_checkpoint
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
        if heartbeat is not None:
            known = self.checkpoints.get(heartbeat.hub_id)
            if known is None or self._weight(heartbeat) > self._weight(known):
                self.checkpoints[heartbeat.hub_id] = heartbeat

    def _weight(self, checkpoint: RecorderCheckpoint) -> tuple[bool, int]:
        return checkpoint.checkpoint_id in self._chosen, checkpoint.created_at


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
        yield from of_entry(bytes(bridge_id), CarrierLedgerEntry.decode(entry))
    for hub_id, stream, first, last, bundle_id in bundles:
        yield Export(bytes(hub_id), stream, first, last, bytes(bundle_id), "bundle")


T = TypeVar("T")


class Listener(Protocol):
    """Who hears of everything that is read, as it is read."""

    def placed(self, import_: PlacedImport | ForeignFact) -> None: ...

    def online(self, recorded_entry: RecordedEntry) -> None: ...

    def offline(self, recorded_entry: RecordedEntry) -> None: ...


class NullCollector:
    def placed(self, import_: PlacedImport | ForeignFact) -> None:
        pass

    def online(self, recorded_entry: RecordedEntry) -> None:
        pass

    def offline(self, recorded_entry: RecordedEntry) -> None:
        pass


_NOBODY: Final = NullCollector()


@dataclass(frozen=True, slots=True)
class Collected:
    """``refused`` are carriers that told nothing, and why."""

    facts: ReconcileFacts
    refused: tuple[str, ...] = ()


def checkpoint_fact(document: RecorderCheckpoint) -> CheckpointFact:
    """Of a document that has been verified."""
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
    """What the exporting side can tell: nothing of what became of its bundles. C1 is the hub's
    newest checkpoint, or the one that is ``chosen``.
    """
    session = reader.meet()
    picked = [
        checkpoint
        for checkpoint in (recorder_checkpoints_since(session, None) if chosen else ())
        if checkpoint.checkpoint_id in chosen
    ]
    source = picked[-1] if picked else latest_recorder_checkpoint(session, None)
    foreign = _Strangers()
    author = author_of(settings.audit)
    log = if_there(read_log(reader, ONLINE_LOG, author=author, left_out=foreign.add))
    sources = (checkpoint_fact(source),) if source else ()
    facts = [*online_facts(log), *_routes(settings), *foreign.found]
    return Collected(together(facts, sources, None))


def collect_offline(
    settings: BridgeSettings,
    reader: Client,
    carried: Carried,
    media: Sequence[Path] = (),
    listener: Listener = _NOBODY,
) -> Collected:
    """All that the importing side knows. C1 of a hub is the newest checkpoint that came from it
    in a carrier; C2 is this hub's own, taken before anything is read.
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
    foreign = _Strangers()
    entries = read_log(reader, OFFLINE_LOG, author=author_of(settings.audit), left_out=foreign.add)
    log = _of_routes(settings, came, if_there(entries))
    facts += offline_facts(heard(log, listener.offline))
    facts += foreign.found
    sources = tuple(checkpoint_fact(checkpoint) for checkpoint in carried.checkpoints.values())
    reconcile_facts = together(facts, sources, checkpoint_fact(target) if target else None)
    return Collected(reconcile_facts, tuple(carried.refused))


class _Strangers:
    """Messages of an audit log that are no entries of it."""

    def __init__(self) -> None:
        self.found: list[ForeignFact] = []

    def add(self, stream: str, seq: int, _error: VeenError) -> None:
        self.found.append(ForeignFact(stream, seq))


def if_there(ts: Iterable[T]) -> Iterator[T]:
    """A stream that the hub does not know is one that nothing was written to. If it hides one,
    all that should be in it shows as missing.
    """
    begun = False
    try:
        for item in ts:
            begun = True
            yield item
    except HubRefused as error:
        if begun or not is_missing(error):
            raise


def together(
    facts: Iterable[Fact], sources: tuple[CheckpointFact, ...], target: CheckpointFact | None
) -> ReconcileFacts:
    result: dict[str, list[Any]] = defaultdict(list)
    for fact in facts:
        result[kind_of(fact)].append(fact)
    result["source"], result["target"] = list(sources), [target] if target else []
    return facts_of(result)


def with_more(
    facts: ReconcileFacts, more: ReconcileFacts, chosen: Collection[bytes] = ()
) -> ReconcileFacts:
    """Facts from two places; a newer C1 of a hub takes the place of an older one, unless that is
    the ``chosen`` one.
    """
    newest: dict[bytes, CheckpointFact] = {}
    for source in sorted(
        [*facts.sources, *more.sources],
        key=lambda item: (item.checkpoint_id in chosen, item.created_at),
    ):
        newest[source.hub_id] = source
    return ReconcileFacts(
        exports=[*facts.exports, *more.exports],
        imports=[*facts.imports, *more.imports],
        standings=[*facts.standings, *more.standings],
        repeats=[*facts.repeats, *more.repeats],
        entries=[*facts.entries, *more.entries],
        forks=[*facts.forks, *more.forks],
        routes=[*facts.routes, *more.routes],
        strangers=[*facts.strangers, *more.strangers],
        sources=tuple(sorted(newest.values())),
        target=facts.target or more.target,
    )


def _of_routes(
    settings: BridgeSettings, came: Collection[bytes], log: Iterable[RecordedEntry]
) -> Iterator[RecordedEntry]:
    """Without what a bridge with other settings has entered: its streams are not read here.

    A refused carrier of a stream that is in no settings lies here all the same: it is told if it
    ``came`` to this importer or was refused for want of a route, and nothing more became of it.
    """
    mine = {(route.hub_id, route.source) for route in settings.streams.routes}
    refused: dict[bytes, RecordedEntry] = {}
    for recorded_entry in log:
        hub_id, stream, bundle_id = (
            getattr(recorded_entry.event, name, None)
            for name in ("source_hub_id", "stream", "bundle_id")
        )
        if hub_id is None or stream is None or (hub_id, stream) in mine:
            yield recorded_entry
        elif bundle_id is not None and is_refused(recorded_entry.event, came):
            refused[bundle_id] = recorded_entry
        elif bundle_id is not None:
            refused.pop(bundle_id, None)
    yield from refused.values()


def _routes(settings: BridgeSettings) -> Iterator[RouteFact]:
    for route in settings.streams.routes:
        yield RouteFact(route.hub_id, route.source, route.target)


def heard(ts: Iterable[T], hear: Callable[[T], None]) -> Iterator[T]:
    for item in ts:
        hear(item)
        yield item


def _imports(
    source: str, placed: Iterator[PlacedImport | ForeignFact], listener: Listener
) -> Iterator[Fact]:
    if source != ONLINE_LOG:
        return import_facts(placed)
    # The log tells both: that its own events are here, and what was exported.
    held = list(placed)
    return chain(import_facts(held), online_facts(heard(carried_log(held), listener.online)))
