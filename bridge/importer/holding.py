"""Decisions about valid carriers that are not imported now: held, here already, or heartbeats.

Each is audited when it is new. A valid bundle that may not be imported yet is held in ``waiting``.
"""

from __future__ import annotations

from dataclasses import replace

from bridge.audit_log import (
    AuditEvent,
    HeartbeatDuplicate,
    ImportBlocked,
    ImportDuplicate,
    ImportHeartbeat,
    ImportWaiting,
)
from bridge.carrier.format import CarrierLedger
from bridge.errors import printable
from bridge.importer.context import ImportContext
from bridge.importer.finish import Completion, ImportDecision, bundle_fields, outcome_of
from bridge.importer.ledger import BundleRow, LedgerChange, SeqSpan, heartbeat_note
from bridge.importer.outcome import ImportState, IncomingCarrier


def duplicate(context: ImportContext, carrier: IncomingCarrier, row: BundleRow) -> ImportDecision:
    """Remove a bundle of which every event is imported already."""
    known = context.ledger.bundle(row.bundle_id)
    bundle_row = replace(row, state=ImportState.DUPLICATE.value)
    if known is not None and carrier.is_new:
        bundle_row = known
    detail = "every event of it is imported already"
    return ImportDecision(
        outcome_of(ImportState.DUPLICATE, carrier, row, duplicates=row.count, detail=detail),
        Completion(
            events=(ImportDuplicate(**bundle_fields(row, context.operator)),),
            change=LedgerChange(row=bundle_row),
            removals=_every_copy(context, carrier, row),
        ),
    )


def waiting(
    context: ImportContext, carrier: IncomingCarrier, row: BundleRow, gap: SeqSpan
) -> ImportDecision:
    """Hold a bundle until the events before it are imported."""
    detail = f"events {gap.first} to {gap.last} of {printable(row.stream)} are not imported yet"
    event = ImportWaiting(
        gap_from=gap.first, gap_to=gap.last, **bundle_fields(row, context.operator)
    )
    return _hold(context, carrier, replace(row, state=ImportState.WAITING.value), event, detail)


def blocked(
    context: ImportContext,
    carrier: IncomingCarrier,
    row: BundleRow,
    *,
    by: str,
    detail: str,
    state: ImportState = ImportState.BLOCKED,
) -> ImportDecision:
    """Hold a bundle until people approve it or its stream is unfrozen."""
    event = ImportBlocked(by=by, detail=detail, **bundle_fields(row, context.operator))
    return _hold(context, carrier, replace(row, state=state.value), event, detail)


def _hold(
    context: ImportContext,
    carrier: IncomingCarrier,
    row: BundleRow,
    event: AuditEvent,
    detail: str,
) -> ImportDecision:
    """Hold a valid bundle in the state of its row; that it is still held is not audited again.

    If it is presented while it is held, only the first copy is stored.
    """
    known, import_dir = context.ledger.bundle(row.bundle_id), context.import_dir
    place, copy = import_dir.waiting(row.bundle_id), import_dir.inside(carrier.place)
    state = ImportState(row.state)
    outcome = outcome_of(state, carrier, row, detail=detail, place=str(place))
    is_known = known is not None and known.state == row.state
    if is_known and not carrier.is_new:
        return ImportDecision(outcome)
    if is_known:
        outcome = replace(outcome, detail=f"{detail}; it is held already")
    change = LedgerChange(row=replace(row, detail=detail))
    if not import_dir.is_filled(place):
        moves = ((copy, import_dir.inside(place)),)
        completion = Completion(events=(event,), change=change, moves=moves, removals=carrier.inbox)
        return ImportDecision(outcome, completion)
    if is_known:
        event = ImportDuplicate(held_as=row.state, **bundle_fields(row, context.operator))
    removals = (copy, *carrier.inbox) if carrier.is_new else carrier.inbox
    return ImportDecision(outcome, Completion(events=(event,), change=change, removals=removals))


def presented_again(
    context: ImportContext,
    carrier: IncomingCarrier,
    row: BundleRow,
    state: ImportState,
    *,
    code: str,
    detail: str,
) -> ImportDecision:
    """Remove another copy of a quarantined bundle; only the first one is stored."""
    event = ImportDuplicate(held_as=state.value, **bundle_fields(row, context.operator))
    place = str(context.import_dir.quarantine(row.bundle_id.hex()))
    return ImportDecision(
        outcome_of(state, carrier, row, code=code, detail=detail, place=place),
        Completion(events=(event,), removals=_every_copy(context, carrier, row)),
    )


def heartbeat(
    context: ImportContext, carrier: IncomingCarrier, ledger: CarrierLedger
) -> ImportDecision:
    """Archive a heartbeat; if it is presented again, it is only audited."""
    entry, copy = ledger.tail[-1], context.import_dir.inside(carrier.place)
    is_known = context.ledger.knows_heartbeat(ledger)
    kind = HeartbeatDuplicate if is_known else ImportHeartbeat
    event = kind(
        operator=context.operator,
        n=entry.n,
        source_hub_id=entry.hub_id,
        checkpoint_id=entry.checkpoint_id,
        checkpoint_at=entry.created_at,
    )
    name = f"heartbeat-{entry.checkpoint_id.hex()[:16]}-{context.random(4).hex()}"
    state = ImportState.DUPLICATE if is_known else ImportState.HEARTBEAT
    detail = f"heartbeat, entry {entry.n} of the ledger"
    outcome = outcome_of(state, carrier, None, detail=detail)
    return ImportDecision(
        replace(outcome, checkpoint_at=entry.created_at),
        Completion(
            events=(event,),
            change=LedgerChange(notes=(heartbeat_note(ledger),)),
            moves=() if is_known else ((copy, f"archive/{name}"),),
            removals=(copy, *carrier.inbox) if is_known else carrier.inbox,
        ),
    )


def _every_copy(
    context: ImportContext, carrier: IncomingCarrier, row: BundleRow
) -> tuple[str, ...]:
    """Our copy of a carrier, what was received, and a copy that was held."""
    held = context.import_dir.left_waiting(row.bundle_id) if carrier.is_new else ()
    return (context.import_dir.inside(carrier.place), *carrier.inbox, *held)
