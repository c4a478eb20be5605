"""Rebuild of the import ledger from the logs of this zone, by an identity that may read them.

Held is what is in the import streams; each event is verified before it counts. The audit log says
which bundles they came in. Carriers that waited, or were being committed, return to the inbox and
are imported as new.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Final, NamedTuple

from bridge import connect
from bridge.audit_log import (
    REJECTED,
    AuditEvent,
    BundleReleased,
    Equivocation,
    ImportBegin,
    ImportBlocked,
    ImportCheckpoint,
    ImportSuccess,
    LedgerRebuilt,
    StreamThawed,
    TrustChanged,
    read_log,
)
from bridge.carrier.reader import CarrierSet
from bridge.errors import CarrierRefused, printable
from bridge.importer.commit import PLAN_NOTE
from bridge.importer.context import ImportContext
from bridge.importer.directory import ImportDirectory
from bridge.importer.finish import Completion, finish
from bridge.importer.ledger import (
    BundleRow,
    BundleRun,
    LedgerChange,
    LedgerContents,
    LedgerNote,
    SeqSpan,
    SourceStream,
    Uncovered,
    heartbeat_note,
)
from bridge.importer.outcome import ImportState, bags_in
from bridge.importer.run import LAST_PLAN, ImportRequest, importing, opened
from bridge.importer.trust_audit import TrustHistory
from bridge.settings import BridgeSettings
from bridge.stream_map import OFFLINE_LOG, StreamRoute
from bridge.trust import TrustStore
from bridge.verify import trusted_hub
from veen.client.client import Client
from veen.client.log_head import Pair
from veen.client.transport import RetryPolicy
from veen.errors import Malformed, Untrusted, VeenError
from veen.events import ImportedEvent, read_imported
from veen.foreign import Foreign
from veen.hub_identity import HubIdentity
from veen.system.config import BadSettings
from veen.system.environment import Progress, Runtime, Watch, no_progress, no_progress_watch

_log = logging.getLogger(__name__)
_FILES: Final = ("", "-wal", "-shm")


@dataclass(slots=True)
class Audited:
    """The state of bundles according to the audit log. ``rejected`` are bundles that people
    rejected and that were not imported since; ``covered`` those that a checkpoint covers.
    """

    begun: dict[bytes, ImportBegin] = field(default_factory=dict)
    succeeded: dict[bytes, ImportSuccess] = field(default_factory=dict)
    rejected: dict[bytes, ImportBlocked] = field(default_factory=dict)
    forks: list[Equivocation] = field(default_factory=list)
    covered: set[bytes] = field(default_factory=set)
    trust: list[TrustChanged] = field(default_factory=list)

    def add(self, event: AuditEvent) -> None:
        """Apply the next entry of the log."""
        match event:
            case ImportBegin():
                self.begun[event.bundle_id] = event
                self.rejected.pop(event.bundle_id, None)
            case ImportSuccess():
                self.succeeded[event.bundle_id] = event
            case ImportCheckpoint():
                self.covered.update(self.succeeded)
            case ImportBlocked(decision=decision) if decision == REJECTED:
                self.rejected[event.bundle_id] = event
            case BundleReleased(bundle_id=bundle_id) if bundle_id is not None:
                self.rejected.pop(bundle_id, None)
            case Equivocation():
                self.forks.append(event)
            case TrustChanged():
                self.trust.append(event)
            case StreamThawed():
                unfrozen = (event.source_hub_id, event.stream)
                self.forks = [
                    fork for fork in self.forks if (fork.source_hub_id, fork.stream) != unfrozen
                ]


def read_audited(reader: Client, author: bytes | None = None) -> Audited:
    audited = Audited()
    for recorded in read_log(reader, OFFLINE_LOG, author=author):
        audited.add(recorded.event)
    return audited


class BundlePlaces(NamedTuple):
    """The places of a bundle's events in the import stream, their number, and how many of them
    are placeholders.
    """

    first: int
    last: int
    imported: int
    excluded: int


@dataclass(slots=True)
class ImportedPlaces:
    """An import stream; ``whole`` are the bundles whose last event is there."""

    stream: SourceStream
    target: str
    runs: list[BundleRun] = field(default_factory=list)
    whole: set[bytes] = field(default_factory=set)
    places: dict[bytes, BundlePlaces] = field(default_factory=dict)
    left_out: int = 0
    """Messages of other clients that are no imported events."""

    def by_bundle(self) -> dict[bytes, list[BundleRun]]:
        runs: dict[bytes, list[BundleRun]] = {}
        for run in self.runs:
            runs.setdefault(run.bundle_id, []).append(run)
        return runs


def read_import_stream(
    reader: Client,
    route: StreamRoute,
    trust: TrustStore,
    progress: Progress = no_progress,
    *,
    bridge_id: bytes | None = None,
) -> ImportedPlaces:
    """Read an import stream as written by ``bridge_id`` and earlier bridges.

    A message that is no event of the route's source is skipped and counted, unless a client that
    imports here has written it: then Untrusted is raised.
    """
    places = ImportedPlaces(SourceStream(route.hub_id, route.source), route.target)
    held: dict[int, tuple[bytes, bytes]] = {}
    foreign = Foreign(partial(_refused, route.target), bridge_id)
    hub = trusted_hub(route.hub_id, trust)
    for pair in reader.read(route.target):
        seq, client_id = pair.receipt.stream_seq, pair.msg.client_id
        try:
            event = _event(reader, pair, route, hub)
        except (Malformed, Untrusted) as error:
            foreign.unread(seq, client_id, error)
            places.left_out += 1
            _log.warning("%s, stream_seq %d is left out: %s", route.target, seq, error)
            continue
        foreign.read(client_id)
        receipt = event.receipt()
        if receipt.stream_seq in held:
            again = f"expected each event once, got {route.source} {receipt.stream_seq} again"
            raise _refused(route.target, seq, Untrusted(again))
        held[receipt.stream_seq] = event.bundle_id, receipt.leaf_hash + receipt.mmr_root
        _note(places, event, seq)
        progress(len(held), None)
    foreign.finish()
    places.runs = _runs(held)
    return places


def _event(reader: Client, pair: Pair, route: StreamRoute, hub: HubIdentity) -> ImportedEvent:
    opened = reader.open_payload(pair.msg)
    event = read_imported(opened.header.schema, opened.body, pair.msg.client_id)
    if (event.source_hub_id, event.origin_stream) != (route.hub_id, route.source):
        raise Untrusted(
            f"expected an event of {route.source} of hub {route.hub_id.hex()}, got one of "
            f"{printable(event.origin_stream)} of hub {event.source_hub_id.hex()}"
        )
    event.verify(hub)
    return event


def _refused(target: str, seq: int, error: VeenError) -> VeenError:
    untrusted = Untrusted(f"{target}, stream_seq {seq}: {error}")
    untrusted.__cause__ = error
    return untrusted


def _note(places: ImportedPlaces, event: ImportedEvent, seq: int) -> None:
    known = places.places.get(event.bundle_id, BundlePlaces(seq, seq, 0, 0))
    excluded = known.excluded + (event.excluded is not None)
    places.places[event.bundle_id] = BundlePlaces(known.first, seq, known.imported + 1, excluded)
    if event.is_last:
        places.whole.add(event.bundle_id)


def _runs(held: dict[int, tuple[bytes, bytes]]) -> list[BundleRun]:
    """Runs of consecutive events of the same bundle."""
    runs: list[BundleRun] = []
    parts: list[bytes] = []
    for seq in sorted(held):
        bundle_id, entry = held[seq]
        last = runs[-1] if runs else None
        if last is not None and last.bundle_id == bundle_id and last.span.last == seq - 1:
            runs[-1] = last._replace(span=SeqSpan(last.span.first, seq))
            parts[-1] += entry
        else:
            runs.append(BundleRun(SeqSpan(seq, seq), bundle_id, b""))
            parts.append(entry)
    return [run._replace(entries=run_entries) for run, run_entries in zip(runs, parts, strict=True)]


class RebuiltLedger(NamedTuple):
    streams: int
    bundles: int
    events: int


def rebuild_ledger(
    settings: BridgeSettings,
    request: ImportRequest,
    runtime: Runtime,
    retry_policy: RetryPolicy | None = None,
    watch: Watch = no_progress_watch,
) -> RebuiltLedger:
    """Rename the ledger and build a new one."""
    if settings.reader is None:
        raise BadSettings(
            "expected a table [reader], got none; name an identity that reads the import streams"
        )
    import_dir = ImportDirectory(importing(settings).state)
    with import_dir.locked():
        _set_aside(import_dir)
    with (
        opened(settings, request, runtime, retry_policy, watch) as context,
        connect.open_bridge_client(
            settings.hub,
            settings.reader,
            runtime=runtime,
            retry_policy=retry_policy,
            keys=settings.reader_keys,
        ) as reader,
    ):
        # Events that were handed over before the ledger was lost count as held.
        context.bridge.flush()
        context.audit_outbox.flush()
        return _rebuild(context, reader)


def _rebuild(context: ImportContext, reader: Client) -> RebuiltLedger:
    audited = read_audited(reader, context.audit_outbox.author)
    written = [_written(context, reader, route) for route in context.streams.routes]
    runs = [(places.stream, run) for places in written for run in places.runs]
    rows, late = _rows(context, written, audited)
    ledger = RebuiltLedger(len({stream for stream, _ in runs}), len(rows), sum(map(_size, written)))
    detail = f"{ledger.events} events of {ledger.bundles} bundles are held"
    event = LedgerRebuilt(
        operator=context.operator, streams=ledger.streams, bundles=ledger.bundles, detail=detail
    )
    uncovered = _uncovered(context, written, audited)
    routes = {(route.hub_id, route.source) for route in context.streams.routes}
    rejected = [
        _rejected(item)
        for item in audited.rejected.values()
        if (item.source_hub_id, item.stream) in routes
    ]
    last = LedgerNote(LAST_PLAN, context.bridge.note(PLAN_NOTE) or b"")
    change = LedgerChange(
        restored=LedgerContents([*rejected, *rows], runs, audited.forks, uncovered),
        notes=(last, TrustHistory.of(audited.trust).encode()),
    )
    import_dir = context.import_dir
    completion = Completion(
        events=(*late, event),
        change=change,
        moves=_back_to_inbox(import_dir),
        removals=tuple(import_dir.inside(place) for place in _unfinished(import_dir)),
    )
    finish(context, completion)
    _note_carriers(context)
    return ledger


def _written(context: ImportContext, reader: Client, route: StreamRoute) -> ImportedPlaces:
    with context.watch(f"reading {route.target}", "events") as progress:
        author = context.bridge.session.identity.client_id
        return read_import_stream(reader, route, context.trust, progress, bridge_id=author)


def _rows(
    context: ImportContext, written: list[ImportedPlaces], audited: Audited
) -> tuple[list[BundleRow], list[ImportSuccess]]:
    """The imported bundles, and the successes that were not audited yet."""
    rows: list[BundleRow] = []
    late: list[ImportSuccess] = []
    for places in written:
        for bundle_id, runs in places.by_bundle().items():
            success, begin = audited.succeeded.get(bundle_id), audited.begun.get(bundle_id)
            is_whole = bundle_id in places.whole
            rows.append(_row(places, bundle_id, runs, success or begin, is_whole))
            if success is None and begin is not None and is_whole:
                late.append(_success(context, places, bundle_id, begin))
    return rows, late


def _row(
    written: ImportedPlaces,
    bundle_id: bytes,
    runs: list[BundleRun],
    audited: ImportBegin | ImportSuccess | None,
    is_whole: bool,
) -> BundleRow:
    return BundleRow(
        bundle_id=bundle_id,
        state=(ImportState.IMPORTED if is_whole else ImportState.PARTIAL).value,
        source_hub_id=written.stream.source_hub_id,
        stream=written.stream.name,
        target=written.target,
        from_seq=audited.from_seq if audited else runs[0].span.first,
        to_seq=audited.to_seq if audited else runs[-1].span.last,
        checkpoint_id=bytes(32),
        checkpoint_at=0,
        sha256=audited.sha256 if audited else bytes(32),
        detail="" if is_whole else "its import was interrupted; bring its carrier again",
    )


def _success(
    context: ImportContext, written: ImportedPlaces, bundle_id: bytes, begin: ImportBegin
) -> ImportSuccess:
    first, last, imported, excluded = written.places[bundle_id]
    return ImportSuccess(
        operator=context.operator,
        bundle_id=bundle_id,
        sha256=begin.sha256,
        source_hub_id=begin.source_hub_id,
        stream=begin.stream,
        from_seq=begin.from_seq,
        to_seq=begin.to_seq,
        count=begin.count,
        target=written.target,
        target_from=first,
        target_to=last,
        imported=imported,
        duplicates=begin.count - imported,
        excluded=excluded,
        verification_result="derived from the import stream when the ledger was rebuilt",
        resumed_from=imported,
    )


def _rejected(blocked: ImportBlocked) -> BundleRow:
    """The row of a rejected bundle, since a rejection outlives the ledger."""
    return BundleRow(
        bundle_id=blocked.bundle_id,
        state=ImportState.REJECTED.value,
        source_hub_id=blocked.source_hub_id,
        stream=blocked.stream,
        target="",
        from_seq=blocked.from_seq,
        to_seq=blocked.to_seq,
        checkpoint_id=bytes(32),
        checkpoint_at=0,
        sha256=blocked.sha256,
        detail=blocked.detail,
    )


def _uncovered(
    context: ImportContext, written: list[ImportedPlaces], audited: Audited
) -> list[Uncovered]:
    """Bundles without a known covering checkpoint; a second one does no harm."""
    if context.settings.checkpoint is None:
        return []
    return [
        Uncovered(bundle_id, places.places[bundle_id].last)
        for places in written
        for bundle_id in sorted(places.whole - audited.covered)
    ]


def _size(written: ImportedPlaces) -> int:
    return sum(run.span.size for run in written.runs)


def _unfinished(import_dir: ImportDirectory) -> list[Path]:
    folders = (import_dir.root / "waiting", import_dir.root / "committing")
    return [place for folder in folders for place in sorted(folder.iterdir())]


def _back_to_inbox(import_dir: ImportDirectory) -> tuple[tuple[str, str], ...]:
    return tuple(
        (import_dir.inside(bag), f"inbox/again-{place.name}-{bag.name}")
        for place in _unfinished(import_dir)
        for bag in bags_in(place)
    )


def _note_carriers(context: ImportContext) -> None:
    """Note the ledgers of archived carriers that are not encrypted."""
    for place in sorted(context.import_dir.archive("").iterdir()):
        try:
            with CarrierSet(bags_in(place)) as carrier_set:
                carrier_set.verify_signatures(context.trust)
                ledger = carrier_set.carrier.ledger
                if ledger is not None:
                    context.ledger.note_carrier(ledger)
                if ledger is not None and ledger.tail[-1].bundle_id is None:
                    context.ledger.note(heartbeat_note(ledger))
        except CarrierRefused:
            continue


def _set_aside(import_dir: ImportDirectory) -> None:
    """Rename the old ledger."""
    number = 1
    while import_dir.ledger.with_name(f"ledger.db.old-{number}").exists():
        number += 1
    for suffix in _FILES:
        path: Path = import_dir.ledger.with_name(f"ledger.db{suffix}")
        if path.exists():
            path.rename(path.with_name(f"ledger.db.old-{number}{suffix}"))
