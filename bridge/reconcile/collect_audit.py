"""What the two audit logs of a bridge tell (AGB0 4.6)."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from typing import Final

from bridge.audit import Recorded
from bridge.audit_events import (
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
)
from bridge.carrier.ledger import NO_ENTRY, LedgerEntry
from bridge.reconcile.fact_file import Fact
from bridge.reconcile.facts import Entry, Export, Fork, Repeat, Standing, State

UNMAPPED: Final = "UNMAPPED"
"""The code of a bundle whose stream is in no settings."""
_CLAIMED_AT: Final = 0
"""Before every entry of a log: whatever is known of a bundle itself outweighs what a carrier that
was refused claims to have held of it."""
_STATES: Final[dict[type[AuditEvent], State]] = {
    ImportBegin: State.PARTIAL,
    ImportSuccess: State.IMPORTED,
    ImportWaiting: State.WAITING,
}
"""What an entry leaves a bundle in. A begin without a success after it was cut short."""


def online_facts(log: Iterable[Recorded]) -> Iterator[Fact]:
    """Of the exporting side. What was begun counts as exported once it is on a medium; the ledger
    is told from its first entry on, as far as the log goes without a hole.
    """
    ledgers: dict[bytes, LedgerEntry | None] = {}
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
                yield Entry(
                    event.bridge_id, entry.n, entry.prev, entry.entry_hash(), entry.bundle_id or b""
                )


def offline_facts(log: Iterable[Recorded]) -> Iterator[Fact]:
    """Of the importing side; the place in the log says what came last."""
    for seq, _, event in log:
        if isinstance(event, Equivocation):
            yield Fork(event.source_hub_id, event.stream, event.seq)
            if event.bundle_id is not None:
                yield Standing(event.bundle_id, seq, State.QUARANTINED)
        elif isinstance(event, ImportDuplicate):
            yield Repeat(event.bundle_id, seq)
        else:
            yield from _standing(seq, event)


def is_refused(event: AuditEvent, came: Collection[bytes]) -> bool:
    """Whether a carrier was put into quarantine that ``came`` here, or that no route is for."""
    if not isinstance(event, ImportQuarantined):
        return False
    return event.code == UNMAPPED or event.bundle_id in came


def _standing(seq: int, event: AuditEvent) -> Iterator[Standing]:
    if isinstance(event, ImportQuarantined) and event.bundle_id is not None:
        at = _CLAIMED_AT if event.is_claimed else seq
        yield Standing(event.bundle_id, at, State.QUARANTINED, *_known_place(event))
    elif isinstance(event, BundleReleased) and event.bundle_id is not None:
        yield Standing(event.bundle_id, seq, State.WAITING)
    elif isinstance(event, ImportBlocked):
        # What people or a scan have refused does not wait: it is in quarantine.
        state = State.QUARANTINED if event.is_kept_out else State.WAITING
        yield Standing(event.bundle_id, seq, state, *_place(event))
    elif isinstance(event, ImportBegin | ImportSuccess | ImportWaiting):
        yield Standing(event.bundle_id, seq, _STATES[type(event)], *_place(event))


def _place(
    event: ImportBegin | ImportSuccess | ImportWaiting | ImportBlocked,
) -> tuple[bytes, str, int, int]:
    return event.source_hub_id, event.stream, event.from_seq, event.to_seq


def _known_place(event: ImportQuarantined) -> tuple[bytes, str, int, int]:
    """What a refused bundle claims to hold, if it could be read so far."""
    if event.source_hub_id and event.stream and event.from_seq and event.to_seq:
        return event.source_hub_id, event.stream, event.from_seq, event.to_seq
    return b"", "", 0, 0


def _entry(event: ExportBegin, last: LedgerEntry | None) -> LedgerEntry:
    return LedgerEntry(
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
