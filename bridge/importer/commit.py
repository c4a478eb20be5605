"""Commit of a bundle to its import stream: a plan on disk, the events, then the success (AGB0 4.5).

The events and the mark that they were handed over are one transaction of the client's outbox. After
a crash the mark says whether they are on their way, so that none is lost or duplicated.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from bridge.audit_log import AuditEvent, ImportBegin, ImportExcluded, ImportFailed, ImportSuccess
from bridge.importer.context import ImportContext
from bridge.importer.examine import LoadedBundle
from bridge.importer.finish import (
    BundleFields,
    Completion,
    ImportDecision,
    bundle_fields,
    finish_decision,
)
from bridge.importer.ledger import BundleRow, BundleRun, ImportPlan, LedgerChange
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
    """An admitted bundle, and which of its events are imported."""

    row: BundleRow
    loaded: LoadedBundle
    missing: Sequence[BundleRun]
    duplicates: int
    accepted_gap: str | None
    verification: str
    source: str
    """The path of its bags inside the import directory."""
    inbox: Sequence[str]


class BundleCommitter:
    """Commits admitted bundles, and resumes plans that were interrupted."""

    def __init__(self, context: ImportContext) -> None:
        self._context = context

    def commit(self, batch: ImportBatch) -> ImportOutcome:
        """Import a bundle; PARTIAL if the hub does not accept all of it now."""
        context, row = self._context, replace(batch.row, state=ImportState.COMMITTING.value)
        spans = [run.span for run in batch.missing]
        excluded = exclusions(batch.loaded, spans, row, context.settings.exclusions)
        view = self._view(row.target)
        plan = ImportPlan(
            bundle_id=row.bundle_id,
            plan_id=context.random(16),
            source=batch.source,
            inbox="\n".join(batch.inbox),
            import_time=context.now,
            written=sum(span.size for span in spans),
            duplicates=batch.duplicates,
            excluded=write_exclusions(excluded),
            base_client_seq=view.cursor(self._bridge_id).client_seq,
            base_seq=view.seen,
            accepted_gap=batch.accepted_gap,
            verification=batch.verification,
        )
        context.ledger.begin(row, plan, batch.missing)
        self.move_bags(plan)
        self.hand_over(row, plan, batch.loaded)
        return self.complete(row, plan, resumed_from=None)

    def was_handed_over(self, plan: ImportPlan) -> bool:
        return self._context.bridge.note(PLAN_NOTE) == plan.plan_id

    def move_bags(self, plan: ImportPlan) -> Path:
        """The directory of a plan's bags, which are moved there if they were not."""
        import_dir = self._context.import_dir
        place = import_dir.committing(plan.bundle_id)
        import_dir.move(plan.source, import_dir.inside(place))
        return place

    def hand_over(self, row: BundleRow, plan: ImportPlan, loaded: LoadedBundle) -> None:
        """Put the events into the outbox, after ``import.begin`` is in the audit log."""
        context = self._context
        begin = ImportBegin(target=row.target, **self._bundle(row))
        context.audit_outbox.write_once(plan.plan_id + b"begin", [context.audit_outbox.body(begin)])
        spans = context.ledger.planned(row.bundle_id)
        imported_bodies = bodies(loaded, plan, row, spans, self._bridge_id)
        context.bridge.emit_each(
            ((row.target, body) for body in imported_bodies),
            note=Note(PLAN_NOTE, plan.plan_id),
            schema=IMPORT_SCHEMA,
            recipient=context.recipient,
        )

    def acknowledged(self, row: BundleRow, plan: ImportPlan) -> int:
        """The number of events of a plan in the log, according to the client's receipts.

        If a crash lost the client's state from before the plan, it is 0 until the hub is asked
        again.
        """
        known = self._view(row.target).cursor(self._bridge_id).client_seq
        return max(0, known - plan.base_client_seq)

    def complete(self, row: BundleRow, plan: ImportPlan, resumed_from: int | None) -> ImportOutcome:
        """Send the outbox, count the receipts, and finish the import."""
        try:
            with self._context.watch(f"sending to {row.target}", "events") as progress:
                self._context.bridge.flush(progress)
        except VeenError as error:
            return self._partial(row, plan, error)
        count = self.acknowledged(row, plan)
        if count != plan.written:
            raise Untrusted(
                f"{row.target}: expected receipts of {plan.written} events of bundle "
                f"{row.bundle_id.hex()}, got {count}; rebuild the ledger with "
                "veen bridge import --rebuild-ledger"
            )
        return finish_decision(self._context, self._success(row, plan, resumed_from))

    def _success(
        self, row: BundleRow, plan: ImportPlan, resumed_from: int | None
    ) -> ImportDecision:
        excluded = read_exclusions(plan.excluded)
        context, import_dir = self._context, self._context.import_dir
        newest = _newest(self._view(row.target), row.target)
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
        printed = PrintedReceipt.of(row, done, context.bridge.session.identity.client)
        committing = import_dir.committing(row.bundle_id)
        archive = import_dir.archive(row.bundle_id.hex())
        completion = Completion(
            token=plan.plan_id + b"done",
            events=tuple(events),
            change=LedgerChange(
                row=replace(row, state=ImportState.IMPORTED.value, detail=""),
                done=done,
                to_cover=context.settings.checkpoint is not None,
            ),
            writes=receipt_files(printed, row, done),
            moves=((import_dir.inside(committing), import_dir.inside(archive)),),
            removals=(
                *(name for name in plan.inbox.split("\n") if name),
                *import_dir.left_in_quarantine(row.bundle_id),
            ),
        )
        outcome = ImportOutcome(
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
        return ImportDecision(outcome, completion)

    def _partial(self, row: BundleRow, plan: ImportPlan, error: VeenError) -> ImportOutcome:
        """The outcome if the hub does not accept the rest now, which a later run sends."""
        context, position = self._context, self.acknowledged(row, plan)
        detail = f"{position} of {plan.written} events are imported: {error}; run this again"
        context.ledger.update(replace(row, state=ImportState.PARTIAL.value, detail=detail))
        failed = ImportFailed(
            operator=context.operator,
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
        context.audit_outbox.write_once(context.random(16), [context.audit_outbox.body(failed)])
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
        return self._context.bridge.session.identity.client_id

    def _view(self, target: str) -> LabelView:
        session = self._context.bridge.meet()
        return session.view(session.labels(target, DEFAULT_PROFILE).at(0), target, 0)

    def _bundle(self, row: BundleRow) -> BundleFields:
        return bundle_fields(row, self._context.operator)

    def _excluded(self, row: BundleRow, exclusion: Exclusion) -> ImportExcluded:
        return ImportExcluded(
            operator=self._context.operator,
            bundle_id=row.bundle_id,
            source_hub_id=row.source_hub_id,
            stream=row.stream,
            seq=exclusion.seq,
            position=exclusion.position,
            leaf_hash=bytes.fromhex(exclusion.leaf_hash),
            reason=exclusion.reason,
        )


def _newest(view: LabelView, target: str) -> Receipt:
    receipt = view.unlinked or view.head
    if receipt is None:
        raise Untrusted(f"{target}: expected a receipt of the hub, got none; run this again")
    return receipt


def _code(error: VeenError) -> str:
    return str(error).split(":", 1)[0][:64] or type(error).__name__
