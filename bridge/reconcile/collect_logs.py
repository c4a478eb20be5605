"""What the two audit logs of a bridge tell (AGB0 4.6).

What the import streams hold, event by event, as their readers may count it (AGB0 4.5).
"""

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
from bridge.carrier.format import NO_ENTRY, CarrierLedgerEntry
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
"""The code of a bundle whose stream is in no settings."""
_CLAIMED_AT: Final = 0
"""Before every entry of a log: whatever is known of a bundle itself outweighs what a carrier that
was refused claims to have held of it."""
_STATES: Final[dict[type[AuditEvent], BundleState]] = {
    ImportBegin: BundleState.PARTIAL,
    ImportSuccess: BundleState.IMPORTED,
    ImportWaiting: BundleState.WAITING,
}
"""What an entry leaves a bundle in. A begin without a success after it was cut short."""


def online_facts(log: Iterable[RecordedEntry]) -> Iterator[Fact]:
    """Of the exporting side. What was begun counts as exported once it is on a medium; the ledger
    is told from its first entry on, as far as the log goes without a hole.
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
                ledgers[event.bridge_id] = entry = _entry(event, last)
                yield LedgerFact(
                    event.bridge_id, entry.n, entry.prev, entry.entry_hash(), entry.bundle_id or b""
                )


def offline_facts(log: Iterable[RecordedEntry]) -> Iterator[Fact]:
    """Of the importing side; the place in the log says what came last."""
    for seq, _, event in log:
        if isinstance(event, Equivocation):
            yield ForkFact(event.source_hub_id, event.stream, event.seq)
            if event.bundle_id is not None:
                yield BundleFact(event.bundle_id, seq, BundleState.QUARANTINED)
        elif isinstance(event, ImportDuplicate):
            yield Repeat(event.bundle_id, seq)
        else:
            yield from _standing(seq, event)


def is_refused(event: AuditEvent, came: Collection[bytes]) -> bool:
    """Whether a carrier was put into quarantine that ``came`` here, or that no route is for."""
    if not isinstance(event, ImportQuarantined):
        return False
    return event.code == UNMAPPED or event.bundle_id in came


def _standing(seq: int, event: AuditEvent) -> Iterator[BundleFact]:
    if isinstance(event, ImportQuarantined) and event.bundle_id is not None:
        at = _CLAIMED_AT if event.is_claimed else seq
        yield BundleFact(event.bundle_id, at, BundleState.QUARANTINED, *_known_place(event))
    elif isinstance(event, BundleReleased) and event.bundle_id is not None:
        yield BundleFact(event.bundle_id, seq, BundleState.WAITING)
    elif isinstance(event, ImportBlocked):
        # What people or a scan have refused does not wait: it is in quarantine.
        state = BundleState.QUARANTINED if event.is_excluded else BundleState.WAITING
        yield BundleFact(event.bundle_id, seq, state, *_place(event))
    elif isinstance(event, ImportBegin | ImportSuccess | ImportWaiting):
        yield BundleFact(event.bundle_id, seq, _STATES[type(event)], *_place(event))


def _place(
    event: ImportBegin | ImportSuccess | ImportWaiting | ImportBlocked,
) -> tuple[bytes, str, int, int]:
    return event.source_hub_id, event.stream, event.from_seq, event.to_seq


def _known_place(event: ImportQuarantined) -> tuple[bytes, str, int, int]:
    """What a refused bundle claims to hold, if it could be read so far."""
    if event.source_hub_id and event.stream and event.from_seq and event.to_seq:
        return event.source_hub_id, event.stream, event.from_seq, event.to_seq
    return b"", "", 0, 0


def _entry(event: ExportBegin, last: CarrierLedgerEntry | None) -> CarrierLedgerEntry:
    return CarrierLedgerEntry(
        n=event.n,
        prev=last.entry_hash() if last else NO_ENTRY,
        bundle_id=event.bundle_id,
        hub_id=event.source_hub_id,
        stream=event.stream,
        from_seq=event.from_seq,
        to_seq=event.to_seq,
        checkpoint_id=event.checkpoint_id,
        created_at=event.checkpoint_at,
    )


@dataclass(frozen=True, slots=True)
class PlacedImport:
    """An imported event and its place; ``is_seen`` once its bundle is there to its last event."""

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
    """All of one import stream, each message verified to stand in the hub's log.

    A message that cannot be opened or is no imported event is a Stranger. One of ``author``, or of
    another client that imports here, must open: what it says must not be guessed, so that ends it.
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
    for item in pending.held_back():
        yield PlacedImport(item.target, item.seq, item.event, item.receipt, is_seen=False)


def import_facts(placed: Iterable[PlacedImport | ForeignFact]) -> Iterator[Import | ForeignFact]:
    """Runs of events that follow each other in both streams; times are those of their ends."""
    run: Import | None = None
    for item in placed:
        if isinstance(item, ForeignFact):
            yield item
            continue
        if run is not None and _follows(run, item):
            run = run._replace(
                last=item.receipt.stream_seq,
                time_last=item.receipt.hub_ts,
                root=item.receipt.mmr_root,
            )
            continue
        if run is not None:
            yield run
        run = _run(item)
    if run is not None:
        yield run


def carried_log(placed: Iterable[PlacedImport | ForeignFact]) -> Iterator[RecordedEntry]:
    """The exporting side's audit log, from the import stream it came in; what was kept out of it
    or cannot be read is passed over, and shows as events of that stream.
    """
    for item in placed:
        if isinstance(item, PlacedImport) and item.held is ImportedFact.IMPORTED:
            try:
                event = parse(item.event.origin_event())
            except (NotAnEvent, Malformed):
                continue
            yield RecordedEntry(item.receipt.stream_seq, item.receipt.hub_ts, event)


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
    due = import_.event.source_hub_id, import_.event.origin_stream, import_.receipt.stream_seq
    ahead = import_.seq - import_.receipt.stream_seq == run.target_first - run.first
    return ahead and mine == (*due, import_.event.bundle_id, import_.held, import_.target)
