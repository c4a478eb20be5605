"""Whether a bundle of which everything holds may go in now: its route, its place, its scan and the
people who must agree (AGB0 4.5).

How a bundle joins on to what is held of its stream: which of its events are new (AGB0 4.8).

The scan hook: a program of the zone's own that looks at a bundle before it is let in.

It is given the path of the bundle in the clear. Exit 0 lets it pass; anything else, or taking too
long, blocks it.
"""

from __future__ import annotations

import os
import signal
import subprocess
import tempfile
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from bridge.audit_log import REFUSED, REJECTED, ImportBlocked, ImportQuarantined
from bridge.carrier.reader import ContentSpan, copy_blocks
from bridge.carrier.verify import VerifyContext, too_old
from bridge.errors import printable
from bridge.importer.airlock import FORK, code_of
from bridge.importer.approvals import standing
from bridge.importer.commit import ImportBatch
from bridge.importer.context import ImportContext
from bridge.importer.equivocation import RunFork, archived_receipt, equivocation, evidence
from bridge.importer.examine import Examined, Loaded
from bridge.importer.finish import bundle_fields
from bridge.importer.ledger import ENTRY_BYTES, BundleRow, BundleRun, SeqSpan, SourceStream
from bridge.importer.outcome import ImportOutcome, ImportState, IncomingCarrier
from bridge.importer.quarantine import Holding, Verdicts
from bridge.stream_map import UnmappedStream
from bridge.verify import VerifiedBundle
from veen.proofs import RangeProof


@dataclass(frozen=True, slots=True)
class Placement:
    """``missing`` are the runs of the bundle that are not held; ``gap`` what is not before it.

    ``fork`` is the place at which what is held and the bundle are two histories.
    """

    missing: tuple[BundleRun, ...] = ()
    duplicates: int = 0
    gap: SeqSpan | None = None
    fork: int | None = None


def place(proof: RangeProof, offered: BundleRun, held: list[BundleRun]) -> Placement:
    """``held`` are all runs that touch the bundle, or lie just before or behind it.

    Everything of the bundle is verified; so are leaves and roots of what is held.
    """
    fork = _fork(proof, offered, held)
    if fork is not None:
        return Placement(fork=fork)
    before = offered.span.first - 1
    missing = tuple(_missing(offered, held))
    gap = None
    if before and not any(run.span.first <= before <= run.span.last for run in held):
        gap = SeqSpan(1, before)
    new = sum(run.span.size for run in missing)
    return Placement(missing, offered.span.size - new, gap)


def _fork(proof: RangeProof, offered: BundleRun, held: list[BundleRun]) -> int | None:
    first, last = offered.span
    for run in held:
        if run.span.first <= first - 1 <= run.span.last and (
            proof.before().root() != run.root(first - 1)
        ):
            return first - 1
        low, high = max(first, run.span.first), min(last, run.span.last)
        if low <= high and _cut(offered, low, high) != _cut(run, low, high):
            return next(
                seq
                for seq in range(low, high + 1)
                if (offered.leaf(seq), offered.root(seq)) != (run.leaf(seq), run.root(seq))
            )
        if run.span.first == last + 1 and not _leads_to(proof, offered, run):
            return last + 1
    return None


def _leads_to(proof: RangeProof, offered: BundleRun, run: BundleRun) -> bool:
    """Whether the run that is held behind the bundle grows out of it."""
    peaks = proof.before()
    for seq in range(offered.span.first, offered.span.last + 1):
        peaks = peaks.append(offered.leaf(seq))
    first = run.span.first
    return peaks.append(run.leaf(first)).root() == run.root(first)


def _missing(offered: BundleRun, held: list[BundleRun]) -> list[BundleRun]:
    first, last = offered.span
    result, at = [], first
    for run in held:
        if run.span.last < at or run.span.first > last:
            continue
        if run.span.first > at:
            result.append(_part(offered, at, run.span.first - 1))
        at = run.span.last + 1
    if at <= last:
        result.append(_part(offered, at, last))
    return result


