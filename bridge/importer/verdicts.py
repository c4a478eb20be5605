"""Outcomes other than an import: each with its audit entry, and a place for the carrier."""

from __future__ import annotations

import errno
import json
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from bridge.audit_events import (
    AuditEvent,
    Equivocation,
    ImportBlocked,
    ImportDuplicate,
    ImportFailed,
    ImportHeartbeat,
    ImportQuarantined,
    ImportWaiting,
)
from bridge.carrier.ledger import LedgerEntry
from bridge.importer.audit_fields import bundle_fields
from bridge.importer.closing import close
from bridge.importer.ledger_tables import BundleRow, Closing, Plan, Span
from bridge.importer.outcome import Outcome, State
from bridge.importer.receive import digest_of
from bridge.importer.tools import Tools
from bridge.importer.work import Work
from bridge.printable import printable
from bridge.refusal import Fault, Refused

_LINE = 4000
_TOO_LARGE = (
    "; have it exported in smaller bundles ([export] max_bundle_bytes), or raise max_bundle_bytes "
    "and max_bundle_events of [import], which take six times as much memory, and move it back to "
    "the inbox"
)
_LINKS = (errno.ELOOP, errno.ENOTDIR)
"""How a link shows that is not followed."""


class Verdicts:
    def __init__(self, tools: Tools) -> None:
        self._tools = tools

    def refused(
        self, work: Work, error: Refused, row: BundleRow | None, plan: Plan | None = None
    ) -> Outcome:
        """A carrier of which something does not hold; one that lacks volumes stays in the inbox."""
        code = f"{error.fault.code.value}/{error.fault.detail_enum}"
        if error.fault is Fault.INCOMPLETE and work.is_new:
            return self.incomplete(work, error, code)
        told = printable(str(error), _LINE)
        if error.fault is Fault.BUNDLE_SIZE:
            told += _TOO_LARGE
        event = self._quarantined(work, row, code, told, error)
        return self.quarantine(work, row, event, code, told, plan=plan)

    def incomplete(self, work: Work, error: Refused, code: str) -> Outcome:
        told, name = printable(str(error), _LINE), f"incomplete/{work.inbox[0]}"
        outcome = Outcome(state=State.INCOMPLETE, name=work.name, code=code, told=told)
        removals = (self._inside(work),)
        if self._tools.ledger.told(name) == work.sha256:
            self._tools.airlock.remove(removals[0])
            return outcome
        event = ImportFailed(
            operator=self._tools.operator, sha256=work.sha256, code=code, told=told
        )
        closing = self._closing([event], removals=removals)
        self._tools.ledger.conclude(None, closing, told=(name, work.sha256))
        close(self._tools, closing)
        return outcome

    def unfetched(self, name: str, partial: Path, error: Refused) -> Outcome:
        """What could not be copied from a medium; the medium is left as it is.

        One that cannot be read may be read later; one that holds what no bag may hold is kept
        apart, as far as it was copied.
        """
        digest, code = digest_of(partial), f"{error.fault.code.value}/{error.fault.detail_enum}"
        told = printable(str(error), _LINE)
        work = Work(name=name, place=partial, bags=(), sha256=digest)
        cause = error.__cause__
        if not isinstance(cause, OSError) or cause.errno in _LINKS:
            event = self._quarantined(work, None, code, told, error)
            return self.quarantine(work, None, event, code, told)
        failed = ImportFailed(operator=self._tools.operator, sha256=digest, code=code, told=told)
        closing = self._closing([failed], removals=(self._inside(work),))
        self._tools.ledger.conclude(None, closing)
        close(self._tools, closing)
        return Outcome(state=State.INCOMPLETE, name=name, code=code, told=told)

    def quarantine(
        self,
        work: Work,
        row: BundleRow | None,
        event: AuditEvent,
        code: str,
        told: str,
        *,
        state: State = State.QUARANTINED,
        evidence: Mapping[str, object] | None = None,
        plan: Plan | None = None,
    ) -> Outcome:
        """Keep a carrier apart, with the reason beside it."""
        token = self._tools.random(16)
        name = (row.bundle_id if row else work.sha256).hex()
        if self._tools.airlock.quarantine(name).exists():
            name = f"{name}-{token.hex()[:8]}"
        place = self._tools.airlock.inside(self._tools.airlock.quarantine(name))
        reason = {"code": code, "told": told, "received": list(work.inbox), **(evidence or {})}
        closing = Closing(
            token=token,
            bodies=(self._tools.trail.body(event),),
            writes=((f"{place}/reason.json", json.dumps(reason, sort_keys=True, indent=1) + "\n"),),
            moves=self._moves(work, place),
            removals=() if not work.is_new else (self._inside(work),),
        )
        new = replace(row, state=state.value, told=told) if row else None
        if isinstance(event, Equivocation) and new is not None:
            self._tools.ledger.freeze(new, event.seq, closing)
        else:
            self._tools.ledger.conclude(new, closing, abandoned=plan)
        close(self._tools, closing)
        return self._outcome(state, work, row, code=code, told=told)

    def duplicate(self, work: Work, row: BundleRow, known: BundleRow | None) -> Outcome:
        event = ImportDuplicate(**bundle_fields(row, self._tools.operator))
        removals = (self._inside(work), *work.inbox)
        closing = self._closing([event], removals=removals)
        kept = known or replace(row, state=State.DUPLICATE.value)
        if known is not None and not work.is_new:
            kept = replace(row, state=State.DUPLICATE.value)
        self._tools.ledger.conclude(kept, closing)
        close(self._tools, closing)
        told = "every event of it is here already"
        return self._outcome(State.DUPLICATE, work, row, duplicates=row.count, told=told)

    def waiting(self, work: Work, row: BundleRow, gap: Span) -> Outcome:
        told = f"events {gap.first} to {gap.last} of {printable(row.stream)} are not here yet"
        event = ImportWaiting(
            gap_from=gap.first, gap_to=gap.last, **bundle_fields(row, self._tools.operator)
        )
        return self.hold(work, row, event, State.WAITING, told)

    def blocked(self, work: Work, row: BundleRow, state: State, by: str, told: str) -> Outcome:
        fields = bundle_fields(row, self._tools.operator)
        return self.hold(work, row, ImportBlocked(by=by, told=told, **fields), state, told)

    def hold(
        self, work: Work, row: BundleRow, event: AuditEvent, state: State, told: str
    ) -> Outcome:
        """Keep a valid bundle until it may go in; that it still waits is not told again."""
        known = self._tools.ledger.bundle(row.bundle_id)
        outcome = self._outcome(state, work, row, told=told)
        if not work.is_new and known is not None and known.state == state.value:
            return outcome
        place = self._tools.airlock.inside(self._tools.airlock.waiting(row.bundle_id))
        moves = ((self._inside(work), place),) if self._inside(work) != place else ()
        closing = self._closing([event], moves=moves, removals=work.inbox)
        self._tools.ledger.conclude(replace(row, state=state.value, told=told), closing)
        close(self._tools, closing)
        return outcome

    def heartbeat(self, work: Work, entry: LedgerEntry) -> Outcome:
        event = ImportHeartbeat(
            operator=self._tools.operator,
            n=entry.n,
            source_hub_id=entry.hub_id,
            checkpoint_id=entry.checkpoint_id,
            checkpoint_at=entry.created_at,
        )
        token = self._tools.random(16)
        name = f"heartbeat-{entry.checkpoint_id.hex()[:16]}-{token.hex()[:8]}"
        moves = ((self._inside(work), f"archive/{name}"),)
        closing = self._closing([event], moves=moves, removals=work.inbox)
        self._tools.ledger.conclude(None, closing)
        close(self._tools, closing)
        return Outcome(state=State.HEARTBEAT, name=work.name, told=f"entry {entry.n} of the ledger")

    def _quarantined(
        self, work: Work, row: BundleRow | None, code: str, told: str, error: Refused
    ) -> ImportQuarantined:
        position = error.seq - row.from_seq if row and error.seq is not None else error.seq
        return ImportQuarantined(
            operator=self._tools.operator,
            bundle_id=row.bundle_id if row else None,
            sha256=row.sha256 if row and row.sha256 else work.sha256,
            source_hub_id=row.source_hub_id if row else None,
            stream=row.stream if row else None,
            from_seq=row.from_seq if row else None,
            to_seq=row.to_seq if row else None,
            code=code,
            told=told,
            position=position if position is None or position >= 0 else None,
            offset=error.offset,
        )

    def _moves(self, work: Work, place: str) -> tuple[tuple[str, str], ...]:
        """What was received goes into quarantine as it came; our copy of it is not needed."""
        if work.is_new:
            return tuple((name, f"{place}/{number}") for number, name in enumerate(work.inbox, 1))
        return ((self._inside(work), f"{place}/1"),)

    def _closing(
        self,
        events: list[AuditEvent],
        *,
        moves: tuple[tuple[str, str], ...] = (),
        removals: tuple[str, ...] = (),
    ) -> Closing:
        return Closing(
            token=self._tools.random(16),
            bodies=tuple(self._tools.trail.body(one) for one in events),
            moves=moves,
            removals=removals,
        )

    def _inside(self, work: Work) -> str:
        return self._tools.airlock.inside(work.place)

    def _outcome(
        self,
        state: State,
        work: Work,
        row: BundleRow | None,
        *,
        code: str = "",
        told: str = "",
        duplicates: int = 0,
    ) -> Outcome:
        return Outcome(
            state=state,
            name=work.name,
            bundle_id=row.bundle_id if row else None,
            stream=row.stream if row else "",
            from_seq=row.from_seq if row else 0,
            to_seq=row.to_seq if row else 0,
            duplicates=duplicates,
            code=code,
            told=told,
        )
