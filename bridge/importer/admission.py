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
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from bridge.audit_log import REFUSED, REJECTED, ImportBlocked, ImportQuarantined
from bridge.carrier.reader import ContentSpan, copy_blocks
from bridge.carrier.verify import too_old
from bridge.errors import printable
from bridge.importer.approvals import approval_state
from bridge.importer.commit import ImportBatch
from bridge.importer.context import ImportContext
from bridge.importer.equivocation import RunFork, archived_receipt, equivocation, evidence
from bridge.importer.examine import ExaminedCarrier, LoadedBundle, verification
from bridge.importer.finish import ImportDecision, bundle_fields
from bridge.importer.holding import blocked, duplicate, presented_again, waiting
from bridge.importer.ledger import ENTRY_BYTES, BundleRow, BundleRun, SeqSpan, SourceStream
from bridge.importer.outcome import ImportState, IncomingCarrier
from bridge.importer.quarantine import QuarantineReason, contradict, quarantine
from bridge.importer.reason import FORK, code_of
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
class ScanResult:
    """The result of the scan hook; ``detail`` is its output, or why it did not pass."""

    passed: bool
    detail: str


def scan(
    command: Sequence[str], content: ContentSpan, folder: Path, timeout_sec: int
) -> ScanResult:
    """Run the hook on a copy of the content, which is removed afterwards."""
    path = folder / "bundle.cbor"
    with path.open("xb") as file:
        copy_blocks(content.blocks(), file)
    try:
        return _run([*command, os.fspath(path)], folder, timeout_sec)
    finally:
        path.unlink()


def _run(command: Sequence[str], folder: Path, timeout_sec: int) -> ScanResult:
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
            return ScanResult(False, f"{command[0]} cannot be run: {error.strerror}")
        code = _wait(process, timeout_sec)
        output.seek(0)
        text = printable(output.read(_OUTPUT).decode("utf-8", "replace"), _OUTPUT)
    if code is None:
        return ScanResult(False, f"the scan did not end within {timeout_sec} s: {text}")
    if code != 0:
        return ScanResult(False, f"the scan ended with {code}: {text}")
    return ScanResult(True, text)


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
    examined: ExaminedCarrier
    verified: VerifiedBundle
    loaded: LoadedBundle

    @property
    def stream(self) -> SourceStream:
        return SourceStream(self.row.source_hub_id, self.row.stream)

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


def admit(
    context: ImportContext, candidate: Candidate, scratch: Path
) -> ImportDecision | ImportBatch:
    """The events to import, or the decision if it is not imported now."""
    try:
        route = context.streams.route(candidate.row.source_hub_id, candidate.row.stream)
    except UnmappedStream as error:
        return _unmapped(context, candidate, error)
    candidate = replace(candidate, row=replace(candidate.row, target=route.target))
    return (
        _rejected_by_name(context, candidate)
        or _in_place(context, candidate)
        or _scanned(context, candidate, scratch)
        or _approved(context, candidate)
        or _batch(context, candidate)
    )


def _unmapped(
    context: ImportContext, candidate: Candidate, error: UnmappedStream
) -> ImportDecision:
    row, code, detail = candidate.row, "UNMAPPED", str(error)
    event = ImportQuarantined(
        operator=context.operator,
        bundle_id=row.bundle_id,
        sha256=row.sha256,
        source_hub_id=row.source_hub_id,
        stream=row.stream,
        from_seq=row.from_seq,
        to_seq=row.to_seq,
        code=code,
        detail=detail,
    )
    refusal = QuarantineReason(code=code, detail=detail, event=event, row=row)
    return quarantine(context, candidate.carrier, refusal)


def _rejected_by_name(context: ImportContext, candidate: Candidate) -> ImportDecision | None:
    """The decision if people reject the bundle now, or have rejected it before."""
    bundle_id = candidate.row.bundle_id
    if context.rejects(bundle_id):
        detail = f"rejected by {context.operator}: {context.reason}"
        return _rejected(context, candidate, "operator", detail)
    before = _rejected_before(context, candidate)
    if before is None or context.is_named(bundle_id):
        return None
    decision = _rejected(context, candidate, "operator", before)
    asked = f"veen bridge import --only {bundle_id.hex()[:16]} imports it"
    outcome = replace(decision.outcome, detail=f"{decision.outcome.detail}; {asked}")
    return decision._replace(outcome=outcome)


def _rejected_before(context: ImportContext, candidate: Candidate) -> str | None:
    """The detail of an earlier rejection of the bundle, if there was one."""
    known = context.ledger.bundle(candidate.row.bundle_id)
    if known is None or known.state != ImportState.REJECTED.value:
        return None
    return known.detail


def _rejected(context: ImportContext, candidate: Candidate, by: str, detail: str) -> ImportDecision:
    fields = bundle_fields(candidate.row, context.operator)
    refusal = QuarantineReason(
        code="REJECTED",
        detail=detail,
        event=ImportBlocked(by=by, detail=detail, decision=REJECTED, **fields),
        row=candidate.row,
        state=ImportState.REJECTED,
    )
    return quarantine(context, candidate.carrier, refusal)


def _in_place(context: ImportContext, candidate: Candidate) -> ImportDecision | None:
    """The decision unless the bundle continues what is held of its stream."""
    carrier, row, stream = candidate.carrier, candidate.row, candidate.stream
    frozen = context.ledger.frozen_at(stream)
    placed, held = _placed(context, candidate)
    if frozen is not None:
        return _frozen(context, candidate, placed, frozen)
    if placed.fork is not None:
        return _forked(context, candidate, placed.fork, held)
    checkpoint = candidate.verified.header.export_checkpoint
    contradiction = context.checkpoints.compare(checkpoint, stream.name, candidate.root_at)
    if contradiction is not None:
        return contradict(context, carrier, row, contradiction)
    if not placed.missing:
        return duplicate(context, carrier, row)
    if placed.gap is not None and not context.accepts_gap(row.bundle_id):
        return waiting(context, carrier, row, _gap(context, candidate))
    return None


