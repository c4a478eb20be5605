"""The audit of a whole log: every byte of it against what its hub signed.

Whoever runs it says where bytes come from (``Read``) and how chunks are audited (``Crew``): one
after another, in several processes, or as partitions of a cluster. The report is the same.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain

from veen import layout
from veen.audit.bindings import check_bindings, read_lines
from veen.audit.chunk_audit import audit_chunk
from veen.audit.climb import Hint, no_hint
from veen.audit.context import Context
from veen.audit.findings import ChunkFindings, Kind, Read, Start, Task
from veen.audit.joints import LabelFindings, LabelJoint
from veen.audit.plan import LabelPlan, plan
from veen.audit.rates import Placed, check_rates
from veen.audit.recorder import check_recorder
from veen.audit.report import Fault, Report
from veen.audit.stock import Stock
from veen.audit.tomb_audit import audit_absent, audit_tomb
from veen.audit.walk import See, nobody
from veen.control import control_label
from veen.layout import ChunkName

Watch = Callable[[ChunkFindings], None]
"""Is shown what was settled of each chunk, in the order of the log."""


def audit_task(
    task: Task, read: Read, context: Context, *, see: See = nobody, hint: Hint = no_hint
) -> ChunkFindings:
    """The audit of whatever there is in the place of one chunk."""
    if task.kind is Kind.ABSENT:
        return audit_absent(task, read, context)
    if task.kind is Kind.PRUNED and isinstance(task.segment, ChunkName):
        return audit_tomb(task, task.segment, read, context)
    return audit_chunk(task, read, context, see=see, hint=hint)


@dataclass(frozen=True, slots=True)
class Crew:
    """Who audits the chunks."""

    run: Callable[[Iterable[Task], Context], Iterator[ChunkFindings]]
    """Audits tasks, in whatever order, and answers in theirs."""
    again: Callable[[Task, Context], ChunkFindings]
    """Audits one more task, a chunk whose start turned out to be another."""


def in_order(read: Read) -> Crew:
    """Audits one chunk after another, here."""

    def run(tasks: Iterable[Task], context: Context) -> Iterator[ChunkFindings]:
        return (again(task, context) for task in tasks)

    def again(task: Task, context: Context) -> ChunkFindings:
        return audit_task(task, read, context)

    return Crew(run, again)


def unwatched(_found: ChunkFindings) -> None:
    pass


@dataclass(frozen=True, slots=True, kw_only=True)
class Log:
    """What there is to audit: names sorted by label, bytes by name."""

    stock: Stock
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
    faults: Sequence[Fault]
    """What spans labels: rates, the manifest of bindings, and recorder checkpoints."""
    notes: Sequence[str]

    def faulty(self) -> set[bytes]:
        return {one.label for one in self.labels if one.faults}

    def report(
        self, faults: Iterable[Fault], notes: Iterable[str], derived: Iterable[str]
    ) -> Report:
        """The report, together with what was found elsewhere."""
        found = chain(faults, self.faults, *(one.faults for one in self.labels))
        return Report(
            labels=len(self.labels),
            chunks=sum(one.chunks for one in self.labels),
            entries=sum(one.entries for one in self.labels),
            checkpoints=sum(one.checkpoints for one in self.labels),
            heads={one.label: one.head for one in sorted(self.labels, key=_label)},
            faults=tuple(sorted(set(found), key=Fault.order)),
            notes=(*notes, *self.notes, *chain(*(one.notes for one in self.labels))),
            derived=tuple(derived),
        )


def audit_log(log: Log, context: Context, crew: Crew, watch: Watch = unwatched) -> LogFindings:
    """Audit the control label, then all others by what it made known."""
    control = control_label(context.hub.hub_id)
    raw = log.read(layout.CHECKPOINT_BINDING) or b""
    lines = list(read_lines(raw, context.hub.hub_id))
    bound = {(one.binding.label, one.binding.upto_seq) for one in lines if one.binding}
    for label in log.acknowledged:
        log.stock.of(label)
    plans = [_plan(log, label, bound) for label in sorted(log.stock.labels)]
    first = list(_labels([one for one in plans if one.label == control], log, context, crew, watch))
    told = chain(*(one.told for one in first))
    is_whole = log.control_is_whole and not any(one.faults for one in first)
    context = context.told(told, is_whole=is_whole)
    others = _labels([one for one in plans if one.label != control], log, context, crew, watch)
    labels = [*first, *others]
    faults = [*check_rates(_uses(labels), context, log.read)]
    due = {(one.label, place.upto_seq): place.lines for one in labels for place in one.bindings}
    faults += check_bindings(raw, context.hub.hub_id, due)
    faults += check_recorder(log.stock.recorder, log.read, context.hub, labels)
    return LogFindings(
        labels, faults, [f"{one}: not a file of the log" for one in log.stock.unknown]
    )


def _labels(
    plans: list[LabelPlan], log: Log, context: Context, crew: Crew, watch: Watch
) -> Iterator[LabelFindings]:
    joints = [LabelJoint(one, context) for one in plans]
    found = crew.run(_tasks(joints), context)
    for joint in joints:
        for task in joint.plan.tasks:
            watch(joint.settle(next(found), _again(task, context, crew)))
        yield joint.finish(log.read)


def _tasks(joints: list[LabelJoint]) -> Iterator[Task]:
    """Who audits in order knows when a label began by the time its next chunk comes."""
    for joint in joints:
        for task in joint.plan.tasks:
            yield replace(task, first_ts=joint.first_ts)


def _again(task: Task, context: Context, crew: Crew) -> Callable[[Start], ChunkFindings]:
    def again(start: Start) -> ChunkFindings:
        return crew.again(replace(task, start=start), context)

    return again


def _plan(log: Log, label: bytes, bound: set[tuple[bytes, int]]) -> LabelPlan:
    index = log.read(layout.checkpoint_index(label))
    return plan(log.stock.of(label), index, bound, log.acknowledged.get(label, 0))


def _uses(labels: Iterable[LabelFindings]) -> Iterator[Placed]:
    for one in labels:
        yield from (Placed(file, one.label, start, use) for file, start, use in one.uses)


def _label(one: LabelFindings) -> bytes:
    return one.label
