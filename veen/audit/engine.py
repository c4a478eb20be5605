"""The audit of a whole log: every byte of it against what its hub signed.

The caller says where bytes come from (``Read``) and how chunks are audited (``AuditPool``): one
after another, in several processes, or as partitions of a cluster. The report is the same. Recorder
checkpoints are checked against the log and against each other (SDR0 3.2.4).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from itertools import chain
from typing import Final

from veen.audit.artefacts import check_bindings, read_lines
from veen.audit.chunk import See, audit_chunk, no_observer
from veen.audit.clients import RateUses, check_rates
from veen.audit.context import (
    ChunkFindings,
    Context,
    FindingKind,
    LabelPlan,
    Read,
    Start,
    Stock,
    Task,
    plan,
)
from veen.audit.continuity import LabelContinuity, LabelFindings
from veen.audit.entries import Hint, no_hint
from veen.audit.pruned import audit_absent, audit_tombstone
from veen.audit.report import AuditFault, AuditReport
from veen.checkpoint import Checkpoint
from veen.errors import Malformed, Untrusted
from veen.hub_identity import HubIdentity
from veen.label import derive_label, routing_key
from veen.log import layout
from veen.log.checkpoint_index import decode_growing
from veen.log.chunk import CheckpointRef
from veen.log.entry import control_label
from veen.log.layout import ChunkName, RecorderName
from veen.recorder_checkpoint import RecorderCheckpoint, StreamEnd

_CODE: Final = "RECORDER"
ChunkObserver = Callable[[ChunkFindings], None]
"""Receives the final findings of each chunk, in the order of the log."""


def audit_task(
    task: Task, read: Read, context: Context, *, see: See = no_observer, hint: Hint = no_hint
) -> ChunkFindings:
    """Audit a chunk, a pruned chunk, or artefacts without a chunk."""
    if task.kind is FindingKind.ABSENT:
        return audit_absent(task, read, context)
    if task.kind is FindingKind.PRUNED and isinstance(task.segment, ChunkName):
        return audit_tombstone(task, task.segment, read, context)
    return audit_chunk(task, read, context, see=see, hint=hint)


@dataclass(frozen=True, slots=True)
class AuditPool:
    """The way in which chunks are audited."""

    run: Callable[[Iterable[Task], Context], Iterator[ChunkFindings]]
    """Audits tasks in any order, and yields findings in the order of the tasks."""
    again: Callable[[Task, Context], ChunkFindings]
    """Audits a chunk again whose start was wrong."""


def in_order(read: Read) -> AuditPool:
    """A pool that audits one chunk after another in this process."""

    def run(tasks: Iterable[Task], context: Context) -> Iterator[ChunkFindings]:
        return (again(task, context) for task in tasks)

    def again(task: Task, context: Context) -> ChunkFindings:
        return audit_task(task, read, context)

    return AuditPool(run, again)


def ignore_chunk(_findings: ChunkFindings) -> None:
    """A ChunkObserver that does nothing."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditedLog:
    """A log to audit: its inventory, and a way to read its files."""

    inventory: Stock
    read: Read
    acknowledged: Mapping[bytes, int] = field(default_factory=dict)
    """The last stream_seq of each label for which a receipt is known to exist."""
    control_is_whole: bool = True
    """False where the control log may be incomplete, as in an archive of sealed chunks: an
    unknown capability is no fault then."""


@dataclass(frozen=True, slots=True)
class LogFindings:
    """All labels of a log, before the report."""

    labels: Sequence[LabelFindings]
    faults: Sequence[AuditFault]
    """Faults that span labels: rates, the binding manifest and recorder checkpoints."""
    notes: Sequence[str]

    def faulty(self) -> set[bytes]:
        return {label.label for label in self.labels if label.faults}

    def report(
        self, faults: Iterable[AuditFault], notes: Iterable[str], derived: Iterable[str]
    ) -> AuditReport:
        """The report, together with findings from outside the log."""
        all_faults = chain(faults, self.faults, *(label.faults for label in self.labels))
        return AuditReport(
            labels=len(self.labels),
            chunks=sum(label.chunks for label in self.labels),
            entries=sum(label.entries for label in self.labels),
            checkpoints=sum(label.checkpoints for label in self.labels),
            heads={label.label: label.head for label in sorted(self.labels, key=_label)},
            faults=tuple(sorted(set(all_faults), key=AuditFault.order)),
            notes=(*notes, *self.notes, *chain(*(label.notes for label in self.labels))),
            derived=tuple(derived),
        )


