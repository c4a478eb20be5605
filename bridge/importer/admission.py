"""Admission of a valid bundle: route, continuity, scan and approvals (AGB0 4.5, 4.8).

Placement decides which events of a bundle are new, against what is held of its stream. The scan
hook is a program of the zone that is given the path of the decrypted bundle: exit code 0 admits it;
any other, or a timeout, blocks it.
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
from bridge.importer.approvals import approval_state
from bridge.importer.commit import ImportBatch
from bridge.importer.context import ImportContext
from bridge.importer.directory import FORK, code_of
from bridge.importer.equivocation import RunFork, archived_receipt, equivocation, evidence
from bridge.importer.examine import Examined, Loaded
from bridge.importer.finish import bundle_fields
from bridge.importer.ledger import ENTRY_BYTES, BundleRow, BundleRun, SeqSpan, SourceStream
from bridge.importer.outcome import ImportOutcome, ImportState, IncomingCarrier
from bridge.importer.quarantine import Holding, Verdicts
from bridge.stream_map import UnmappedStream
from bridge.verify import VerifiedBundle
from veen.proofs import RangeProof

_OUTPUT: Final = 2000
_PATH: Final = {"PATH": "/usr/local/bin:/usr/bin:/bin", "LC_ALL": "C"}


@dataclass(frozen=True, slots=True)
class Placement:
    """``missing`` are the runs of the bundle that are not held; ``gap`` the missing range before
    it.

    ``fork`` is the sequence number at which the bundle contradicts what is held.
    """

    missing: tuple[BundleRun, ...] = ()
    duplicates: int = 0
    gap: SeqSpan | None = None
    fork: int | None = None


def place(proof: RangeProof, offered: BundleRun, held: list[BundleRun]) -> Placement:
    """Compare a verified bundle with ``held``, all runs that overlap or adjoin it.

    The leaf hashes and roots of held runs were verified when they were imported.
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
    """Whether the held run after the bundle continues it."""
    peaks = proof.before()
    for seq in range(offered.span.first, offered.span.last + 1):
        peaks = peaks.append(offered.leaf(seq))
    first = run.span.first
    return peaks.append(run.leaf(first)).root() == run.root(first)


def _missing(offered: BundleRun, held: list[BundleRun]) -> list[BundleRun]:
    first, last = offered.span
    missing, at = [], first
    for run in held:
        if run.span.last < at or run.span.first > last:
            continue
        if run.span.first > at:
            missing.append(_part(offered, at, run.span.first - 1))
        at = run.span.last + 1
    if at <= last:
        missing.append(_part(offered, at, last))
    return missing


def _part(run: BundleRun, first: int, last: int) -> BundleRun:
    return BundleRun(SeqSpan(first, last), run.bundle_id, _cut(run, first, last))


def _cut(run: BundleRun, first: int, last: int) -> bytes:
    start = (first - run.span.first) * ENTRY_BYTES
    return run.entries[start : start + (last - first + 1) * ENTRY_BYTES]


@dataclass(frozen=True, slots=True)
class Scan:
    passed: bool
    detail: str


def scan(command: Sequence[str], content: ContentSpan, folder: Path, timeout_sec: int) -> Scan:
    """Run the hook on a copy of the content, which is removed afterwards."""
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
    """The exit code; None after a timeout, when the whole process group is killed."""
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
    """A valid bundle that is to be admitted."""

    carrier: IncomingCarrier
    row: BundleRow
    examined: Examined
    verified: VerifiedBundle
    loaded: Loaded

    @property
    def offered(self) -> BundleRun:
        span = SeqSpan(self.row.from_seq, self.row.to_seq)
        return BundleRun(span, self.row.bundle_id, self.loaded.entries)

    def root_at(self, seq: int) -> bytes | None:
        """The root of the source stream at an event of the bundle, or at the event before it."""
        if seq == self.row.from_seq - 1:
            return self.verified.survey.proof.before().root()
        if self.row.from_seq <= seq <= self.row.to_seq:
            return self.offered.root(seq)
        return None


