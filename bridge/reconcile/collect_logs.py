"""Facts from the logs of a bridge: the two audit logs, and the import streams (AGB0 4.5, 4.6)."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Final

from bridge.audit_log import (
    AuditEvent,
    BundleReleased,
    Equivocation,
    ExportBegin,
    ExportSuccess,
    ImportBegin,
    ImportBlocked,
    ImportDuplicate,
    ImportQuarantined,
    ImportSuccess,
    ImportWaiting,
    RecordedEntry,
    parse,
)
from bridge.carrier.format import CarrierLedgerEntry
from bridge.reconcile.facts import (
    BundleFact,
    BundleState,
    Export,
    Fact,
    ForeignFact,
    ForkFact,
    Import,
    ImportedFact,
    LedgerFact,
    Repeat,
)
from veen.client.client import Client
from veen.errors import Malformed, Unopenable, Untrusted, VeenError
from veen.events import ImportedEvent, NotAnEvent, Visibility, read_imported
from veen.foreign import Foreign
from veen.receipt import Receipt

UNMAPPED: Final = "UNMAPPED"
"""The code of a bundle whose stream has no route."""
_CLAIMED_AT: Final = 0
"""Before every entry of a log: anything known of a bundle itself outweighs the claims of a refused
carrier."""
_STATES: Final[dict[type[AuditEvent], BundleState]] = {
    ImportBegin: BundleState.PARTIAL,
    ImportSuccess: BundleState.IMPORTED,
    ImportWaiting: BundleState.WAITING,
}
"""The state of a bundle after an entry. A begin without a later success was interrupted."""


def online_facts(log: Iterable[RecordedEntry]) -> Iterator[Fact]:
    """Facts of the exporting side's audit log. A begun export counts once it is on a medium; the
    ledger is followed from its first entry up to the first gap.
    """
    ledgers: dict[bytes, CarrierLedgerEntry | None] = {}
    for _, _, event in log:
        if isinstance(event, ExportSuccess):
            yield Export(
                event.source_hub_id,
                event.stream,
                event.from_seq,
                event.to_seq,
                event.bundle_id,
                "audit",
                event.root,
            )
        elif isinstance(event, ExportBegin):
            last = ledgers.get(event.bridge_id)
            if event.n == (last.n + 1 if last else 1):
                ledgers[event.bridge_id] = entry = event.ledger_entry(last)
                yield LedgerFact(
                    event.bridge_id, entry.n, entry.prev, entry.entry_hash(), entry.bundle_id or b""
                )


def offline_facts(log: Iterable[RecordedEntry]) -> Iterator[Fact]:
    """Facts of the importing side's audit log; the sequence number says what came last."""
    for seq, _, event in log:
        if isinstance(event, Equivocation):
            yield ForkFact(event.source_hub_id, event.stream, event.seq)
            if event.bundle_id is not None:
                yield BundleFact(event.bundle_id, seq, BundleState.QUARANTINED)
        elif isinstance(event, ImportDuplicate):
            yield Repeat(event.bundle_id, seq)
        else:
            yield from _bundle_facts(seq, event)


def is_refused(event: AuditEvent, came: Collection[bytes]) -> bool:
    """Whether a carrier was quarantined that ``came`` here, or that has no route."""
    if not isinstance(event, ImportQuarantined):
        return False
    return event.code == UNMAPPED or event.bundle_id in came


def _bundle_facts(seq: int, event: AuditEvent) -> Iterator[BundleFact]:
    if isinstance(event, ImportQuarantined) and event.bundle_id is not None:
        at = _CLAIMED_AT if event.is_claimed else seq
        yield BundleFact(event.bundle_id, at, BundleState.QUARANTINED, *_known_place(event))
    elif isinstance(event, BundleReleased) and event.bundle_id is not None:
        yield BundleFact(event.bundle_id, seq, BundleState.WAITING)
    elif isinstance(event, ImportBlocked):
        # A bundle that people rejected, or the scan refused, does not wait: it is in quarantine.
        state = BundleState.QUARANTINED if event.is_excluded else BundleState.WAITING
        yield BundleFact(event.bundle_id, seq, state, *_place(event))
    elif isinstance(event, ImportBegin | ImportSuccess | ImportWaiting):
        yield BundleFact(event.bundle_id, seq, _STATES[type(event)], *_place(event))


def _place(
    event: ImportBegin | ImportSuccess | ImportWaiting | ImportBlocked,
) -> tuple[bytes, str, int, int]:
    return event.source_hub_id, event.stream, event.from_seq, event.to_seq


