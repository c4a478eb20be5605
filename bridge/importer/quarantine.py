"""Sound bundles that do not go in now: held until they may, or here already.

Verdicts on carriers that are kept out: each is audited, and has a place to lie in.

Verdicts on bags that were not copied: nothing of them is kept but hashes and the reason.

A bag that no trusted exporter has signed may be anything, and of any size. Whoever brings it can
bring it again; to keep it would let any medium fill the disk.
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
from bridge.importer.airlock import HASHES, KEPT, REASON, code_of
from bridge.importer.checkpoints import Contradiction
from bridge.importer.context import ImportContext
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


class Holding:
    def __init__(self, tools: ImportContext) -> None:
        self._tools = tools

    def duplicate(
        self, work: IncomingCarrier, row: BundleRow, known: BundleRow | None
    ) -> ImportOutcome:
        event = ImportDuplicate(**bundle_fields(row, self._tools.operator))
        closing = pending_actions(
            self._tools, [event], removals=(self._inside(work), *work.inbox, *self._left(work, row))
        )
        bundle_row = known or replace(row, state=ImportState.DUPLICATE.value)
        if known is not None and not work.is_new:
            bundle_row = replace(row, state=ImportState.DUPLICATE.value)
        self._tools.ledger.conclude(bundle_row, closing)
        apply_pending(self._tools, closing)
        detail = "every event of it is here already"
        return outcome_of(ImportState.DUPLICATE, work, row, duplicates=row.count, detail=detail)

    def waiting(self, work: IncomingCarrier, row: BundleRow, gap: SeqSpan) -> ImportOutcome:
        detail = f"events {gap.first} to {gap.last} of {printable(row.stream)} are not here yet"
        event = ImportWaiting(
            gap_from=gap.first, gap_to=gap.last, **bundle_fields(row, self._tools.operator)
        )
        return self._hold(work, row, event, ImportState.WAITING, detail)

    def blocked(
        self, work: IncomingCarrier, row: BundleRow, state: ImportState, by: str, value: str
    ) -> ImportOutcome:
        fields = bundle_fields(row, self._tools.operator)
        return self._hold(work, row, ImportBlocked(by=by, detail=value, **fields), state, value)

    def _hold(
        self,
        work: IncomingCarrier,
        row: BundleRow,
        event: AuditEvent,
        state: ImportState,
        value: str,
    ) -> ImportOutcome:
        """Keep a valid bundle until it may go in; that it still waits is not told again.

        One that is presented while it lies here is kept once, as it was.
        """
        tools, known = self._tools, self._tools.ledger.bundle(row.bundle_id)
        place = tools.airlock.waiting(row.bundle_id)
        outcome = outcome_of(state, work, row, detail=value, place=str(place))
        is_known = known is not None and known.state == state.value
        if is_known and not work.is_new:
            return outcome
        if not tools.airlock.is_filled(place):
            moves = ((self._inside(work), tools.airlock.inside(place)),)
            closing = pending_actions(tools, [event], moves=moves, removals=work.inbox)
        else:
            if is_known:
                fields = bundle_fields(row, tools.operator)
                event = ImportDuplicate(held_as=state.value, **fields)
            copy = (self._inside(work),) if work.is_new else ()
            closing = pending_actions(tools, [event], removals=(*copy, *work.inbox))
        tools.ledger.conclude(replace(row, state=state.value, detail=value), closing)
        apply_pending(tools, closing)
        return replace(outcome, detail=f"{value}; it lies here already") if is_known else outcome

    def again(
        self, work: IncomingCarrier, row: BundleRow, state: ImportState, value: str
    ) -> ImportOutcome:
        """A bundle that lies in quarantine, and is presented once more; it lies there once."""
        event = ImportDuplicate(held_as=state.value, **bundle_fields(row, self._tools.operator))
        closing = pending_actions(
            self._tools, [event], removals=(self._inside(work), *work.inbox, *self._left(work, row))
        )
        self._tools.ledger.conclude(None, closing)
        apply_pending(self._tools, closing)
        place = str(self._tools.airlock.quarantine(row.bundle_id.hex()))
        return outcome_of(state, work, row, detail=value, place=place)

    def heartbeat(self, work: IncomingCarrier, ledger: CarrierLedger) -> ImportOutcome:
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
        closing = pending_actions(tools, [event], moves=moves, removals=(*copy, *work.inbox))
        tools.ledger.conclude_heartbeat(ledger, closing)
        apply_pending(tools, closing)
        state = ImportState.DUPLICATE if is_known else ImportState.HEARTBEAT
        detail = f"heartbeat, entry {entry.n} of the ledger"
        return replace(outcome_of(state, work, None, detail=detail), checkpoint_at=entry.created_at)

    def _left(self, work: IncomingCarrier, row: BundleRow) -> tuple[str, ...]:
        return self._tools.airlock.left_waiting(row.bundle_id) if work.is_new else ()

    def _inside(self, work: IncomingCarrier) -> str:
        return self._tools.airlock.inside(work.place)


_LINE = 4000


class Verdicts:
    def __init__(self, tools: ImportContext) -> None:
        self._tools = tools
        self._holding = Holding(tools)

    def refused(
        self,
        work: IncomingCarrier,
        error: Refused,
        of: BundleRow | ClaimedBundle | None,
        plan: ImportPlan | None = None,
    ) -> ImportOutcome:
        """A carrier of which something does not hold; one that lacks volumes stays in the inbox.

        ``of`` is the bundle, as far as it was verified or is claimed.
        """
        code = _code(error)
        if error.fault is CarrierFault.INCOMPLETE and work.is_new:
            return self.incomplete(work, error, of, code)
        detail = printable(str(error), _LINE)
        fields = failed_fields(self._tools.operator, work.sha256, of, error)
        event = ImportQuarantined(code=code, detail=detail, **fields)
        row = of if isinstance(of, BundleRow) else None
        return self.quarantine(work, row, event, code, detail, plan=plan)

    def contradicted(
        self, work: IncomingCarrier, row: BundleRow | None, wrong: Contradiction
    ) -> ImportOutcome:
        """A carrier whose checkpoint its hub cannot have signed beside the one that is held."""
        error = Refused(CarrierFault.FORK, wrong.detail, seq=wrong.seq)
        detail, code = printable(str(error), _LINE), _code(error)
        fields = failed_fields(self._tools.operator, work.sha256, row, error)
        event = ImportQuarantined(code=code, detail=detail, **fields)
        fork = two_checkpoints(self._tools, row, wrong)
        is_new = self._tools.ledger.frozen_at(SourceStream(fork.source_hub_id, fork.stream)) is None
        stored = checkpoint_evidence(wrong)
        return self.quarantine(
            work, row, event, code, detail, evidence=stored, fork=fork if is_new else None
        )

    def incomplete(
        self, work: IncomingCarrier, error: Refused, of: BundleRow | ClaimedBundle | None, code: str
    ) -> ImportOutcome:
        """It stays in the inbox, each bag once; the same lack is audited once."""
        tools, name = self._tools, f"incomplete/{work.inbox[0]}"
        detail, place = printable(str(error), _LINE), str(tools.airlock.root / work.inbox[0])
        outcome = outcome_of(
            ImportState.INCOMPLETE, work, None, code=code, detail=detail, place=place
        )
        removals = (self._inside(work), *work.doubled)
        if tools.ledger.reported(name) == work.sha256:
            for removal in removals:
                tools.airlock.remove(removal)
            return outcome
        fields = failed_fields(tools.operator, work.sha256, of, error)
        event = ImportFailed(code=code, detail=detail, **fields)
        closing = pending_actions(tools, [event], removals=removals)
        tools.ledger.conclude(None, closing, detail=(name, work.sha256))
        apply_pending(tools, closing)
        return outcome

    def unread(self, name: str, error: Refused) -> ImportOutcome:
        """A medium of which nothing was copied: it cannot be read, or is none to be read."""
        fields = failed_fields(self._tools.operator, h(b""), None, error)
        is_gone = isinstance(error.__cause__, OSError)
        state = ImportState.INCOMPLETE if is_gone else ImportState.REFUSED
        code, detail = _code(error), printable(str(error), _LINE)
        self._fail(ImportFailed(code=code, detail=detail, **fields))
        return ImportOutcome(state=state, name=name, code=code, detail=detail)

    def no_room(self, name: str, error: InsufficientSpace) -> ImportOutcome:
        """A carrier that was not copied; it is where it was."""
        code, detail = "NO_ROOM", printable(str(error), _LINE)
        self._fail(ImportFailed(operator=self._tools.operator, code=code, detail=detail))
        return ImportOutcome(state=ImportState.INCOMPLETE, name=name, code=code, detail=detail)

    def _fail(self, event: ImportFailed, *removals: str) -> None:
        closing = pending_actions(self._tools, [event], removals=removals)
        self._tools.ledger.conclude(None, closing)
        apply_pending(self._tools, closing)

    def quarantine(
        self,
        work: IncomingCarrier,
        row: BundleRow | None,
        event: AuditEvent,
        code: str,
        value: str,
        *,
        state: ImportState = ImportState.QUARANTINED,
        evidence: Mapping[str, object] | None = None,
        plan: ImportPlan | None = None,
        fork: Equivocation | None = None,
    ) -> ImportOutcome:
        """Keep a carrier apart, with the reason beside it; the same one for the same reason once,
        however often it is presented. ``fork`` freezes a stream that goes on otherwise.
        """
        tools, token = self._tools, self._tools.random(16)
        name = (row.bundle_id if row else work.sha256).hex()
        folder = tools.airlock.quarantine(name)
        reported_fork = event if isinstance(event, Equivocation) else fork
        if folder.exists():
            if plan is None and code_of(folder) == code and event is not reported_fork:
                return self._again(work, row, event, code, value, state)
            name = f"{name}-{token.hex()[:8]}"
            folder = tools.airlock.quarantine(name)
        place = tools.airlock.inside(folder)
        moves, removals, stored = self._into_quarantine(work, place)
        reason: dict[str, object] = {"code": code, "detail": value, "received": list(work.inbox)}
        reason |= {**(evidence or {}), **stored}
        left = tools.airlock.left_waiting(row.bundle_id) if row and work.is_new else ()
        closing = PendingActions(
            token=token,
            bodies=tuple(tools.audit_outbox.body(item) for item in (fork, event) if item),
            writes=((f"{place}/reason.json", json.dumps(reason, sort_keys=True, indent=1) + "\n"),),
            moves=moves,
            removals=(*removals, *left),
        )
        new = replace(row, state=state.value, detail=value) if row else None
        if reported_fork is not None:
            tools.ledger.freeze(new, reported_fork, closing)
        else:
            tools.ledger.conclude(new, closing, abandoned=plan)
        apply_pending(tools, closing)
        return outcome_of(state, work, row, code=code, detail=value, place=str(folder))

    def _again(
        self,
        work: IncomingCarrier,
        row: BundleRow | None,
        event: AuditEvent,
        code: str,
        value: str,
        state: ImportState,
    ) -> ImportOutcome:
        """What lies in quarantine for this reason already; of it no second copy is kept."""
        value = f"{value}; it lies in quarantine already"
        if row is not None:
            return replace(self._holding.again(work, row, state, value), code=code)
        tools = self._tools
        closing = pending_actions(tools, [event], removals=(self._inside(work), *work.inbox))
        tools.ledger.conclude(None, closing)
        apply_pending(tools, closing)
        place = str(tools.airlock.quarantine(work.sha256.hex()))
        return outcome_of(state, work, row, code=code, detail=value, place=place)

    def _into_quarantine(
        self, work: IncomingCarrier, place: str
    ) -> tuple[tuple[tuple[str, str], ...], tuple[str, ...], dict[str, object]]:
        """What was received goes into quarantine as it came; our copy of it is not needed.

        What the quota does not allow is removed, and the reason has its hashes.
        """
        tools, copy = self._tools, self._inside(work)
        names = work.inbox if work.is_new else (copy,)
        size = sum(bytes_below(tools.airlock.root / name) for name in names)
        if tools.quarantine_bytes() + size > tools.settings.max_quarantine_bytes:
            lines = [line for bag in work.bags for line in fingerprint(BagPath.of(bag))]
            removals = (copy, *work.inbox) if work.is_new else (copy,)
            return (), removals, {KEPT: HASHES, HASHES: lines}
        tools.count_quarantined(size)
        moves = tuple((name, f"{place}/{number}") for number, name in enumerate(names, 1))
        return moves, (copy,) if work.is_new else (), {}

    def _inside(self, work: IncomingCarrier) -> str:
        return self._tools.airlock.inside(work.place)


def _code(error: Refused) -> str:
    return f"{error.fault.code.value}/{error.fault.detail_enum}"


MOST_ENTRIES: Final = 10_000
"""In quarantine; anybody can make many unsigned bags, and beyond it only the audit log has them."""
_UNSIGNED_LINE: Final = 4000


class Unsigned:
    def __init__(self, tools: ImportContext) -> None:
        self._tools = tools

    def on_medium(self, bag: BagPath, error: Refused, partial: Path | None = None) -> ImportOutcome:
        """A bag of a medium, which is left as it is; ``partial`` is what was copied of it."""
        removals = () if partial is None else (self._tools.airlock.inside(partial),)
        return self._judge(bag, error, removals, is_left=False)

    def in_inbox(self, bag: BagPath, error: Refused) -> ImportOutcome:
        """A bag of the inbox: one that may still be completed stays, any other is removed."""
        inside = self._tools.airlock.inside(bag.path)
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
        """Not finished, or not readable now. The same unfinished bag is audited once."""
        tools, digest, detail = self._tools, digest_of(lines), printable(str(error), _UNSIGNED_LINE)
        name = carrier_name(bag.name)
        outcome = ImportOutcome(
            state=ImportState.INCOMPLETE,
            name=name,
            code=_code(error),
            detail=detail,
            place=str(bag),
        )
        is_unfinished = error.fault is CarrierFault.INCOMPLETE
        if is_unfinished and tools.ledger.reported(f"unfinished/{name}") == digest:
            return outcome
        fields = failed_fields(tools.operator, digest, None, error)
        event = ImportFailed(code=_code(error), detail=detail, **fields)
        closing = pending_actions(tools, [event], removals=removals)
        noted = (f"unfinished/{name}", digest) if is_unfinished else None
        tools.ledger.conclude(None, closing, detail=noted)
        apply_pending(tools, closing)
        return outcome

    def _keep_hashes(
        self, bag: BagPath, error: Refused, lines: list[str], removals: tuple[str, ...]
    ) -> ImportOutcome:
        tools, digest, detail = self._tools, digest_of(lines), printable(str(error), _UNSIGNED_LINE)
        folder = tools.airlock.quarantine(digest.hex())
        fields = failed_fields(tools.operator, digest, None, error)
        event = ImportQuarantined(code=_code(error), detail=detail, **fields)
        is_new = code_of(folder) != _code(error)
        has_room = (
            tools.quarantine_entries() < MOST_ENTRIES
            and tools.quarantine_bytes() < tools.settings.max_quarantine_bytes
        )
        reason = {
            "code": _code(error),
            "detail": detail,
            "received": [carrier_name(bag.name)],
            KEPT: HASHES,
            HASHES: lines,
        }
        place = f"{tools.airlock.inside(folder)}/{REASON}"
        writes = ((place, json.dumps(reason, sort_keys=True, indent=1) + "\n"),)
        closing = PendingActions(
            token=tools.random(16),
            bodies=(tools.audit_outbox.body(event),),
            writes=writes if is_new and has_room else (),
            removals=removals,
        )
        tools.ledger.conclude(None, closing)
        apply_pending(tools, closing)
        if is_new and has_room:
            tools.count_quarantined(len(writes[0][1]))
        return ImportOutcome(
            state=ImportState.QUARANTINED,
            name=carrier_name(bag.name),
            code=_code(error),
            detail=f"{detail}; nothing of it was copied, only its hashes are kept",
            place=str(folder) if has_room or not is_new else "",
        )


def _may_be_completed(error: Refused) -> bool:
    """It lacks its signature, or cannot be read at this moment; a link is neither."""
    cause = error.__cause__
    is_unreadable = isinstance(cause, OSError) and cause.errno not in LEADS_ELSEWHERE
    return error.fault is CarrierFault.INCOMPLETE or is_unreadable