def _part(run: BundleRun, first: int, last: int) -> BundleRun:
    return BundleRun(SeqSpan(first, last), run.bundle_id, _cut(run, first, last))


def _cut(run: BundleRun, first: int, last: int) -> bytes:
    start = (first - run.span.first) * ENTRY_BYTES
    return run.entries[start : start + (last - first + 1) * ENTRY_BYTES]


_OUTPUT: Final = 2000
_PATH: Final = {"PATH": "/usr/local/bin:/usr/bin:/bin", "LC_ALL": "C"}


@dataclass(frozen=True, slots=True)
class Scan:
    passed: bool
    detail: str


def scan(command: Sequence[str], content: ContentSpan, folder: Path, timeout_sec: int) -> Scan:
    """Run the hook on a copy of the content, which is gone afterwards."""
    path = folder / "bundle.cbor"
    with path.open("xb") as file:
        copy_blocks(content.blocks(), file)
    try:
        return _run([*command, os.fspath(path)], folder, timeout_sec)
    finally:
        path.unlink()


def _run(command: Sequence[str], folder: Path, timeout_sec: int) -> Scan:
    with tempfile.TemporaryFile(dir=folder) as output:
        try:
            process = subprocess.Popen(  # noqa: S603 - the operator's own program
                command,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                cwd=folder,
                env=_PATH,
                start_new_session=True,
            )
        except OSError as error:
            return Scan(False, f"{command[0]} cannot be run: {error.strerror}")
        code = _wait(process, timeout_sec)
        output.seek(0)
        said = printable(output.read(_OUTPUT).decode("utf-8", "replace"), _OUTPUT)
    if code is None:
        return Scan(False, f"the scan did not end within {timeout_sec} s: {said}")
    if code != 0:
        return Scan(False, f"the scan ended with {code}: {said}")
    return Scan(True, said)


def _wait(process: subprocess.Popen[bytes], timeout_sec: int) -> int | None:
    """How it ended; None when it had to be ended, with all that it had started."""
    try:
        return process.wait(timeout_sec)
    except subprocess.TimeoutExpired:
        return None
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()


@dataclass(frozen=True, slots=True)
class Candidate:
    """A bundle that asks to be let in."""

    work: IncomingCarrier
    row: BundleRow
    found: Examined
    verified: VerifiedBundle
    loaded: Loaded

    @property
    def offered(self) -> BundleRun:
        span = SeqSpan(self.row.from_seq, self.row.to_seq)
        return BundleRun(span, self.row.bundle_id, self.loaded.entries)

    def root_at(self, seq: int) -> bytes | None:
        """The root of the source's range at an event of the bundle, or at that just before it."""
        if seq == self.row.from_seq - 1:
            return self.verified.survey.proof.before().root()
        if self.row.from_seq <= seq <= self.row.to_seq:
            return self.offered.root(seq)
        return None