def _known_place(event: ImportQuarantined) -> tuple[bytes, str, int, int]:
    """The range that a refused bundle claims to hold, if it could be read."""
    if event.source_hub_id and event.stream and event.from_seq and event.to_seq:
        return event.source_hub_id, event.stream, event.from_seq, event.to_seq
    return b"", "", 0, 0


@dataclass(frozen=True, slots=True)
class PlacedImport:
    """An imported event and its place; ``is_seen`` if the last event of its bundle is there."""

    target: str
    seq: int
    event: ImportedEvent
    receipt: Receipt
    is_seen: bool

    @property
    def held(self) -> ImportedFact:
        if not self.is_seen:
            return ImportedFact.UNSEEN
        return ImportedFact.IMPORTED if self.event.excluded is None else ImportedFact.EXCLUDED


def walk(
    reader: Client, target: str, author: bytes | None = None
) -> Iterator[PlacedImport | ForeignFact]:
    """All messages of an import stream, each verified to be in the hub's log.

    A message that cannot be opened or is no imported event is a ForeignFact. A message of
    ``author``, or of another client that imports here, must be readable, else Untrusted is raised.
    """
    pending: Visibility[PlacedImport] = Visibility()
    foreign = Foreign(partial(_unopened, target), author)
    for pair in reader.read(target):
        seq, client_id = pair.receipt.stream_seq, pair.msg.client_id
        try:
            opened = reader.open_payload(pair.msg)
            event = read_imported(opened.header.schema, opened.body, client_id)
        except Unopenable as error:
            foreign.unread(seq, client_id, error)
            yield ForeignFact(target, seq)
            continue
        except Malformed:
            yield ForeignFact(target, seq)
            continue
        foreign.read(client_id)
        yield from pending.add(
            event, PlacedImport(target, seq, event, event.receipt(), is_seen=True)
        )
    foreign.finish()
    for held_back in pending.held_back():
        yield PlacedImport(
            held_back.target, held_back.seq, held_back.event, held_back.receipt, is_seen=False
        )


def import_facts(placed: Iterable[PlacedImport | ForeignFact]) -> Iterator[Import | ForeignFact]:
    """Runs of events that are consecutive in both streams, with the times of their ends."""
    run: Import | None = None
    for import_ in placed:
        if isinstance(import_, ForeignFact):
            yield import_
            continue
        if run is not None and _follows(run, import_):
            run = run._replace(
                last=import_.receipt.stream_seq,
                time_last=import_.receipt.hub_ts,
                root=import_.receipt.mmr_root,
            )
            continue
        if run is not None:
            yield run
        run = _run(import_)
    if run is not None:
        yield run


def carried_log(placed: Iterable[PlacedImport | ForeignFact]) -> Iterator[RecordedEntry]:
    """The exporting side's audit log, from its import stream. Events that are excluded or cannot be
    read are skipped, and are still facts of that stream.
    """
    for import_ in placed:
        if isinstance(import_, PlacedImport) and import_.held is ImportedFact.IMPORTED:
            try:
                event = parse(import_.event.origin_event())
            except (NotAnEvent, Malformed):
                continue
            yield RecordedEntry(import_.receipt.stream_seq, import_.receipt.hub_ts, event)


def _unopened(target: str, seq: int, error: VeenError) -> VeenError:
    untrusted = Untrusted(
        f"{target}, stream_seq {seq}: {error}; read it with the identity that the importer seals to"
    )
    untrusted.__cause__ = error
    return untrusted


def _run(import_: PlacedImport) -> Import:
    seq, hub_ts = import_.receipt.stream_seq, import_.receipt.hub_ts
    return Import(
        import_.event.source_hub_id,
        import_.event.origin_stream,
        seq,
        seq,
        import_.event.bundle_id,
        import_.held,
        import_.target,
        import_.seq,
        hub_ts,
        hub_ts,
        import_.receipt.mmr_root,
    )


def _follows(run: Import, import_: PlacedImport) -> bool:
    mine = (run.hub_id, run.stream, run.last + 1, run.bundle_id, run.held, run.target)
    theirs = import_.event.source_hub_id, import_.event.origin_stream, import_.receipt.stream_seq
    ahead = import_.seq - import_.receipt.stream_seq == run.target_first - run.first
    return ahead and mine == (*theirs, import_.event.bundle_id, import_.held, import_.target)