def _placed(context: ImportContext, candidate: Candidate) -> tuple[Placement, list[BundleRun]]:
    row = candidate.row
    held = context.ledger.runs(candidate.stream, SeqSpan(row.from_seq - 1, row.to_seq + 1))
    return place(candidate.verified.survey.proof, candidate.offered, held), held


def _frozen(
    context: ImportContext, candidate: Candidate, placed: Placement, seq: int
) -> ImportDecision:
    """Hold a bundle of a frozen stream, unless all of it is held or it froze the stream itself."""
    carrier, row = candidate.carrier, candidate.row
    if placed.fork is None and not placed.missing:
        return duplicate(context, carrier, row)
    detail = f"the stream is frozen: its hub signed two histories, which part at {seq} or before"
    folder = context.import_dir.quarantine(row.bundle_id.hex())
    is_the_cause = context.ledger.frozen_by(candidate.stream) == row.bundle_id
    if is_the_cause and carrier.is_new and code_of(folder) == FORK:
        detail = f"{detail}; this bundle has one of them, and is in quarantine already"
        return presented_again(
            context, carrier, row, ImportState.QUARANTINED, code=FORK, detail=detail
        )
    return blocked(context, carrier, row, by="frozen", detail=detail, state=ImportState.FROZEN)


def _forked(
    context: ImportContext, candidate: Candidate, seq: int, held: list[BundleRun]
) -> ImportDecision:
    """Quarantine a bundle that contradicts what is held, and freeze its stream."""
    run = next(run for run in held if run.span.first <= seq <= run.span.last)
    with verification(context, run.bundle_id.hex()) as verify_context:
        archive = context.import_dir.archive("")
        receipt = archived_receipt(archive, run, seq, verify_context)
    fork = RunFork.of(candidate.row, candidate.loaded, seq, run)
    event = equivocation(context, candidate.row, fork)
    survey = candidate.verified.survey
    refusal = QuarantineReason(
        code=FORK,
        detail=event.detail,
        event=event,
        row=candidate.row,
        evidence=evidence(candidate.row, candidate.loaded, survey, fork, receipt),
        fork=event,
    )
    return quarantine(context, candidate.carrier, refusal)


def _gap(context: ImportContext, candidate: Candidate) -> SeqSpan:
    """The missing events between the bundle and the last held event before it."""
    first = candidate.row.from_seq
    before = [span.last for span in context.ledger.spans(candidate.stream) if span.last < first]
    return SeqSpan(max(before, default=0) + 1, first - 1)


def _scanned(context: ImportContext, candidate: Candidate, scratch: Path) -> ImportDecision | None:
    """The decision unless the scan hook passes the bundle, or there is none."""
    settings = context.settings
    if not settings.scan:
        return None
    content = candidate.examined.content
    scanned = scan(settings.scan, content, scratch, settings.scan_timeout_sec)
    if scanned.passed:
        return None
    fields = bundle_fields(candidate.row, context.operator)
    refusal = QuarantineReason(
        code="SCAN",
        detail=scanned.detail,
        event=ImportBlocked(by="scan", detail=scanned.detail, decision=REFUSED, **fields),
        row=candidate.row,
    )
    return quarantine(context, candidate.carrier, refusal)


def _approved(context: ImportContext, candidate: Candidate) -> ImportDecision | None:
    """The decision unless the request names the bundle and every approval rule is met."""
    carrier, row = candidate.carrier, candidate.row
    if not context.may_import(row.bundle_id):
        detail = "nobody has decided about it in this run"
        return blocked(context, carrier, row, by="operator", detail=detail)
    approvals = approval_state(
        context.import_dir.approvals, row.bundle_id, row.stream, context.settings.approvals
    )
    if approvals.is_met:
        return None
    if approvals.rejected:
        return _rejected(context, candidate, "approvals", approvals.describe())
    detail = f"{approvals.describe()}; veen bridge approve {row.bundle_id.hex()[:16]}"
    return blocked(context, carrier, row, by="approvals", detail=detail)


def _batch(context: ImportContext, candidate: Candidate) -> ImportBatch:
    carrier, row = candidate.carrier, candidate.row
    placed, _ = _placed(context, candidate)
    held_copy = context.import_dir.left_waiting(row.bundle_id) if carrier.is_new else ()
    return ImportBatch(
        row=row,
        loaded=candidate.loaded,
        missing=placed.missing,
        duplicates=placed.duplicates,
        accepted_gap=context.reason if placed.gap is not None else None,
        verification=_verification(context, candidate),
        source=context.import_dir.inside(carrier.place),
        inbox=(*carrier.inbox, *held_copy),
    )


def _verification(context: ImportContext, candidate: Candidate) -> str:
    """The verification result for the audit log: what was checked, and warnings."""
    report, notes = candidate.examined.report, ["valid"]
    rejected, age_sec = _rejected_before(context, candidate), report.age_sec or 0
    if rejected is not None:
        notes.append(f"imported by name, and had been {rejected}")
    if candidate.verified.unopened:
        notes.append(f"{candidate.verified.unopened} events are listed and not disclosed")
    if age_sec < 0:
        notes.append(f"the importer's clock is {-age_sec} s behind the bundle")
    if old := too_old(age_sec, context.settings.warn_age_sec):
        notes.append(old)
    return "; ".join([*notes, *report.notes])[:4000]
