"""Whether a bundle of which everything holds may go in now: its route, its place, its scan and the
people who must agree (AGB0 4.5).
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from pathlib import Path

from bridge.audit_events import REFUSED, REJECTED, ImportBlocked, ImportQuarantined
from bridge.carrier.age import too_old
from bridge.carrier.check import Means
from bridge.importer.approvals import standing
from bridge.importer.audit_fields import bundle_fields
from bridge.importer.commit import Batch
from bridge.importer.equivocation import Fork, archived_receipt, equivocation, evidence
from bridge.importer.examine import Examined, Loaded
from bridge.importer.holding import Holding
from bridge.importer.ledger_tables import BundleRow, Run, Span, Stream
from bridge.importer.outcome import Outcome, State
from bridge.importer.placement import Placement, place
from bridge.importer.quarantined import FORK, code_of
from bridge.importer.scan import scan
from bridge.importer.tools import Tools
from bridge.importer.verdicts import Verdicts
from bridge.importer.work import Work
from bridge.stream_map import UnmappedStream
from bridge.verify import Verified


@dataclass(frozen=True, slots=True)
class Candidate:
    """A bundle that asks to be let in."""

    work: Work
    row: BundleRow
    found: Examined
    verified: Verified
    loaded: Loaded

    @property
    def offered(self) -> Run:
        span = Span(self.row.from_seq, self.row.to_seq)
        return Run(span, self.row.bundle_id, self.loaded.entries)

    def root_at(self, seq: int) -> bytes | None:
        """The root of the source's range at an event of the bundle, or at that just before it."""
        if seq == self.row.from_seq - 1:
            return self.verified.survey.proof.before().root()
        if self.row.from_seq <= seq <= self.row.to_seq:
            return self.offered.root(seq)
        return None