class BundleAdmission:
    def __init__(
        self,
        context: ImportContext,
        verdicts: Verdicts,
        verify_context: Callable[[str], AbstractContextManager[VerifyContext]],
    ) -> None:
        self._context = context
        self._verdicts = verdicts
        self._holding = Holding(context)
        self._verify_context = verify_context

    def settle(self, candidate: Candidate, scratch: Path) -> ImportOutcome | ImportBatch:
        """The events to import, or the outcome if it is not imported now."""
        context = self._context
        try:
            route = context.streams.route(candidate.row.source_hub_id, candidate.row.stream)
        except UnmappedStream as error:
            return self._unmapped(candidate, error)
        candidate = replace(candidate, row=replace(candidate.row, target=route.target))
        if context.rejects(candidate.row.bundle_id):
            return self._rejected(
                candidate, "operator", f"rejected by {context.operator}: {context.reason}"
            )
        before = self._rejected_before(candidate)
        if before is not None and not context.names(candidate.row.bundle_id):
            asked = f"veen bridge import --only {candidate.row.bundle_id.hex()[:16]} lets it in"
            outcome = self._rejected(candidate, "operator", before)
            return replace(outcome, detail=f"{outcome.detail}; {asked}")
        stream = SourceStream(candidate.row.source_hub_id, candidate.row.stream)
        frozen = context.ledger.frozen_at(stream)
        if frozen is not None:
            return self._frozen(candidate, stream, frozen)
        return self._place(candidate, stream) or self._ask(candidate, stream, scratch)

    def _frozen(self, candidate: Candidate, stream: SourceStream, seq: int) -> ImportOutcome:
        """Hold a bundle of a frozen stream, unless all of it is held or it froze the stream
        itself.
        """
        placed, _ = self._placed(candidate, stream)
        if placed.fork is None and not placed.missing:
            return self._duplicate(candidate)
        detail, row = f"the stream is frozen: its hub told two histories at {seq}", candidate.row
        folder = self._context.import_dir.quarantine(row.bundle_id.hex())
        is_the_cause = self._context.ledger.frozen_by(stream) == row.bundle_id
        if is_the_cause and candidate.carrier.is_new and code_of(folder) == FORK:
            detail = f"{detail}, of which this bundle tells one; it lies in quarantine already"
            outcome = self._holding.again(candidate.carrier, row, ImportState.QUARANTINED, detail)
            return replace(outcome, code=FORK)
        return self._holding.blocked(candidate.carrier, row, ImportState.FROZEN, "frozen", detail)

    def _place(self, candidate: Candidate, stream: SourceStream) -> ImportOutcome | None:
        placed, held = self._placed(candidate, stream)
        if placed.fork is not None:
            return self._fork(candidate, placed.fork, held)
        checkpoint = candidate.verified.header.export_checkpoint
        wrong = self._context.checkpoints.judge(checkpoint, stream.name, candidate.root_at)
        if wrong is not None:
            return self._verdicts.contradicted(candidate.carrier, candidate.row, wrong)
        if not placed.missing:
            return self._duplicate(candidate)
        if placed.gap is not None and not self._context.accepts_gap(candidate.row.bundle_id):
            return self._holding.waiting(
                candidate.carrier, candidate.row, self._gap(stream, candidate.row)
            )
        return None

    def _duplicate(self, candidate: Candidate) -> ImportOutcome:
        known = self._context.ledger.bundle(candidate.row.bundle_id)
        return self._holding.duplicate(candidate.carrier, candidate.row, known)

    def _ask(
        self, candidate: Candidate, stream: SourceStream, scratch: Path
    ) -> ImportOutcome | ImportBatch:
        stopped = self._ask_scan(candidate, scratch) or self._ask_people(candidate)
        return stopped or self._batch(candidate, self._placed(candidate, stream)[0])

    def _placed(
        self, candidate: Candidate, stream: SourceStream
    ) -> tuple[Placement, list[BundleRun]]:
        row = candidate.row
        held = self._context.ledger.runs(stream, SeqSpan(row.from_seq - 1, row.to_seq + 1))
        return place(candidate.verified.survey.proof, candidate.offered, held), held

    def _batch(self, candidate: Candidate, placed: Placement) -> ImportBatch:
        context, carrier = self._context, candidate.carrier
        left = context.import_dir.left_waiting(candidate.row.bundle_id) if carrier.is_new else ()
        return ImportBatch(
            row=candidate.row,
            loaded=candidate.loaded,
            missing=placed.missing,
            duplicates=placed.duplicates,
            accepted_gap=context.reason if placed.gap is not None else None,
            verification=self._verification(candidate),
            source=context.import_dir.inside(carrier.place),
            inbox=(*carrier.inbox, *left),
        )

    def _ask_scan(self, candidate: Candidate, scratch: Path) -> ImportOutcome | None:
        settings = self._context.settings
        if not settings.scan:
            return None
        scanned = scan(
            settings.scan, candidate.examined.content, scratch, settings.scan_timeout_sec
        )
        if scanned.passed:
            return None
        fields = bundle_fields(candidate.row, self._context.operator)
        event = ImportBlocked(by="scan", detail=scanned.detail, decision=REFUSED, **fields)
        return self._verdicts.quarantine(
            candidate.carrier, candidate.row, event, "SCAN", scanned.detail
        )

    def _ask_people(self, candidate: Candidate) -> ImportOutcome | None:
        context, row = self._context, candidate.row
        if not context.lets_in(row.bundle_id):
            detail = "nobody has decided about it in this run"
            return self._holding.blocked(
                candidate.carrier, row, ImportState.BLOCKED, "operator", detail
            )
        approvals = approval_state(
            context.import_dir.approvals, row.bundle_id, row.stream, context.settings.approvals
        )
        if approvals.is_met:
            return None
        if not approvals.rejected:
            detail = f"{approvals.describe()}; veen bridge approve {row.bundle_id.hex()[:16]}"
            return self._holding.blocked(
                candidate.carrier, row, ImportState.BLOCKED, "approvals", detail
            )
        return self._rejected(candidate, "approvals", approvals.describe())

    def _rejected_before(self, candidate: Candidate) -> str | None:
        """The detail of an earlier rejection of the bundle, if there was one."""
        known = self._context.ledger.bundle(candidate.row.bundle_id)
        if known is None or known.state != ImportState.REJECTED.value:
            return None
        return known.detail

    def _rejected(self, candidate: Candidate, by: str, detail: str) -> ImportOutcome:
        fields = bundle_fields(candidate.row, self._context.operator)
        event = ImportBlocked(by=by, detail=detail, decision=REJECTED, **fields)
        return self._verdicts.quarantine(
            candidate.carrier, candidate.row, event, "REJECTED", detail, state=ImportState.REJECTED
        )

    def _fork(self, candidate: Candidate, seq: int, held: list[BundleRun]) -> ImportOutcome:
        run = next(run for run in held if run.span.first <= seq <= run.span.last)
        with self._verify_context(run.bundle_id.hex()) as verify_context:
            archive = self._context.import_dir.archive("")
            receipt = archived_receipt(archive, run, seq, verify_context)
        fork = RunFork.of(candidate.row, candidate.loaded, seq, run)
        event = equivocation(self._context, candidate.row, fork)
        stored = evidence(candidate.row, candidate.loaded, candidate.verified.survey, fork, receipt)
        return self._verdicts.quarantine(
            candidate.carrier, candidate.row, event, FORK, event.detail, evidence=stored
        )

    def _unmapped(self, candidate: Candidate, error: UnmappedStream) -> ImportOutcome:
        row = candidate.row
        event = ImportQuarantined(
            operator=self._context.operator,
            bundle_id=row.bundle_id,
            sha256=row.sha256,
            source_hub_id=row.source_hub_id,
            stream=row.stream,
            from_seq=row.from_seq,
            to_seq=row.to_seq,
            code="UNMAPPED",
            detail=str(error),
        )
        return self._verdicts.quarantine(candidate.carrier, row, event, "UNMAPPED", str(error))

    def _gap(self, stream: SourceStream, row: BundleRow) -> SeqSpan:
        spans = self._context.ledger.spans(stream)
        before = [span.last for span in spans if span.last < row.from_seq]
        return SeqSpan(max(before, default=0) + 1, row.from_seq - 1)

    def _verification(self, candidate: Candidate) -> str:
        """The verification result for the audit log: what was checked, and warnings."""
        report, notes = candidate.examined.report, ["valid"]
        rejected, age_sec = self._rejected_before(candidate), report.age_sec or 0
        if rejected is not None:
            notes.append(f"let in by name, and had been {rejected}")
        if candidate.verified.unopened:
            notes.append(f"{candidate.verified.unopened} events told of and not disclosed")
        if age_sec < 0:
            notes.append(f"the importer's clock is {-age_sec} s behind the bundle")
        if old := too_old(age_sec, self._context.settings.warn_age_sec):
            notes.append(old)
        return "; ".join([*notes, *report.notes])[:4000]
