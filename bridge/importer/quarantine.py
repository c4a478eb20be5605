"""Outcomes of carriers that are not imported now: held, duplicate, quarantined or refused.

Each is audited. A valid bundle that may not be imported yet is held. A bag that no trusted exporter
has signed may be anything, and of any size: only its hashes and the reason are stored, since a
stored copy would let any medium fill the disk.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Final

from bridge.audit_log import (
    AuditEvent,
    Equivocation,
    HeartbeatDuplicate,
    ImportBlocked,
    ImportDuplicate,
    ImportFailed,
    ImportHeartbeat,
    ImportQuarantined,
    ImportWaiting,
)
from bridge.carrier.directory import LEADS_ELSEWHERE, BagPath, carrier_name
from bridge.carrier.format import CarrierLedger
from bridge.errors import CarrierFault, Refused, printable
from bridge.importer.checkpoints import Contradiction
from bridge.importer.context import ImportContext
from bridge.importer.directory import HASHES, KEPT, REASON, code_of
from bridge.importer.equivocation import checkpoint_evidence, two_checkpoints
from bridge.importer.finish import (
    apply_pending,
    bundle_fields,
    failed_fields,
    outcome_of,
    pending_actions,
)
from bridge.importer.ledger import BundleRow, ImportPlan, PendingActions, SeqSpan, SourceStream
from bridge.importer.outcome import ClaimedBundle, ImportOutcome, ImportState, IncomingCarrier
from bridge.importer.staging import InsufficientSpace, bytes_below, digest_of, fingerprint
from veen.digest import h

MOST_ENTRIES: Final = 10_000
"""Entries in quarantine; anybody can make unsigned bags, and further ones are only audited."""
_LINE: Final = 4000


class Holding:
    """Outcomes of valid bundles that are not imported now, or are here already."""

    def __init__(self, context: ImportContext) -> None:
        self._context = context

    def duplicate(
        self, carrier: IncomingCarrier, row: BundleRow, known: BundleRow | None
    ) -> ImportOutcome:
        event = ImportDuplicate(**bundle_fields(row, self._context.operator))
        pending = pending_actions(
            self._context,
            [event],
            removals=(
                self._context.import_dir.inside(carrier.place),
                *carrier.inbox,
                *self._left(carrier, row),
            ),
        )
        bundle_row = known or replace(row, state=ImportState.DUPLICATE.value)
        if known is not None and not carrier.is_new:
            bundle_row = replace(row, state=ImportState.DUPLICATE.value)
        self._context.ledger.conclude(bundle_row, pending)
        apply_pending(self._context, pending)
        detail = "every event of it is here already"
        return outcome_of(ImportState.DUPLICATE, carrier, row, duplicates=row.count, detail=detail)

    def waiting(self, carrier: IncomingCarrier, row: BundleRow, gap: SeqSpan) -> ImportOutcome:
        detail = f"events {gap.first} to {gap.last} of {printable(row.stream)} are not here yet"
        event = ImportWaiting(
            gap_from=gap.first, gap_to=gap.last, **bundle_fields(row, self._context.operator)
        )
        return self._hold(carrier, row, event, ImportState.WAITING, detail)

    def blocked(
        self, carrier: IncomingCarrier, row: BundleRow, state: ImportState, by: str, detail: str
    ) -> ImportOutcome:
        fields = bundle_fields(row, self._context.operator)
        return self._hold(
            carrier, row, ImportBlocked(by=by, detail=detail, **fields), state, detail
        )

    def _hold(
        self,
        carrier: IncomingCarrier,
        row: BundleRow,
        event: AuditEvent,
        state: ImportState,
        detail: str,
    ) -> ImportOutcome:
        """Hold a valid bundle until it may be imported; that it still waits is not audited again.

        If it is presented while it is held, only the first copy is stored.
        """
        context, known = self._context, self._context.ledger.bundle(row.bundle_id)
        place = context.import_dir.waiting(row.bundle_id)
        outcome = outcome_of(state, carrier, row, detail=detail, place=str(place))
        is_known = known is not None and known.state == state.value
        if is_known and not carrier.is_new:
            return outcome
        if not context.import_dir.is_filled(place):
            moves = (
                (self._context.import_dir.inside(carrier.place), context.import_dir.inside(place)),
            )
            pending = pending_actions(context, [event], moves=moves, removals=carrier.inbox)
        else:
            if is_known:
                fields = bundle_fields(row, context.operator)
                event = ImportDuplicate(held_as=state.value, **fields)
            copy = (self._context.import_dir.inside(carrier.place),) if carrier.is_new else ()
            pending = pending_actions(context, [event], removals=(*copy, *carrier.inbox))
        context.ledger.conclude(replace(row, state=state.value, detail=detail), pending)
        apply_pending(context, pending)
        return replace(outcome, detail=f"{detail}; it lies here already") if is_known else outcome

    def again(
        self, carrier: IncomingCarrier, row: BundleRow, state: ImportState, detail: str
    ) -> ImportOutcome:
        """The outcome of a quarantined bundle that is presented again; only one copy is stored."""
        event = ImportDuplicate(held_as=state.value, **bundle_fields(row, self._context.operator))
        pending = pending_actions(
            self._context,
            [event],
            removals=(
                self._context.import_dir.inside(carrier.place),
                *carrier.inbox,
                *self._left(carrier, row),
            ),
        )
        self._context.ledger.conclude(None, pending)
        apply_pending(self._context, pending)
        place = str(self._context.import_dir.quarantine(row.bundle_id.hex()))
        return outcome_of(state, carrier, row, detail=detail, place=place)

    def heartbeat(self, carrier: IncomingCarrier, ledger: CarrierLedger) -> ImportOutcome:
        """Archive a heartbeat; if it is presented again, it is only audited."""
        entry, context = ledger.tail[-1], self._context
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
        moves = (
            ()
            if is_known
            else ((self._context.import_dir.inside(carrier.place), f"archive/{name}"),)
        )
        copy = (self._context.import_dir.inside(carrier.place),) if is_known else ()
        pending = pending_actions(context, [event], moves=moves, removals=(*copy, *carrier.inbox))
        context.ledger.conclude_heartbeat(ledger, pending)
        apply_pending(context, pending)
        state = ImportState.DUPLICATE if is_known else ImportState.HEARTBEAT
        detail = f"heartbeat, entry {entry.n} of the ledger"
        return replace(
            outcome_of(state, carrier, None, detail=detail), checkpoint_at=entry.created_at
        )

    def _left(self, carrier: IncomingCarrier, row: BundleRow) -> tuple[str, ...]:
        return self._context.import_dir.left_waiting(row.bundle_id) if carrier.is_new else ()


class Verdicts:
    """Outcomes of carriers that are refused."""

    def __init__(self, context: ImportContext) -> None:
        self._context = context
        self._holding = Holding(context)

    def refused(
        self,
        carrier: IncomingCarrier,
        error: Refused,
        of: BundleRow | ClaimedBundle | None,
        plan: ImportPlan | None = None,
    ) -> ImportOutcome:
        """Quarantine an invalid carrier; a new carrier that lacks volumes stays in the inbox.

        ``of`` is the verified or the claimed bundle, if it is known.
        """
        code = _code(error)
        if error.fault is CarrierFault.INCOMPLETE and carrier.is_new:
            return self.incomplete(carrier, error, of, code)
        detail = printable(str(error), _LINE)
        fields = failed_fields(self._context.operator, carrier.sha256, of, error)
        event = ImportQuarantined(code=code, detail=detail, **fields)
        row = of if isinstance(of, BundleRow) else None
        return self.quarantine(carrier, row, event, code, detail, plan=plan)

    def contradicted(
        self, carrier: IncomingCarrier, row: BundleRow | None, wrong: Contradiction
    ) -> ImportOutcome:
        """Quarantine a carrier whose checkpoint contradicts the stored checkpoint of its hub."""
        error = Refused(CarrierFault.FORK, wrong.detail, seq=wrong.seq)
        detail, code = printable(str(error), _LINE), _code(error)
        fields = failed_fields(self._context.operator, carrier.sha256, row, error)
        event = ImportQuarantined(code=code, detail=detail, **fields)
        fork = two_checkpoints(self._context, row, wrong)
        is_new = (
            self._context.ledger.frozen_at(SourceStream(fork.source_hub_id, fork.stream)) is None
        )
        stored = checkpoint_evidence(wrong)
        return self.quarantine(
            carrier, row, event, code, detail, evidence=stored, fork=fork if is_new else None
        )

    def incomplete(
        self,
        carrier: IncomingCarrier,
        error: Refused,
        of: BundleRow | ClaimedBundle | None,
        code: str,
    ) -> ImportOutcome:
        """Leave an incomplete carrier in the inbox, without repeated bags; audited once."""
        context, name = self._context, f"incomplete/{carrier.inbox[0]}"
        detail, place = (
            printable(str(error), _LINE),
            str(context.import_dir.root / carrier.inbox[0]),
        )
        outcome = outcome_of(
            ImportState.INCOMPLETE, carrier, None, code=code, detail=detail, place=place
        )
        removals = (self._context.import_dir.inside(carrier.place), *carrier.doubled)
        if context.ledger.reported(name) == carrier.sha256:
            for removal in removals:
                context.import_dir.remove(removal)
            return outcome
        fields = failed_fields(context.operator, carrier.sha256, of, error)
        event = ImportFailed(code=code, detail=detail, **fields)
        pending = pending_actions(context, [event], removals=removals)
        context.ledger.conclude(None, pending, detail=(name, carrier.sha256))
        apply_pending(context, pending)
        return outcome

    def unread(self, name: str, error: Refused) -> ImportOutcome:
        """The outcome of a medium of which nothing was copied: it is unreadable, or no medium."""
        fields = failed_fields(self._context.operator, h(b""), None, error)
        is_gone = isinstance(error.__cause__, OSError)
        state = ImportState.INCOMPLETE if is_gone else ImportState.REFUSED
        code, detail = _code(error), printable(str(error), _LINE)
        self._fail(ImportFailed(code=code, detail=detail, **fields))
        return ImportOutcome(state=state, name=name, code=code, detail=detail)

    def no_room(self, name: str, error: InsufficientSpace) -> ImportOutcome:
        """The outcome of a carrier that was not copied for lack of space."""
        code, detail = "NO_ROOM", printable(str(error), _LINE)
        self._fail(ImportFailed(operator=self._context.operator, code=code, detail=detail))
        return ImportOutcome(state=ImportState.INCOMPLETE, name=name, code=code, detail=detail)

    def _fail(self, event: ImportFailed, *removals: str) -> None:
        pending = pending_actions(self._context, [event], removals=removals)
        self._context.ledger.conclude(None, pending)
        apply_pending(self._context, pending)

    def quarantine(
        self,
        carrier: IncomingCarrier,
        row: BundleRow | None,
        event: AuditEvent,
        code: str,
        detail: str,
        *,
        state: ImportState = ImportState.QUARANTINED,
        evidence: Mapping[str, object] | None = None,
        plan: ImportPlan | None = None,
        fork: Equivocation | None = None,
    ) -> ImportOutcome:
        """Move a carrier to quarantine, with the reason beside it; the same carrier for the same
        reason only once. ``fork`` freezes a stream in addition.
        """
        context, token = self._context, self._context.random(16)
        name = (row.bundle_id if row else carrier.sha256).hex()
        folder = context.import_dir.quarantine(name)
        reported_fork = event if isinstance(event, Equivocation) else fork
        if folder.exists():
            if plan is None and code_of(folder) == code and event is not reported_fork:
                return self._again(carrier, row, event, code, detail, state)
            name = f"{name}-{token.hex()[:8]}"
            folder = context.import_dir.quarantine(name)
        place = context.import_dir.inside(folder)
        moves, removals, stored = self._into_quarantine(carrier, place)
        reason: dict[str, object] = {
            "code": code,
            "detail": detail,
            "received": list(carrier.inbox),
        }
        reason |= {**(evidence or {}), **stored}
        left = context.import_dir.left_waiting(row.bundle_id) if row and carrier.is_new else ()
        pending = PendingActions(
            token=token,
            bodies=tuple(context.audit_outbox.body(entry) for entry in (fork, event) if entry),
            writes=((f"{place}/reason.json", json.dumps(reason, sort_keys=True, indent=1) + "\n"),),
            moves=moves,
            removals=(*removals, *left),
        )
        new = replace(row, state=state.value, detail=detail) if row else None
        if reported_fork is not None:
            context.ledger.freeze(new, reported_fork, pending)
        else:
            context.ledger.conclude(new, pending, abandoned=plan)
        apply_pending(context, pending)
        return outcome_of(state, carrier, row, code=code, detail=detail, place=str(folder))

    def _again(
        self,
        carrier: IncomingCarrier,
        row: BundleRow | None,
        event: AuditEvent,
        code: str,
        detail: str,
        state: ImportState,
    ) -> ImportOutcome:
        """The outcome of a carrier that is already in quarantine for this reason."""
        detail = f"{detail}; it lies in quarantine already"
        if row is not None:
            return replace(self._holding.again(carrier, row, state, detail), code=code)
        context = self._context
        pending = pending_actions(
            context,
            [event],
            removals=(self._context.import_dir.inside(carrier.place), *carrier.inbox),
        )
        context.ledger.conclude(None, pending)
        apply_pending(context, pending)
        place = str(context.import_dir.quarantine(carrier.sha256.hex()))
        return outcome_of(state, carrier, row, code=code, detail=detail, place=place)

    def _into_quarantine(
        self, carrier: IncomingCarrier, place: str
    ) -> tuple[tuple[tuple[str, str], ...], tuple[str, ...], dict[str, object]]:
        """The moves, the removals and the reason's fields. What was received is moved as it came;
        our copy is removed.

        Beyond the quota the carrier is removed, and the reason has its hashes.
        """
        context, copy = self._context, self._context.import_dir.inside(carrier.place)
        names = carrier.inbox if carrier.is_new else (copy,)
        size = sum(bytes_below(context.import_dir.root / name) for name in names)
        if context.quarantine_bytes() + size > context.settings.max_quarantine_bytes:
            lines = [line for bag in carrier.bags for line in fingerprint(BagPath.of(bag))]
            removals = (copy, *carrier.inbox) if carrier.is_new else (copy,)
            return (), removals, {KEPT: HASHES, HASHES: lines}
        context.count_quarantined(size)
        moves = tuple((name, f"{place}/{number}") for number, name in enumerate(names, 1))
        return moves, (copy,) if carrier.is_new else (), {}


def _code(error: Refused) -> str:
    return f"{error.fault.code.value}/{error.fault.detail_enum}"


class Unsigned:
    """Outcomes of bags that no trusted exporter has signed, and that are not copied."""

    def __init__(self, context: ImportContext) -> None:
        self._context = context

    def on_medium(self, bag: BagPath, error: Refused, partial: Path | None = None) -> ImportOutcome:
        """The outcome of a bag on a medium, which is not changed; ``partial`` is its partial
        copy.
        """
        removals = () if partial is None else (self._context.import_dir.inside(partial),)
        return self._judge(bag, error, removals, is_left=False)

    def in_inbox(self, bag: BagPath, error: Refused) -> ImportOutcome:
        """The outcome of a bag in the inbox, which is removed unless it may still be completed."""
        inside = self._context.import_dir.inside(bag.path)
        return self._judge(bag, error, (inside,), is_left=True)

    def _judge(
        self, bag: BagPath, error: Refused, removals: tuple[str, ...], *, is_left: bool
    ) -> ImportOutcome:
        lines = fingerprint(bag)
        if _may_be_completed(error):
            return self._later(bag, error, lines, () if is_left else removals)
        return self._keep_hashes(bag, error, lines, removals)

    def _later(
        self, bag: BagPath, error: Refused, lines: list[str], removals: tuple[str, ...]
    ) -> ImportOutcome:
        """The outcome of an unfinished or unreadable bag, which is audited once."""
        context, digest, detail = (
            self._context,
            digest_of(lines),
            printable(str(error), _LINE),
        )
        name = carrier_name(bag.name)
        outcome = ImportOutcome(
            state=ImportState.INCOMPLETE,
            name=name,
            code=_code(error),
            detail=detail,
            place=str(bag),
        )
        is_unfinished = error.fault is CarrierFault.INCOMPLETE
        if is_unfinished and context.ledger.reported(f"unfinished/{name}") == digest:
            return outcome
        fields = failed_fields(context.operator, digest, None, error)
        event = ImportFailed(code=_code(error), detail=detail, **fields)
        pending = pending_actions(context, [event], removals=removals)
        noted = (f"unfinished/{name}", digest) if is_unfinished else None
        context.ledger.conclude(None, pending, detail=noted)
        apply_pending(context, pending)
        return outcome

    def _keep_hashes(
        self, bag: BagPath, error: Refused, lines: list[str], removals: tuple[str, ...]
    ) -> ImportOutcome:
        context, digest, detail = (
            self._context,
            digest_of(lines),
            printable(str(error), _LINE),
        )
        folder = context.import_dir.quarantine(digest.hex())
        fields = failed_fields(context.operator, digest, None, error)
        event = ImportQuarantined(code=_code(error), detail=detail, **fields)
        is_new = code_of(folder) != _code(error)
        has_room = (
            context.quarantine_entries() < MOST_ENTRIES
            and context.quarantine_bytes() < context.settings.max_quarantine_bytes
        )
        reason = {
            "code": _code(error),
            "detail": detail,
            "received": [carrier_name(bag.name)],
            KEPT: HASHES,
            HASHES: lines,
        }
        place = f"{context.import_dir.inside(folder)}/{REASON}"
        writes = ((place, json.dumps(reason, sort_keys=True, indent=1) + "\n"),)
        pending = PendingActions(
            token=context.random(16),
            bodies=(context.audit_outbox.body(event),),
            writes=writes if is_new and has_room else (),
            removals=removals,
        )
        context.ledger.conclude(None, pending)
        apply_pending(context, pending)
        if is_new and has_room:
            context.count_quarantined(len(writes[0][1]))
        return ImportOutcome(
            state=ImportState.QUARANTINED,
            name=carrier_name(bag.name),
            code=_code(error),
            detail=f"{detail}; nothing of it was copied, only its hashes are kept",
            place=str(folder) if has_room or not is_new else "",
        )


def _may_be_completed(error: Refused) -> bool:
    """Whether the bag lacks its signature or cannot be read now; a link is neither."""
    cause = error.__cause__
    is_unreadable = isinstance(cause, OSError) and cause.errno not in LEADS_ELSEWHERE
    return error.fault is CarrierFault.INCOMPLETE or is_unreadable