class Admission:
    def __init__(
        self,
        tools: Tools,
        verdicts: Verdicts,
        means: Callable[[str], AbstractContextManager[Means]],
    ) -> None:
        self._tools = tools
        self._verdicts = verdicts
        self._holding = Holding(tools)
        self._means = means

    def settle(self, one: Candidate, scratch: Path) -> Outcome | Batch:
        """What is to be written of it, or what became of it instead."""
        tools = self._tools
        try:
            route = tools.streams.route(one.row.source_hub_id, one.row.stream)
        except UnmappedStream as error:
            return self._unmapped(one, error)
        one = replace(one, row=replace(one.row, target=route.target))
        if tools.rejects(one.row.bundle_id):
            return self._rejected(one, "operator", f"rejected by {tools.operator}: {tools.reason}")
        before = self._rejected_before(one)
        if before is not None and not tools.names(one.row.bundle_id):
            asked = f"veen bridge import --only {one.row.bundle_id.hex()[:16]} lets it in"
            found = self._rejected(one, "operator", before)
            return replace(found, told=f"{found.told}; {asked}")
        stream = Stream(one.row.source_hub_id, one.row.stream)
        frozen = tools.ledger.frozen_at(stream)
        if frozen is not None:
            return self._frozen(one, stream, frozen)
        return self._place(one, stream) or self._ask(one, stream, scratch)

    def _frozen(self, one: Candidate, stream: Stream, seq: int) -> Outcome:
        """It waits, unless it brings nothing: all of it is held, or it is what froze the stream."""
        placed, _ = self._placed(one, stream)
        if placed.fork is None and not placed.missing:
            return self._duplicate(one)
        told, row = f"the stream is frozen: its hub told two histories at {seq}", one.row
        folder = self._tools.airlock.quarantine(row.bundle_id.hex())
        is_the_cause = self._tools.ledger.frozen_by(stream) == row.bundle_id
        if is_the_cause and one.work.is_new and code_of(folder) == FORK:
            told = f"{told}, of which this bundle tells one; it lies in quarantine already"
            found = self._holding.again(one.work, row, State.QUARANTINED, told)
            return replace(found, code=FORK)
        return self._holding.blocked(one.work, row, State.FROZEN, "frozen", told)

    def _place(self, one: Candidate, stream: Stream) -> Outcome | None:
        placed, held = self._placed(one, stream)
        if placed.fork is not None:
            return self._fork(one, placed.fork, held)
        checkpoint = one.verified.header.export_checkpoint
        wrong = self._tools.checkpoints.judge(checkpoint, stream.name, one.root_at)
        if wrong is not None:
            return self._verdicts.contradicted(one.work, one.row, wrong)
        if not placed.missing:
            return self._duplicate(one)
        if placed.gap is not None and not self._tools.accepts_gap(one.row.bundle_id):
            return self._holding.waiting(one.work, one.row, self._gap(stream, one.row))
        return None

    def _duplicate(self, one: Candidate) -> Outcome:
        known = self._tools.ledger.bundle(one.row.bundle_id)
        return self._holding.duplicate(one.work, one.row, known)

    def _ask(self, one: Candidate, stream: Stream, scratch: Path) -> Outcome | Batch:
        stopped = self._ask_scan(one, scratch) or self._ask_people(one)
        return stopped or self._batch(one, self._placed(one, stream)[0])

    def _placed(self, one: Candidate, stream: Stream) -> tuple[Placement, list[Run]]:
        row = one.row
        held = self._tools.ledger.runs(stream, Span(row.from_seq - 1, row.to_seq + 1))
        return place(one.verified.survey.proof, one.offered, held), held

    def _batch(self, one: Candidate, placed: Placement) -> Batch:
        tools, work = self._tools, one.work
        left = tools.airlock.left_waiting(one.row.bundle_id) if work.is_new else ()
        return Batch(
            row=one.row,
            loaded=one.loaded,
            missing=placed.missing,
            duplicates=placed.duplicates,
            accepted_gap=tools.reason if placed.gap is not None else None,
            verification=self._verification(one),
            source=tools.airlock.inside(work.place),
            inbox=(*work.inbox, *left),
        )

    def _ask_scan(self, one: Candidate, scratch: Path) -> Outcome | None:
        settings = self._tools.settings
        if not settings.scan:
            return None
        result = scan(settings.scan, one.found.content, scratch, settings.scan_timeout_sec)
        if result.passed:
            return None
        fields = bundle_fields(one.row, self._tools.operator)
        event = ImportBlocked(by="scan", told=result.told, decision=REFUSED, **fields)
        return self._verdicts.quarantine(one.work, one.row, event, "SCAN", result.told)

    def _ask_people(self, one: Candidate) -> Outcome | None:
        tools, row = self._tools, one.row
        if not tools.lets_in(row.bundle_id):
            told = "nobody has decided about it in this run"
            return self._holding.blocked(one.work, row, State.BLOCKED, "operator", told)
        found = standing(
            tools.airlock.approvals, row.bundle_id, row.stream, tools.settings.approvals
        )
        if found.is_met:
            return None
        if not found.rejected:
            told = f"{found.told()}; veen bridge approve {row.bundle_id.hex()[:16]}"
            return self._holding.blocked(one.work, row, State.BLOCKED, "approvals", told)
        return self._rejected(one, "approvals", found.told())

    def _rejected_before(self, one: Candidate) -> str | None:
        """What was said of a bundle when people decided against it."""
        known = self._tools.ledger.bundle(one.row.bundle_id)
        if known is None or known.state != State.REJECTED.value:
            return None
        return known.told

    def _rejected(self, one: Candidate, by: str, told: str) -> Outcome:
        fields = bundle_fields(one.row, self._tools.operator)
        event = ImportBlocked(by=by, told=told, decision=REJECTED, **fields)
        return self._verdicts.quarantine(
            one.work, one.row, event, "REJECTED", told, state=State.REJECTED
        )

    def _fork(self, one: Candidate, seq: int, held: list[Run]) -> Outcome:
        run = next(found for found in held if found.span.first <= seq <= found.span.last)
        with self._means(run.bundle_id.hex()) as means:
            archive = self._tools.airlock.archive("")
            receipt = archived_receipt(archive, run, seq, means)
        fork = Fork.of(one.row, one.loaded, seq, run)
        event = equivocation(self._tools, one.row, fork)
        kept = evidence(one.row, one.loaded, one.verified.survey, fork, receipt)
        return self._verdicts.quarantine(one.work, one.row, event, FORK, event.told, evidence=kept)

    def _unmapped(self, one: Candidate, error: UnmappedStream) -> Outcome:
        row = one.row
        event = ImportQuarantined(
            operator=self._tools.operator,
            bundle_id=row.bundle_id,
            sha256=row.sha256,
            source_hub_id=row.source_hub_id,
            stream=row.stream,
            from_seq=row.from_seq,
            to_seq=row.to_seq,
            code="UNMAPPED",
            told=str(error),
        )
        return self._verdicts.quarantine(one.work, row, event, "UNMAPPED", str(error))

    def _gap(self, stream: Stream, row: BundleRow) -> Span:
        spans = self._tools.ledger.spans(stream)
        before = [span.last for span in spans if span.last < row.from_seq]
        return Span(max(before, default=0) + 1, row.from_seq - 1)

    def _verification(self, one: Candidate) -> str:
        """For the audit log: what was checked, and what could not be, or looks odd."""
        report, found = one.found.report, ["valid"]
        rejected, age_sec = self._rejected_before(one), report.age_sec or 0
        if rejected is not None:
            found.append(f"let in by name, and had been {rejected}")
        if one.verified.unopened:
            found.append(f"{one.verified.unopened} events told of and not disclosed")
        if age_sec < 0:
            found.append(f"the importer's clock is {-age_sec} s behind the bundle")
        if old := too_old(age_sec, self._tools.settings.warn_age_sec):
            found.append(old)
        return "; ".join([*found, *report.notes])[:4000]
