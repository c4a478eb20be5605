"""The audit of a whole log: every byte of it against what its hub signed.

Whoever runs it says where bytes come from (``Read``) and how chunks are audited (``Crew``): one
after another, in several processes, or as partitions of a cluster. The report is the same.

Recorder checkpoints against the log that they speak of, and against each other (SDR0 3.2.4).
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
from veen.audit.continuity import LabelFindings, LabelJoint
from veen.audit.entries import Hint, no_hint
from veen.audit.pruned import audit_absent, audit_tombstone
from veen.audit.report import AuditFault, AuditReport
from veen.checkpoint import Checkpoint
from veen.errors import Malformed, Untrusted
from veen.hub_identity import HubIdentity
from veen.label import derive_label, routing_key
from veen.log import layout
from veen.log.entry import control_label
from veen.log.layout import ChunkName, RecorderName
from veen.recorder_checkpoint import RecorderCheckpoint, StreamEnd

_CODE: Final = "RECORDER"


def check_recorder(
    names: Sequence[str], read: Read, hub: HubIdentity, labels: Iterable[LabelFindings]
) -> Iterator[AuditFault]:
    """Each document by itself, then that it follows the last sound one before it."""
    roots = {label.label: label.roots for label in labels} if names else {}
    check = _Check(read, hub, roots)
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
class _Check:
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
        due = RecorderName.of(checkpoint.created_at, checkpoint.checkpoint_id)
        if layout.parse_recorder_checkpoint(name) != due:
            return AuditFault(name, 0, None, "holds another document than its name says", _CODE)
        return checkpoint

    def ends(self, name: str, document: RecorderCheckpoint) -> Iterator[AuditFault]:
        """A root that the log does not have at that size, or a checkpoint that is not there."""
        routing = routing_key(self.hub.hub_id)
        for stream, end in zip(document.names, document.ends, strict=True):
            of = derive_label(routing, end.stream_id, 0)
            if end.last_seq and not self._holds(of, end):
                what = f"the log has no checkpoint of {stream} with this root at {end.last_seq}"
                yield AuditFault(name, 0, end.last_seq, what, _CODE)

    def _holds(self, of: bytes, end: StreamEnd) -> bool:
        """Where a fault hides the log's own root, the checkpoint's word is taken for it."""
        root = self.roots.get(of, {}).get(end.last_seq)
        if root is None:
            raw = self.read(layout.checkpoint(of, end.last_seq))
            with suppress(Malformed):
                root = None if raw is None else Checkpoint.decode(raw).mmr_root
        return root == end.mmr_root


Watch = Callable[[ChunkFindings], None]
"""Is shown what was settled of each chunk, in the order of the log."""


def audit_task(
    task: Task, read: Read, context: Context, *, see: See = no_observer, hint: Hint = no_hint
) -> ChunkFindings:
    """The audit of whatever there is in the place of one chunk."""
    if task.kind is FindingKind.ABSENT:
        return audit_absent(task, read, context)
    if task.kind is FindingKind.PRUNED and isinstance(task.segment, ChunkName):
        return audit_tombstone(task, task.segment, read, context)
    return audit_chunk(task, read, context, see=see, hint=hint)


@dataclass(frozen=True, slots=True)
class AuditPool:
    """Who audits the chunks."""

    run: Callable[[Iterable[Task], Context], Iterator[ChunkFindings]]
    """Audits tasks, in whatever order, and answers in theirs."""
    again: Callable[[Task, Context], ChunkFindings]
    """Audits one more task, a chunk whose start turned out to be another."""


def in_order(read: Read) -> AuditPool:
    """Audits one chunk after another, here."""

    def run(tasks: Iterable[Task], context: Context) -> Iterator[ChunkFindings]:
        return (again(task, context) for task in tasks)

    def again(task: Task, context: Context) -> ChunkFindings:
        return audit_task(task, read, context)

    return AuditPool(run, again)


def no_audit_progress(_found: ChunkFindings) -> None:
    pass


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditedLog:
    """What there is to audit: names sorted by label, bytes by name."""

    inventory: Stock
    read: Read
    acknowledged: Mapping[bytes, int] = field(default_factory=dict)
    """The last stream_seq of each label for which a receipt is known to have gone out."""
    control_is_whole: bool = True
    """False where the control log may go on beyond the files at hand, as in an archive of sealed
    chunks: a capability that is not known is then no fault."""


@dataclass(frozen=True, slots=True)
class LogFindings:
    """All labels of a log, before the report."""

    labels: Sequence[LabelFindings]
    faults: Sequence[AuditFault]
    """What spans labels: rates, the manifest of bindings, and recorder checkpoints."""
    notes: Sequence[str]

    def faulty(self) -> set[bytes]:
        return {label.label for label in self.labels if label.faults}

    def report(
        self, faults: Iterable[AuditFault], notes: Iterable[str], derived: Iterable[str]
    ) -> AuditReport:
        """The report, together with what was found elsewhere."""
        result = chain(faults, self.faults, *(label.faults for label in self.labels))
        return AuditReport(
            labels=len(self.labels),
            chunks=sum(label.chunks for label in self.labels),
            entries=sum(label.entries for label in self.labels),
            checkpoints=sum(label.checkpoints for label in self.labels),
            heads={label.label: label.head for label in sorted(self.labels, key=_label)},
            faults=tuple(sorted(set(result), key=AuditFault.order)),
            notes=(*notes, *self.notes, *chain(*(label.notes for label in self.labels))),
            derived=tuple(derived),
        )


def audit_log(
    log: AuditedLog, context: Context, pool: AuditPool, watch: Watch = no_audit_progress
) -> LogFindings:
    """Audit the control label, then all others by what it made known."""
    control = control_label(context.hub.hub_id)
    raw = log.read(layout.CHECKPOINT_BINDING) or b""
    lines = list(read_lines(raw, context.hub.hub_id))
    bound = {(line.binding.label, line.binding.upto_seq) for line in lines if line.binding}
    for label in log.acknowledged:
        log.inventory.of(label)
    plans = [_plan(log, label, bound) for label in sorted(log.inventory.labels)]
    first = list(
        _labels([plan for plan in plans if plan.label == control], log, context, pool, watch)
    )
    detail = chain(*(item.control_records for item in first))
    is_whole = log.control_is_whole and not any(item.faults for item in first)
    context = context.with_control_records(detail, is_whole=is_whole)
    others = _labels([plan for plan in plans if plan.label != control], log, context, pool, watch)
    labels = [*first, *others]
    faults = [*check_rates(_uses(labels), context, log.read)]
    due = {
        (label.label, place.upto_seq): place.lines for label in labels for place in label.bindings
    }
    faults += check_bindings(raw, context.hub.hub_id, due)
    faults += check_recorder(log.inventory.recorder, log.read, context.hub, labels)
    return LogFindings(
        labels, faults, [f"{item}: not a file of the log" for item in log.inventory.unknown]
    )


def _labels(
    plans: list[LabelPlan], log: AuditedLog, context: Context, pool: AuditPool, watch: Watch
) -> Iterator[LabelFindings]:
    boundaries = [LabelJoint(plan, context) for plan in plans]
    run = pool.run(_tasks(boundaries), context)
    for joint in boundaries:
        for task in joint.plan.tasks:
            watch(joint.settle(next(run), _again(task, context, pool)))
        yield joint.finish(log.read)


def _tasks(boundaries: list[LabelJoint]) -> Iterator[Task]:
    """Who audits in order knows when a label began by the time its next chunk comes."""
    for joint in boundaries:
        for task in joint.plan.tasks:
            yield replace(task, first_ts=joint.first_ts)


def _again(task: Task, context: Context, pool: AuditPool) -> Callable[[Start], ChunkFindings]:
    def again(start: Start) -> ChunkFindings:
        return pool.again(replace(task, start=start), context)

    return again


def _plan(log: AuditedLog, label: bytes, bound: set[tuple[bytes, int]]) -> LabelPlan:
    index = log.read(layout.checkpoint_index(label))
    return plan(log.inventory.of(label), index, bound, log.acknowledged.get(label, 0))


def _uses(labels: Iterable[LabelFindings]) -> Iterator[RateUses]:
    for label in labels:
        yield from (RateUses(file, label.label, start, use) for file, start, use in label.uses)


def _label(findings: LabelFindings) -> bytes:
    return findings.label
