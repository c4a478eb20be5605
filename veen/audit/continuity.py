"""The continuity of a label: its chunks, audited one by one in any order, joined in sequence.

Each chunk was audited from a start taken from its own name and snapshot. Where the chunk before it
ends elsewhere, it is audited again from there. So the result is that of a walk from the first entry
to the last, and no fault of a chunk hides or creates a fault in the next.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from veen.audit.artefacts import compare
from veen.audit.clients import Gaps
from veen.audit.context import (
    Binding,
    ChunkFindings,
    Context,
    FindingKind,
    LabelOrigin,
    LabelPlan,
    LoggedControl,
    RateUse,
    Read,
    Start,
)
from veen.audit.report import AuditFault, LabelHead
from veen.errors import Malformed
from veen.invariants import NEW_CLIENT, ClientCursor
from veen.log import layout
from veen.log.checkpoint_index import decode_growing, whole_lines
from veen.log.chunk import CheckpointRef, ChunkTally, encode_checkpoint_index
from veen.mmr import EMPTY, Peaks

Again = Callable[[Start], ChunkFindings]
"""Audits a chunk again from another start."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LabelFindings:
    """The findings of a label; ``uses`` come with the file and the start of their chunk."""

    label: bytes
    head: LabelHead
    chunks: int
    entries: int
    checkpoints: int
    faults: tuple[AuditFault, ...]
    notes: tuple[str, ...]
    control_records: tuple[LoggedControl, ...]
    uses: tuple[tuple[str, int, RateUse], ...]
    bindings: tuple[Binding, ...]
    roots: Mapping[int, bytes]
    """The root of the log at every size with a checkpoint."""


class _Pending(NamedTuple):
    findings: ChunkFindings
    is_whole: bool
    again: Again


