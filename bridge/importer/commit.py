"""Committing a bundle to its import stream: a plan on disk, then the events, then the success
(AGB0 4.5).

The events and the mark that they were handed over lie in one transaction of the sending client's
outbox. After a crash the mark says whether they are on their way; so none is lost or doubled.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from bridge.audit_log import AuditEvent, ImportBegin, ImportExcluded, ImportFailed, ImportSuccess
from bridge.importer.context import ImportContext
from bridge.importer.examine import Loaded
from bridge.importer.finish import BundleFields, apply_pending, bundle_fields
from bridge.importer.ledger import BundleRow, BundleRun, ImportPlan, PendingActions
from bridge.importer.outcome import ImportOutcome, ImportState
from bridge.importer.receipt import (
    Exclusion,
    PrintedReceipt,
    bodies,
    exclusions,
    read_exclusions,
    receipt_files,
    write_exclusions,
)
from veen.client.outbox import Note
from veen.client.session import LabelView
from veen.errors import Untrusted, VeenError
from veen.events import IMPORT_SCHEMA
from veen.label import DEFAULT_PROFILE
from veen.receipt import Receipt

PLAN_NOTE: Final = "import.plan"


@dataclass(frozen=True, slots=True, kw_only=True)
class ImportBatch:
    """A bundle that may go in, and what of it does."""

    row: BundleRow
    loaded: Loaded
    missing: Sequence[BundleRun]
    duplicates: int
    accepted_gap: str | None
    verification: str
    source: str
    """Where its bags lie, inside the airlock."""
    inbox: Sequence[str]


class BundleCommitter:
    def __init__(self, tools: ImportContext) -> None:
        self._tools = tools

    def commit(self, batch: ImportBatch) -> ImportOutcome:
        """Import a bundle; PARTIAL when the hub does not take all of it now."""
        tools, row = self._tools, replace(batch.row, state=ImportState.COMMITTING.value)
        spans = [run.span for run in batch.missing]
        excluded = exclusions(batch.loaded, spans, row, tools.settings.exclusions)
        view = self._view(row.target)
        plan = ImportPlan(
            bundle_id=row.bundle_id,
            plan_id=tools.random(16),
            source=batch.source,
            inbox="\n".join(batch.inbox),
            import_time=tools.now,
            written=sum(span.size for span in spans),
            duplicates=batch.duplicates,
            excluded=write_exclusions(excluded),
            base_client_seq=view.cursor(self._bridge_id).client_seq,
            base_seq=view.seen,
            accepted_gap=batch.accepted_gap,
            verification=batch.verification,
        )
        tools.ledger.begin(row, plan, batch.missing)
        self.settle_place(plan)
        self.hand_over(row, plan, batch.loaded)
        return self.complete(row, plan, resumed_from=None)

    def was_handed_over(self, plan: ImportPlan) -> bool:
        return self._tools.bridge.note(PLAN_NOTE) == plan.plan_id

    def settle_place(self, plan: ImportPlan) -> Path:
        """Where the bags of a plan lie; they are moved there if they were not."""
        airlock = self._tools.airlock
        place = airlock.committing(plan.bundle_id)
        airlock.move(plan.source, airlock.inside(place))
        return place

    def hand_over(self, row: BundleRow, plan: ImportPlan, loaded: Loaded) -> None:
        """The beginning is in the audit log before anything is in the outbox."""
        tools = self._tools
        begin = ImportBegin(target=row.target, **self._bundle(row))
        tools.audit_outbox.once(plan.plan_id + b"begin", [tools.audit_outbox.body(begin)])
        spans = tools.ledger.planned(row.bundle_id)
        made = bodies(loaded, plan, row, spans, self._bridge_id)
        tools.bridge.emit_each(
            ((row.target, body) for body in made),
            note=Note(PLAN_NOTE, plan.plan_id),
            schema=IMPORT_SCHEMA,
            recipient=tools.recipient,
        )

    def landed(self, row: BundleRow, plan: ImportPlan) -> int:
        """How many events of a plan are in the log, as far as we have their receipts.

        A crash may have taken what we knew before the plan as well: then none, until we ask again.
        """
        known = self._view(row.target).cursor(self._bridge_id).client_seq
        return max(0, known - plan.base_client_seq)

    def complete(self, row: BundleRow, plan: ImportPlan, resumed_from: int | None) -> ImportOutcome:
        """Send what was handed over, count it, and say that it is done."""
        try:
            with self._tools.watch(f"sending to {row.target}", "events") as progress:
                self._tools.bridge.flush(progress)
        except VeenError as error:
            return self._partial(row, plan, error)
        count = self.landed(row, plan)
        if count != plan.written:
            raise Untrusted(
                f"{row.target}: {count} events went in where {plan.written} were to; "
                "make the ledger again with veen bridge import --rebuild-ledger"
            )
        return self._succeed(row, plan, resumed_from)

    def _succeed(self, row: BundleRow, plan: ImportPlan, resumed_from: int | None) -> ImportOutcome:
        excluded = read_exclusions(plan.excluded)
        tools, airlock = self._tools, self._tools.airlock
        newest = _newest(self._view(row.target))
        done = replace(plan, target_to=newest.stream_seq, target_root=newest.mmr_root)
        events: list[AuditEvent] = [self._excluded(row, exclusion) for exclusion in excluded]
        events.append(
            ImportSuccess(
                target=row.target,
                target_from=plan.base_seq + 1,
                target_to=done.target_to,
                imported=plan.written,
                duplicates=plan.duplicates,
                excluded=len(excluded),
                verification_result=plan.verification,
                resumed_from=resumed_from,
                accepted_gap=plan.accepted_gap,
                **self._bundle(row),
            )
        )
        printed = PrintedReceipt.of(row, done, tools.bridge.session.identity.client)
        closing = PendingActions(
            token=plan.plan_id + b"done",
            bodies=tuple(tools.audit_outbox.body(event) for event in events),
            writes=receipt_files(printed, row, done),
            moves=(
                (
                    airlock.inside(airlock.committing(row.bundle_id)),
                    airlock.inside(airlock.archive(row.bundle_id.hex())),
                ),
            ),
            removals=(
                *(name for name in plan.inbox.split("\n") if name),
                *airlock.left_in_quarantine(row.bundle_id),
            ),
        )
        imported = replace(row, state=ImportState.IMPORTED.value, detail="")
        to_cover = tools.settings.checkpoint is not None
        tools.ledger.finish(imported, done, closing, to_cover=to_cover)
        apply_pending(tools, closing)
        return ImportOutcome(
            state=ImportState.IMPORTED,
            name=row.bundle_id.hex(),
            bundle_id=row.bundle_id,
            stream=row.stream,
            from_seq=row.from_seq,
            to_seq=row.to_seq,
            checkpoint_at=row.checkpoint_at,
            imported=plan.written,
            duplicates=plan.duplicates,
            excluded=len(excluded),
        )

    def _partial(self, row: BundleRow, plan: ImportPlan, error: VeenError) -> ImportOutcome:
        """The hub does not take the rest now; it stays in the outbox and is sent by a later run."""
        tools, position = self._tools, self.landed(row, plan)
        detail = f"{position} of {plan.written} events are in: {error}; run this again"
        tools.ledger.note(replace(row, state=ImportState.PARTIAL.value, detail=detail))
        failed = ImportFailed(
            operator=tools.operator,
            bundle_id=row.bundle_id,
            sha256=row.sha256,
            source_hub_id=row.source_hub_id,
            stream=row.stream,
            from_seq=row.from_seq,
            to_seq=row.to_seq,
            code=_code(error),
            detail=detail,
            position=position,
        )
        tools.audit_outbox.once(tools.random(16), [tools.audit_outbox.body(failed)])
        return ImportOutcome(
            state=ImportState.PARTIAL,
            name=row.bundle_id.hex(),
            bundle_id=row.bundle_id,
            stream=row.stream,
            from_seq=row.from_seq,
            to_seq=row.to_seq,
            checkpoint_at=row.checkpoint_at,
            imported=position,
            code=_code(error),
            detail=detail,
        )

    @property
    def _bridge_id(self) -> bytes:
        return self._tools.bridge.session.identity.client_id

    def _view(self, target: str) -> LabelView:
        session = self._tools.bridge.meet()
        return session.view(session.labels(target, DEFAULT_PROFILE).at(0), target, 0)

    def _bundle(self, row: BundleRow) -> BundleFields:
        return bundle_fields(row, self._tools.operator)

    def _excluded(self, row: BundleRow, exclusion: Exclusion) -> ImportExcluded:
        return ImportExcluded(
            operator=self._tools.operator,
            bundle_id=row.bundle_id,
            source_hub_id=row.source_hub_id,
            stream=row.stream,
            seq=exclusion.seq,
            position=exclusion.position,
            leaf_hash=bytes.fromhex(exclusion.leaf_hash),
            reason=exclusion.reason,
        )


def _newest(view: LabelView) -> Receipt:
    result = view.unlinked or view.head
    if result is None:
        raise Untrusted("the hub has given no receipt")
    return result


def _code(error: VeenError) -> str:
    return str(error).split(":", 1)[0][:64] or type(error).__name__
