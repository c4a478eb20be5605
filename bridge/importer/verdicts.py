"""Verdicts on carriers that are kept out: each is audited, and has a place to lie in."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace

from bridge.audit_events import AuditEvent, Equivocation, ImportFailed, ImportQuarantined
from bridge.carrier.bag_path import BagPath
from bridge.importer.audit_fields import failed_fields
from bridge.importer.claim import Claim
from bridge.importer.closing import close
from bridge.importer.conclusion import closing_of, outcome_of
from bridge.importer.equivocation import checkpoint_evidence, two_checkpoints
from bridge.importer.holding import Holding
from bridge.importer.kept_checkpoints import Contradiction
from bridge.importer.ledger_tables import BundleRow, Closing, Plan, Stream
from bridge.importer.outcome import Outcome, State
from bridge.importer.quarantined import HASHES, KEPT, code_of
from bridge.importer.room import NoRoom, bytes_below
from bridge.importer.signed_bag import fingerprint
from bridge.importer.tools import Tools
from bridge.importer.work import Work
from bridge.printable import printable
from bridge.refusal import Fault, Refused
from veen.digest import h

_LINE = 4000


class Verdicts:
    def __init__(self, tools: Tools) -> None:
        self._tools = tools
        self._holding = Holding(tools)

    def refused(
        self, work: Work, error: Refused, of: BundleRow | Claim | None, plan: Plan | None = None
    ) -> Outcome:
        """A carrier of which something does not hold; one that lacks volumes stays in the inbox.

        ``of`` is the bundle, as far as it was verified or is claimed.
        """
        code = _code(error)
        if error.fault is Fault.INCOMPLETE and work.is_new:
            return self.incomplete(work, error, of, code)
        told = printable(str(error), _LINE)
        fields = failed_fields(self._tools.operator, work.sha256, of, error)
        event = ImportQuarantined(code=code, told=told, **fields)
        row = of if isinstance(of, BundleRow) else None
        return self.quarantine(work, row, event, code, told, plan=plan)

    def contradicted(self, work: Work, row: BundleRow | None, wrong: Contradiction) -> Outcome:
        """A carrier whose checkpoint its hub cannot have signed beside the one that is held."""
        error = Refused(Fault.FORK, wrong.told, seq=wrong.seq)
        told, code = printable(str(error), _LINE), _code(error)
        fields = failed_fields(self._tools.operator, work.sha256, row, error)
        event = ImportQuarantined(code=code, told=told, **fields)
        fork = two_checkpoints(self._tools, row, wrong)
        is_new = self._tools.ledger.frozen_at(Stream(fork.source_hub_id, fork.stream)) is None
        kept = checkpoint_evidence(wrong)
        return self.quarantine(
            work, row, event, code, told, evidence=kept, fork=fork if is_new else None
        )

    def incomplete(
        self, work: Work, error: Refused, of: BundleRow | Claim | None, code: str
    ) -> Outcome:
        """It stays in the inbox, each bag once; the same lack is audited once."""
        tools, name = self._tools, f"incomplete/{work.inbox[0]}"
        told, place = printable(str(error), _LINE), str(tools.airlock.root / work.inbox[0])
        outcome = outcome_of(State.INCOMPLETE, work, None, code=code, told=told, place=place)
        removals = (self._inside(work), *work.doubled)
        if tools.ledger.told(name) == work.sha256:
            for one in removals:
                tools.airlock.remove(one)
            return outcome
        fields = failed_fields(tools.operator, work.sha256, of, error)
        event = ImportFailed(code=code, told=told, **fields)
        closing = closing_of(tools, [event], removals=removals)
        tools.ledger.conclude(None, closing, told=(name, work.sha256))
        close(tools, closing)
        return outcome

    def unread(self, name: str, error: Refused) -> Outcome:
        """A medium of which nothing was copied: it cannot be read, or is none to be read."""
        fields = failed_fields(self._tools.operator, h(b""), None, error)
        is_gone = isinstance(error.__cause__, OSError)
        state = State.INCOMPLETE if is_gone else State.REFUSED
        code, told = _code(error), printable(str(error), _LINE)
        self._fail(ImportFailed(code=code, told=told, **fields))
        return Outcome(state=state, name=name, code=code, told=told)

    def no_room(self, name: str, error: NoRoom) -> Outcome:
        """A carrier that was not copied; it is where it was."""
        code, told = "NO_ROOM", printable(str(error), _LINE)
        self._fail(ImportFailed(operator=self._tools.operator, code=code, told=told))
        return Outcome(state=State.INCOMPLETE, name=name, code=code, told=told)

    def _fail(self, event: ImportFailed, *removals: str) -> None:
        closing = closing_of(self._tools, [event], removals=removals)
        self._tools.ledger.conclude(None, closing)
        close(self._tools, closing)

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
        fork: Equivocation | None = None,
    ) -> Outcome:
        """Keep a carrier apart, with the reason beside it; the same one for the same reason once,
        however often it is presented. ``fork`` freezes a stream that goes on otherwise.
        """
        tools, token = self._tools, self._tools.random(16)
        name = (row.bundle_id if row else work.sha256).hex()
        folder = tools.airlock.quarantine(name)
        told_fork = event if isinstance(event, Equivocation) else fork
        if folder.exists():
            if plan is None and code_of(folder) == code and event is not told_fork:
                return self._again(work, row, event, code, told, state)
            name = f"{name}-{token.hex()[:8]}"
            folder = tools.airlock.quarantine(name)
        place = tools.airlock.inside(folder)
        moves, removals, kept = self._into_quarantine(work, place)
        reason: dict[str, object] = {"code": code, "told": told, "received": list(work.inbox)}
        reason |= {**(evidence or {}), **kept}
        left = tools.airlock.left_waiting(row.bundle_id) if row and work.is_new else ()
        closing = Closing(
            token=token,
            bodies=tuple(tools.trail.body(one) for one in (fork, event) if one),
            writes=((f"{place}/reason.json", json.dumps(reason, sort_keys=True, indent=1) + "\n"),),
            moves=moves,
            removals=(*removals, *left),
        )
        new = replace(row, state=state.value, told=told) if row else None
        if told_fork is not None:
            tools.ledger.freeze(new, told_fork, closing)
        else:
            tools.ledger.conclude(new, closing, abandoned=plan)
        close(tools, closing)
        return outcome_of(state, work, row, code=code, told=told, place=str(folder))

    def _again(
        self,
        work: Work,
        row: BundleRow | None,
        event: AuditEvent,
        code: str,
        told: str,
        state: State,
    ) -> Outcome:
        """What lies in quarantine for this reason already; of it no second copy is kept."""
        told = f"{told}; it lies in quarantine already"
        if row is not None:
            return replace(self._holding.again(work, row, state, told), code=code)
        tools = self._tools
        closing = closing_of(tools, [event], removals=(self._inside(work), *work.inbox))
        tools.ledger.conclude(None, closing)
        close(tools, closing)
        place = str(tools.airlock.quarantine(work.sha256.hex()))
        return outcome_of(state, work, row, code=code, told=told, place=place)

    def _into_quarantine(
        self, work: Work, place: str
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

    def _inside(self, work: Work) -> str:
        return self._tools.airlock.inside(work.place)


def _code(error: Refused) -> str:
    return f"{error.fault.code.value}/{error.fault.detail_enum}"