def audit_log(
    log: AuditedLog, context: Context, pool: AuditPool, observe: ChunkObserver = ignore_chunk
) -> LogFindings:
    """Audit the control label, then all others with the capabilities and streams it logged."""
    control = control_label(context.hub.hub_id)
    raw = log.read(layout.CHECKPOINT_BINDING) or b""
    lines = list(read_lines(raw, context.hub.hub_id))
    bound = {(line.binding.label, line.binding.upto_seq) for line in lines if line.binding}
    for label in log.acknowledged:
        log.inventory.of(label)
    plans = [_plan(log, label, bound) for label in sorted(log.inventory.labels)]
    first = list(
        _labels([plan for plan in plans if plan.label == control], log, context, pool, observe)
    )
    records = chain(*(label.control_records for label in first))
    is_whole = log.control_is_whole and not any(label.faults for label in first)
    context = context.with_control_records(records, is_whole=is_whole)
    others = _labels([plan for plan in plans if plan.label != control], log, context, pool, observe)
    labels = [*first, *others]
    faults = [*check_rates(_uses(labels), context, log.read)]
    expected = {
        (label.label, binding.upto_seq): binding.lines
        for label in labels
        for binding in label.bindings
    }
    faults += check_bindings(raw, context.hub.hub_id, expected)
    faults += check_recorder(log.inventory.recorder, log.read, context.hub, labels)
    return LogFindings(
        labels, faults, [f"{name}: not a file of the log" for name in log.inventory.unknown]
    )


def _labels(
    plans: list[LabelPlan],
    log: AuditedLog,
    context: Context,
    pool: AuditPool,
    observe: ChunkObserver,
) -> Iterator[LabelFindings]:
    continuities = [LabelContinuity(plan, context) for plan in plans]
    run = pool.run(_tasks(continuities), context)
    for continuity in continuities:
        for task in continuity.plan.tasks:
            observe(continuity.settle(next(run), _again(task, context, pool)))
        yield continuity.finish(log.read)


def _tasks(continuities: list[LabelContinuity]) -> Iterator[Task]:
    """The tasks of all labels; a pool that runs in order gets the first_ts of each label."""
    for continuity in continuities:
        for task in continuity.plan.tasks:
            yield replace(task, first_ts=continuity.first_ts)


def _again(task: Task, context: Context, pool: AuditPool) -> Callable[[Start], ChunkFindings]:
    def again(start: Start) -> ChunkFindings:
        return pool.again(replace(task, start=start), context)

    return again


def _plan(log: AuditedLog, label: bytes, bound: set[tuple[bytes, int]]) -> LabelPlan:
    listed: dict[int, CheckpointRef] = {}
    with suppress(Malformed):
        listed = decode_growing(
            log.read(layout.checkpoint_index(label)) or b"",
            log.read(layout.late_checkpoints(label)) or b"",
        )
    return plan(log.inventory.of(label), listed.keys(), bound, log.acknowledged.get(label, 0))


def _uses(labels: Iterable[LabelFindings]) -> Iterator[RateUses]:
    for label in labels:
        yield from (RateUses(file, label.label, start, use) for file, start, use in label.uses)


def _label(findings: LabelFindings) -> bytes:
    return findings.label


def check_recorder(
    names: Sequence[str], read: Read, hub: HubIdentity, labels: Iterable[LabelFindings]
) -> Iterator[AuditFault]:
    """Check each recorder checkpoint by itself, and that it follows the last valid one."""
    roots = {label.label: label.roots for label in labels} if names else {}
    check = _RecorderCheck(read, hub, roots)
    last: RecorderCheckpoint | None = None
    for name in sorted(names):
        document = check.document(name)
        if isinstance(document, AuditFault):
            yield document
            continue
        try:
            if last is not None:
                document.verify_follows(last)
        except Untrusted as error:
            yield AuditFault(name, 0, None, str(error), _CODE)
            continue
        last = document
        yield from check.ends(name, document)


@dataclass(frozen=True, slots=True)
class _RecorderCheck:
    """Checks recorder checkpoints against the roots of the audited labels."""

    read: Read
    hub: HubIdentity
    roots: Mapping[bytes, Mapping[int, bytes]]

    def document(self, name: str) -> RecorderCheckpoint | AuditFault:
        raw = self.read(name)
        if raw is None:
            return AuditFault(name, 0, None, "the file is missing", "MISSING")
        try:
            checkpoint = RecorderCheckpoint.decode(raw)
            checkpoint.verify(self.hub)
        except (Malformed, Untrusted) as error:
            return AuditFault(name, 0, None, str(error), _CODE)
        expected = RecorderName.of(checkpoint.created_at, checkpoint.checkpoint_id)
        if layout.parse_recorder_checkpoint(name) != expected:
            return AuditFault(name, 0, None, "does not hold the document that its name says", _CODE)
        return checkpoint

    def ends(self, name: str, document: RecorderCheckpoint) -> Iterator[AuditFault]:
        """Faults for roots or checkpoints that the log does not have."""
        routing = routing_key(self.hub.hub_id)
        for stream, end in zip(document.names, document.ends, strict=True):
            label = derive_label(routing, end.stream_id, 0)
            if end.last_seq and not self._holds(label, end):
                what = f"the log has no checkpoint of {stream} with this root at {end.last_seq}"
                yield AuditFault(name, 0, end.last_seq, what, _CODE)

    def _holds(self, label: bytes, end: StreamEnd) -> bool:
        """Whether the log has this root; the checkpoint's root counts where a fault hides it."""
        root = self.roots.get(label, {}).get(end.last_seq)
        if root is None:
            raw = self.read(layout.checkpoint(label, end.last_seq))
            with suppress(Malformed):
                root = None if raw is None else Checkpoint.decode(raw).mmr_root
        return root == end.mmr_root