@dataclass(slots=True)
class LabelContinuity:
    """Joins the findings of the chunks of a label."""

    plan: LabelPlan
    context: Context
    first_ts: int | None = None
    _seen: int = 0
    _peaks: Peaks | None = EMPTY
    _last_ts: int = 0
    _excused: int = 0
    _gaps: Gaps = field(default_factory=Gaps)
    _rolled: ChunkTally | None = None
    _origin: LabelOrigin | None = None
    _cursors: dict[bytes, ClientCursor] = field(default_factory=dict)
    _refs: dict[int, CheckpointRef] = field(default_factory=dict)
    _chunks: int = 0
    _entries: int = 0
    _checkpoints: int = 0
    _faults: list[AuditFault] = field(default_factory=list)
    _notes: list[str] = field(default_factory=list)
    _control_records: list[LoggedControl] = field(default_factory=list)
    _uses: list[tuple[str, int, RateUse]] = field(default_factory=list)
    _bindings: list[Binding] = field(default_factory=list)
    _pending: list[_Pending] = field(default_factory=list)

    def settle(self, findings: ChunkFindings, again: Again) -> ChunkFindings:
        """Take the next chunk of the label, audited again while its start is wrong."""
        start = self._start_of(findings)
        while start != findings.start:
            findings = again(start)
            start = self._start_of(findings)
        self._pending.append(_Pending(findings, self._take(findings), again))
        if self.first_ts is not None:
            self._gather_pending()
        return findings

    def finish(self, read: Read) -> LabelFindings:
        """Check whether the log reaches what was signed, and the checkpoint index."""
        self._gather_pending()
        reached = max(self._seen, self._excused)
        if self.plan.promised > reached:
            what = f"the log ends at {self._seen}, this hub has vouched for {self.plan.promised}"
            self._missing(reached + 1, self.plan.promised, what)
        self._index(read)
        root = self._peaks.root() if self._peaks and self._seen else None
        return LabelFindings(
            label=self.plan.label,
            head=LabelHead(self._seen, root),
            chunks=self._chunks,
            entries=self._entries,
            checkpoints=self._checkpoints,
            faults=(*self._faults, *self._gaps.faults),
            notes=(*self._notes, *self._gaps.notes),
            control_records=tuple(self._control_records),
            uses=tuple(self._uses),
            bindings=tuple(self._bindings),
            roots={upto: ref.mmr_root for upto, ref in self._refs.items()},
        )

    def _start_of(self, findings: ChunkFindings) -> Start:
        """The start of a chunk; its own start object if it is equivalent."""
        given, skips = findings.start, self._skips(findings)
        seen = findings.task.segment.start_seq - 1 if skips else self._seen
        peaks = None if skips else self._peaks
        if peaks is None and given.seen == seen and findings.is_confirmed:
            peaks = given.peaks
        last_ts = self._last_ts
        if findings.first_ts is None or given.last_ts <= last_ts <= findings.first_ts:
            last_ts = given.last_ts
        return Start(
            seen, peaks, last_ts, self._origin_of(findings), self._discontinuous_cursors(findings)
        )

    def _skips(self, findings: ChunkFindings) -> bool:
        """Whether entries are missing before a chunk, by its name and its first entry."""
        expected = self._seen + 1
        return findings.task.segment.start_seq > expected and findings.first_seq != expected

    def _origin_of(self, findings: ChunkFindings) -> LabelOrigin | None:
        if self.first_ts is not None:
            return self._origin
        began = findings.first_ts
        return (
            findings.start.origin
            if began is None
            else self.context.origin(findings.task.label, began)
        )

    def _discontinuous_cursors(
        self, findings: ChunkFindings
    ) -> tuple[tuple[bytes, ClientCursor], ...]:
        """The cursors of clients whose first entry in a chunk does not follow their last."""
        cursors = {
            client: self._cursors.get(client, NEW_CLIENT) for client, _ in findings.start.cursors
        }
        for client, first in findings.firsts:
            last = self._cursors.get(client, NEW_CLIENT)
            if first.client_seq != last.client_seq + 1 or first.prev_ack < last.prev_ack:
                cursors[client] = last
        return tuple(sorted(cursors.items(), key=lambda item: item[0]))

    def _take(self, findings: ChunkFindings) -> bool:
        """Join a chunk to those before it; whether it has no fault in client sequences."""
        task, start_seq = findings.task, findings.task.segment.start_seq
        if self._skips(findings):
            first = max(self._seen, self._excused) + 1
            if start_seq > first:
                self._missing(first, start_seq - 1, "the chunk is missing")
            self._gaps.lose(self._seen + 1, start_seq - 1)
        if findings.start.seen + 1 != start_seq:
            first = findings.start.seen + 1
            what = f"expected to begin at {start_seq} by its name, got {first}"
            self._faults.append(AuditFault(task.file, 0, first, what, "NAME"))
        self._note_roll(findings)
        is_whole = self._gaps.settle(findings)
        self._rolled = findings.rolled if is_whole else None
        self._move(findings)
        return is_whole

    def _gather_pending(self) -> None:
        """Add up chunks; one without entries waits until another shows the label's stream."""
        for findings, is_whole, again in self._pending:
            if findings.first_ts is None and findings.start.origin != self._origin:
                self._gather(again(replace(findings.start, origin=self._origin)), is_whole)
            else:
                self._gather(findings, is_whole)
        self._pending.clear()

    def _gather(self, findings: ChunkFindings, is_whole: bool) -> None:
        task = findings.task
        self._faults += (*findings.faults, *(findings.if_whole if is_whole else findings.if_not))
        self._notes += findings.notes
        self._chunks += task.kind in (FindingKind.SEALED, FindingKind.OPEN)
        self._entries += findings.entries
        self._checkpoints += findings.checkpoints
        self._control_records += findings.control_records
        self._uses += ((task.file, task.segment.start_seq, use) for use in findings.uses)
        self._bindings += findings.bindings
        self._refs.update(findings.refs)

    def _move(self, findings: ChunkFindings) -> None:
        if self.first_ts is None:
            self.first_ts, self._origin = findings.first_ts, findings.start.origin
        self._seen, self._peaks = findings.seen, findings.peaks
        self._last_ts, self._excused = max(self._last_ts, findings.last_ts), findings.excused
        self._cursors.update(findings.lasts)

    def _note_roll(self, findings: ChunkFindings) -> None:
        """Note if the current limits would have sealed the chunk before this elsewhere."""
        before, limits = self._rolled, self.context.limits
        if before is None or findings.first_size is None:
            return
        if not before.must_roll(findings.first_size, limits):
            self._notes.append(f"{findings.task.file}: the chunk before it was sealed early")
        if before.entries > limits.max_checkpoint_interval or before.size > limits.max_chunk_bytes:
            self._notes.append(
                f"{findings.task.file}: the chunk before it is larger than allowed now"
            )

    def _missing(self, first: int, last: int, what: str) -> None:
        for name in self.plan.missing(first, last):
            self._faults.append(AuditFault(name, 0, first, what, "MISSING"))

    def _index(self, read: Read) -> None:
        """Check the checkpoint index of the label against every checkpoint that was reached."""
        label = self.plan.label
        expected = self.plan.claimed | set(self._refs)
        if not expected:
            return
        main = read(layout.checkpoint_index(label))
        late = read(layout.late_checkpoints(label)) or b""
        if set(self._refs) >= expected:
            self._whole_index(main, late)
            return
        name = layout.checkpoint_index(label)
        try:
            listed = decode_growing(main or b"", late)
        except Malformed as error:
            self._faults.append(AuditFault(name, 0, None, str(error), "INDEX"))
            return
        for upto, ref in sorted(self._refs.items()):
            if listed.get(upto) != ref:
                self._faults.append(AuditFault(name, 0, upto, "differs from the log", "INDEX"))

    def _whole_index(self, main: bytes | None, late: bytes) -> None:
        """Compare both files of the index with the lines that follow from the log."""
        unmerged = self._late_lines(late)
        if unmerged and main == encode_checkpoint_index(self._refs):
            return  # Merged; the late lines were about to be removed.
        refs = {upto: ref for upto, ref in self._refs.items() if upto not in unmerged}
        name = layout.checkpoint_index(self.plan.label)
        self._faults += compare(lambda _: main, name, encode_checkpoint_index(refs), "INDEX")

    def _late_lines(self, late: bytes) -> set[int]:
        """The late lines, which must be those of the log."""
        name, lines, end = layout.late_checkpoints(self.plan.label), set(), 0
        for line in whole_lines(late, 0):
            if self._refs.get(line.upto_seq) != line.ref:
                break
            lines.add(line.upto_seq)
            end = line.end
        if end != len(late):
            self._faults.append(AuditFault(name, end, None, "differs from the log", "INDEX"))
        return lines
