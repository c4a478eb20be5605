"""Sound bundles that do not go in now: held until they may, or here already."""

from __future__ import annotations

from dataclasses import replace

from bridge.audit_events import (
    AuditEvent,
    HeartbeatDuplicate,
    ImportBlocked,
    ImportDuplicate,
    ImportHeartbeat,
    ImportWaiting,
)
from bridge.carrier.ledger import Ledger
from bridge.importer.audit_fields import bundle_fields
from bridge.importer.closing import close
from bridge.importer.conclusion import closing_of, outcome_of
from bridge.importer.ledger_tables import BundleRow, Span
from bridge.importer.outcome import Outcome, State
from bridge.importer.tools import Tools
from bridge.importer.work import Work
from bridge.printable import printable


class Holding:
    def __init__(self, tools: Tools) -> None:
        self._tools = tools

    def duplicate(self, work: Work, row: BundleRow, known: BundleRow | None) -> Outcome:
        event = ImportDuplicate(**bundle_fields(row, self._tools.operator))
        closing = closing_of(
            self._tools, [event], removals=(self._inside(work), *work.inbox, *self._left(work, row))
        )
        kept = known or replace(row, state=State.DUPLICATE.value)
        if known is not None and not work.is_new:
            kept = replace(row, state=State.DUPLICATE.value)
        self._tools.ledger.conclude(kept, closing)
        close(self._tools, closing)
        told = "every event of it is here already"
        return outcome_of(State.DUPLICATE, work, row, duplicates=row.count, told=told)

    def waiting(self, work: Work, row: BundleRow, gap: Span) -> Outcome:
        told = f"events {gap.first} to {gap.last} of {printable(row.stream)} are not here yet"
        event = ImportWaiting(
            gap_from=gap.first, gap_to=gap.last, **bundle_fields(row, self._tools.operator)
        )
        return self._hold(work, row, event, State.WAITING, told)

    def blocked(self, work: Work, row: BundleRow, state: State, by: str, told: str) -> Outcome:
        fields = bundle_fields(row, self._tools.operator)
        return self._hold(work, row, ImportBlocked(by=by, told=told, **fields), state, told)

    def _hold(
        self, work: Work, row: BundleRow, event: AuditEvent, state: State, told: str
    ) -> Outcome:
        """Keep a valid bundle until it may go in; that it still waits is not told again.

        One that is presented while it lies here is kept once, as it was.
        """
        tools, known = self._tools, self._tools.ledger.bundle(row.bundle_id)
        place = tools.airlock.waiting(row.bundle_id)
        outcome = outcome_of(state, work, row, told=told, place=str(place))
        is_known = known is not None and known.state == state.value
        if is_known and not work.is_new:
            return outcome
        if not tools.airlock.is_filled(place):
            moves = ((self._inside(work), tools.airlock.inside(place)),)
            closing = closing_of(tools, [event], moves=moves, removals=work.inbox)
        else:
            if is_known:
                fields = bundle_fields(row, tools.operator)
                event = ImportDuplicate(held_as=state.value, **fields)
            copy = (self._inside(work),) if work.is_new else ()
            closing = closing_of(tools, [event], removals=(*copy, *work.inbox))
        tools.ledger.conclude(replace(row, state=state.value, told=told), closing)
        close(tools, closing)
        return replace(outcome, told=f"{told}; it lies here already") if is_known else outcome

    def again(self, work: Work, row: BundleRow, state: State, told: str) -> Outcome:
        """A bundle that lies in quarantine, and is presented once more; it lies there once."""
        event = ImportDuplicate(held_as=state.value, **bundle_fields(row, self._tools.operator))
        closing = closing_of(
            self._tools, [event], removals=(self._inside(work), *work.inbox, *self._left(work, row))
        )
        self._tools.ledger.conclude(None, closing)
        close(self._tools, closing)
        place = str(self._tools.airlock.quarantine(row.bundle_id.hex()))
        return outcome_of(state, work, row, told=told, place=place)

    def heartbeat(self, work: Work, ledger: Ledger) -> Outcome:
        """Kept once; the same one again is only told of."""
        entry, tools = ledger.tail[-1], self._tools
        is_known = tools.ledger.knows_heartbeat(ledger)
        kind = HeartbeatDuplicate if is_known else ImportHeartbeat
        event = kind(
            operator=tools.operator,
            n=entry.n,
            source_hub_id=entry.hub_id,
            checkpoint_id=entry.checkpoint_id,
            checkpoint_at=entry.created_at,
        )
        name = f"heartbeat-{entry.checkpoint_id.hex()[:16]}-{tools.random(4).hex()}"
        moves = () if is_known else ((self._inside(work), f"archive/{name}"),)
        copy = (self._inside(work),) if is_known else ()
        closing = closing_of(tools, [event], moves=moves, removals=(*copy, *work.inbox))
        tools.ledger.conclude_heartbeat(ledger, closing)
        close(tools, closing)
        state = State.DUPLICATE if is_known else State.HEARTBEAT
        told = f"heartbeat, entry {entry.n} of the ledger"
        return replace(outcome_of(state, work, None, told=told), checkpoint_at=entry.created_at)

    def _left(self, work: Work, row: BundleRow) -> tuple[str, ...]:
        return self._tools.airlock.left_waiting(row.bundle_id) if work.is_new else ()

    def _inside(self, work: Work) -> str:
        return self._tools.airlock.inside(work.place)