class BundleAdmission:
    def __init__(
        self,
        tools: ImportContext,
        verdicts: Verdicts,
        means: Callable[[str], AbstractContextManager[VerifyContext]],
    ) -> None:
        self._tools = tools
        self._verdicts = verdicts
        self._holding = Holding(tools)
        self._means = means

    def settle(self, candidate: Candidate, scratch: Path) -> ImportOutcome | ImportBatch:
        """What is to be written of it, or what became of it instead."""
        tools = self._tools
        try:
            route = tools.streams.route(candidate.row.source_hub_id, candidate.row.stream)
        except UnmappedStream as error:
            return self._unmapped(candidate, error)
        candidate = replace(candidate, row=replace(candidate.row, target=route.target))
        if tools.rejects(candidate.row.bundle_id):
            return self._rejected(
                candidate, "operator", f"rejected by {tools.operator}: {tools.reason}"
            )
        before = self._rejected_before(candidate)
        if before is not None and not tools.names(candidate.row.bundle_id):
            asked = f"veen bridge import --only {candidate.row.bundle_id.hex()[:16]} lets it in"
            result = self._rejected(candidate, "operator", before)
            return replace(result, detail=f"{result.detail}; {asked}")
        stream = SourceStream(candidate.row.source_hub_id, candidate.row.stream)
        frozen = tools.ledger.frozen_at(stream)
        if frozen is not None:
            return self._frozen(candidate, stream, frozen)
        return self._place(candidate, stream) or self._ask(candidate, stream, scratch)

    def _frozen(self, candidate: Candidate, stream: SourceStream, seq: int) -> ImportOutcome:
        """It waits, unless it brings nothing: all of it is held, or it is what froze the stream."""
        placed, _ = self._placed(candidate, stream)
        if placed.fork is None and not placed.missing:
            return self._duplicate(candidate)
        detail, row = f"the stream is frozen: its hub told two histories at {seq}", candidate.row
        folder = self._tools.airlock.quarantine(row.bundle_id.hex())
        is_the_cause = self._tools.ledger.frozen_by(stream) == row.bundle_id
        if is_the_cause and candidate.work.is_new and code_of(folder) == FORK:
            detail = f"{detail}, of which this bundle tells one; it lies in quarantine already"
            result = self._holding.again(candidate.work, row, ImportState.QUARANTINED, detail)
            return replace(result, code=FORK)
        return self._holding.blocked(candidate.work, row, ImportState.FROZEN, "frozen", detail)

    def _place(self, candidate: Candidate, stream: SourceStream) -> ImportOutcome | None:
        placed, held = self._placed(candidate, stream)
        if placed.fork is not None:
            return self._fork(candidate, placed.fork, held)
        checkpoint = candidate.verified.header.export_checkpoint
        wrong = self._tools.checkpoints.judge(checkpoint, stream.name, candidate.root_at)
        if wrong is not None:
            return self._verdicts.contradicted(candidate.work, candidate.row, wrong)
        if not placed.missing:
            return self._duplicate(candidate)
        if placed.gap is not None and not self._tools.accepts_gap(candidate.row.bundle_id):
            return self._holding.waiting(
                candidate.work, candidate.row, self._gap(stream, candidate.row)
            )
        return None

    def _duplicate(self, candidate: Candidate) -> ImportOutcome:
        known = self._tools.ledger.bundle(candidate.row.bundle_id)
        return self._holding.duplicate(candidate.work, candidate.row, known)

    def _ask(
        self, candidate: Candidate, stream: SourceStream, scratch: Path
    ) -> ImportOutcome | ImportBatch:
        stopped = self._ask_scan(candidate, scratch) or self._ask_people(candidate)
        return stopped or self._batch(candidate, self._placed(candidate, stream)[0])

    def _placed(
        self, candidate: Candidate, stream: SourceStream
    ) -> tuple[Placement, list[BundleRun]]:
        row = candidate.row
        held = self._tools.ledger.runs(stream, SeqSpan(row.from_seq - 1, row.to_seq + 1))
        return place(candidate.verified.survey.proof, candidate.offered, held), held

    def _batch(self, candidate: Candidate, placed: Placement) -> ImportBatch:
        tools, work = self._tools, candidate.work
        left = tools.airlock.left_waiting(candidate.row.bundle_id) if work.is_new else ()
        return ImportBatch(
            row=candidate.row,
            loaded=candidate.loaded,
            missing=placed.missing,
            duplicates=placed.duplicates,
            accepted_gap=tools.reason if placed.gap is not None else None,
            verification=self._verification(candidate),
            source=tools.airlock.inside(work.place),
            inbox=(*work.inbox, *left),
        )

    def _ask_scan(self, candidate: Candidate, scratch: Path) -> ImportOutcome | None:
        settings = self._tools.settings
        if not settings.scan:
            return None
        result = scan(settings.scan, candidate.found.content, scratch, settings.scan_timeout_sec)
        if result.passed:
            return None
        fields = bundle_fields(candidate.row, self._tools.operator)
        event = ImportBlocked(by="scan", detail=result.detail, decision=REFUSED, **fields)
        return self._verdicts.quarantine(
            candidate.work, candidate.row, event, "SCAN", result.detail
        )

    def _ask_people(self, candidate: Candidate) -> ImportOutcome | None:
        tools, row = self._tools, candidate.row
        if not tools.lets_in(row.bundle_id):
            detail = "nobody has decided about it in this run"
            return self._holding.blocked(
                candidate.work, row, ImportState.BLOCKED, "operator", detail
            )
        result = standing(
            tools.airlock.approvals, row.bundle_id, row.stream, tools.settings.approvals
        )
        if result.is_met:
            return None
        if not result.rejected:
            detail = f"{result.describe()}; veen bridge approve {row.bundle_id.hex()[:16]}"
            return self._holding.blocked(
                candidate.work, row, ImportState.BLOCKED, "approvals", detail
            )
        return self._rejected(candidate, "approvals", result.describe())

    def _rejected_before(self, candidate: Candidate) -> str | None:
        """What was said of a bundle when people decided against it."""
        known = self._tools.ledger.bundle(candidate.row.bundle_id)
        if known is None or known.state != ImportState.REJECTED.value:
            return None
        return known.detail

    def _rejected(self, candidate: Candidate, by: str, value: str) -> ImportOutcome:
        fields = bundle_fields(candidate.row, self._tools.operator)
        event = ImportBlocked(by=by, detail=value, decision=REJECTED, **fields)
        return self._verdicts.quarantine(
            candidate.work, candidate.row, event, "REJECTED", value, state=ImportState.REJECTED
        )

    def _fork(self, candidate: Candidate, seq: int, held: list[BundleRun]) -> ImportOutcome:
        run = next(result for result in held if result.span.first <= seq <= result.span.last)
        with self._means(run.bundle_id.hex()) as means:
            archive = self._tools.airlock.archive("")
            receipt = archived_receipt(archive, run, seq, means)
        fork = RunFork.of(candidate.row, candidate.loaded, seq, run)
        event = equivocation(self._tools, candidate.row, fork)
        stored = evidence(candidate.row, candidate.loaded, candidate.verified.survey, fork, receipt)
        return self._verdicts.quarantine(
            candidate.work, candidate.row, event, FORK, event.detail, evidence=stored
        )

    def _unmapped(self, candidate: Candidate, error: UnmappedStream) -> ImportOutcome:
        row = candidate.row
        event = ImportQuarantined(
            operator=self._tools.operator,
            bundle_id=row.bundle_id,
            sha256=row.sha256,
            source_hub_id=row.source_hub_id,
            stream=row.stream,
            from_seq=row.from_seq,
            to_seq=row.to_seq,
            code="UNMAPPED",
            detail=str(error),
        )
        return self._verdicts.quarantine(candidate.work, row, event, "UNMAPPED", str(error))

    def _gap(self, stream: SourceStream, row: BundleRow) -> SeqSpan:
        spans = self._tools.ledger.spans(stream)
        before = [span.last for span in spans if span.last < row.from_seq]
        return SeqSpan(max(before, default=0) + 1, row.from_seq - 1)

    def _verification(self, candidate: Candidate) -> str:
        """For the audit log: what was checked, and what could not be, or looks odd."""
        report, result = candidate.found.report, ["valid"]
        rejected, age_sec = self._rejected_before(candidate), report.age_sec or 0
        if rejected is not None:
            result.append(f"let in by name, and had been {rejected}")
        if candidate.verified.unopened:
            result.append(f"{candidate.verified.unopened} events told of and not disclosed")
        if age_sec < 0:
            result.append(f"the importer's clock is {-age_sec} s behind the bundle")
        if old := too_old(age_sec, self._tools.settings.warn_age_sec):
            result.append(old)
        return "; ".join([*result, *report.notes])[:4000]
