"""The joints of a label: chunks audited one by one, in any order, put together in theirs.

Each chunk was audited from a start that it took from its own name and snapshot. Where the chunk
before it ends elsewhere, the joint asks for another audit from there; so the result is that of a
walk from the first entry to the last, and no fault of one chunk hides or makes one in the next.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from veen import checkpoint_index, layout
from veen.audit.artefacts import compare
from veen.audit.context import Context, Origin, Told
from veen.audit.findings import Binding, ChunkFindings, Kind, Read, Start, Use
from veen.audit.gaps import Gaps
from veen.audit.plan import LabelPlan
from veen.audit.report import Fault, Head
from veen.checkpoint_index import CheckpointRef
from veen.chunk import Tally
from veen.errors import Malformed
from veen.invariants import NEW_CLIENT, ClientCursor
from veen.mmr import EMPTY, Peaks

Again = Callable[[Start], ChunkFindings]
"""Audits a chunk once more, from another start."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LabelFindings:
    """A label as a whole. ``uses`` stand with the file and the start of their chunk."""

    label: bytes
    head: Head
    chunks: int
    entries: int
    checkpoints: int
    faults: tuple[Fault, ...]
    notes: tuple[str, ...]
    told: tuple[Told, ...]
    uses: tuple[tuple[str, int, Use], ...]
    bindings: tuple[Binding, ...]
    roots: Mapping[int, bytes]
    """The root of the log itself at every size that a checkpoint stands at."""


class _Pending(NamedTuple):
    found: ChunkFindings
    is_whole: bool
    again: Again


@dataclass(slots=True)
class LabelJoint:
    plan: LabelPlan
    context: Context
    first_ts: int | None = None
    _seen: int = 0
    _peaks: Peaks | None = EMPTY
    _last_ts: int = 0
    _excused: int = 0
    _gaps: Gaps = field(default_factory=Gaps)
    _rolled: Tally | None = None
    _origin: Origin | None = None
    _cursors: dict[bytes, ClientCursor] = field(default_factory=dict)
    _refs: dict[int, CheckpointRef] = field(default_factory=dict)
    _chunks: int = 0
    _entries: int = 0
    _checkpoints: int = 0
    _faults: list[Fault] = field(default_factory=list)
    _notes: list[str] = field(default_factory=list)
    _told: list[Told] = field(default_factory=list)
    _uses: list[tuple[str, int, Use]] = field(default_factory=list)
    _bindings: list[Binding] = field(default_factory=list)
    _pending: list[_Pending] = field(default_factory=list)

    def settle(self, found: ChunkFindings, again: Again) -> ChunkFindings:
        """Take the next chunk of the label, audited again for as long as its start is wrong."""
        start = self._start_of(found)
        while start != found.start:
            found = again(start)
            start = self._start_of(found)
        self._pending.append(_Pending(found, self._take(found), again))
        if self.first_ts is not None:
            self._gather_pending()
        return found

    def finish(self, read: Read) -> LabelFindings:
        """What shows only at the end: whether the log reaches what was signed, and the index."""
        self._gather_pending()
        reached = max(self._seen, self._excused)
        if self.plan.promised > reached:
            what = f"the log ends at {self._seen}, this hub has vouched for {self.plan.promised}"
            self._missing(reached + 1, self.plan.promised, what)
        self._index(read)
        root = self._peaks.root() if self._peaks and self._seen else None
        return LabelFindings(
            label=self.plan.label,
            head=Head(self._seen, root),
            chunks=self._chunks,
            entries=self._entries,
            checkpoints=self._checkpoints,
            faults=(*self._faults, *self._gaps.faults),
            notes=(*self._notes, *self._gaps.notes),
            told=tuple(self._told),
            uses=tuple(self._uses),
            bindings=tuple(self._bindings),
            roots={upto: ref.mmr_root for upto, ref in self._refs.items()},
        )

    def _start_of(self, found: ChunkFindings) -> Start:
        """Where a chunk begins; its own start, if that comes to the same."""
        given, skips = found.start, self._skips(found)
        seen = found.task.segment.start_seq - 1 if skips else self._seen
        peaks = None if skips else self._peaks
        if peaks is None and given.seen == seen and found.is_confirmed:
            peaks = given.peaks
        last_ts = self._last_ts
        if found.first_ts is None or given.last_ts <= last_ts <= found.first_ts:
            last_ts = given.last_ts
        return Start(seen, peaks, last_ts, self._origin_of(found), self._astray(found))

    def _skips(self, found: ChunkFindings) -> bool:
        """Whether entries are missing before a chunk, by its name and by what it holds."""
        due = self._seen + 1
        return found.task.segment.start_seq > due and found.first_seq != due

    def _origin_of(self, found: ChunkFindings) -> Origin | None:
        if self.first_ts is not None:
            return self._origin
        began = found.first_ts
        return found.start.origin if began is None else self.context.origin(found.task.label, began)

    def _astray(self, found: ChunkFindings) -> tuple[tuple[bytes, ClientCursor], ...]:
        """The clients whose first entry in a chunk does not follow their last before it."""
        astray = {
            client: self._cursors.get(client, NEW_CLIENT) for client, _ in found.start.cursors
        }
        for client, first in found.firsts:
            last = self._cursors.get(client, NEW_CLIENT)
            if first.client_seq != last.client_seq + 1 or first.prev_ack < last.prev_ack:
                astray[client] = last
        return tuple(sorted(astray.items(), key=lambda one: one[0]))

    def _take(self, found: ChunkFindings) -> bool:
        """Join a chunk to those before it; whether no client's numbers break there."""
        task, start_seq = found.task, found.task.segment.start_seq
        if self._skips(found):
            first = max(self._seen, self._excused) + 1
            if start_seq > first:
                self._missing(first, start_seq - 1, "the chunk is missing")
            self._gaps.lose(self._seen + 1, start_seq - 1)
        if found.start.seen + 1 != start_seq:
            first = found.start.seen + 1
            what = f"begins at {first}, not at {start_seq} as its name says"
            self._faults.append(Fault(task.file, 0, first, what, "NAME"))
        self._note_roll(found)
        is_whole = self._gaps.settle(found)
        self._rolled = found.rolled if is_whole else None
        self._move(found)
        return is_whole

    def _gather_pending(self) -> None:
        """A chunk without any entry waits until another one tells the stream of the label."""
        for found, is_whole, again in self._pending:
            if found.first_ts is None and found.start.origin != self._origin:
                self._gather(again(replace(found.start, origin=self._origin)), is_whole)
            else:
                self._gather(found, is_whole)
        self._pending.clear()

    def _gather(self, found: ChunkFindings, is_whole: bool) -> None:
        task = found.task
        self._faults += (*found.faults, *(found.if_whole if is_whole else found.if_not))
        self._notes += found.notes
        self._chunks += task.kind in (Kind.SEALED, Kind.OPEN)
        self._entries += found.entries
        self._checkpoints += found.checkpoints
        self._told += found.told
        self._uses += ((task.file, task.segment.start_seq, use) for use in found.uses)
        self._bindings += found.bindings
        self._refs.update(found.refs)

    def _move(self, found: ChunkFindings) -> None:
        if self.first_ts is None:
            self.first_ts, self._origin = found.first_ts, found.start.origin
        self._seen, self._peaks = found.seen, found.peaks
        self._last_ts, self._excused = max(self._last_ts, found.last_ts), found.excused
        self._cursors.update(found.lasts)

    def _note_roll(self, found: ChunkFindings) -> None:
        """Tell of a chunk before this one that the limits of today would have cut elsewhere."""
        before, limits = self._rolled, self.context.limits
        if before is None or found.first_size is None:
            return
        if not before.must_roll(found.first_size, limits):
            self._notes.append(f"{found.task.file}: the chunk before it was sealed early")
        if before.entries > limits.max_checkpoint_interval or before.size > limits.max_chunk_bytes:
            self._notes.append(f"{found.task.file}: the chunk before it is larger than allowed now")

    def _missing(self, first: int, last: int, what: str) -> None:
        for name in self.plan.missing(first, last):
            self._faults.append(Fault(name, 0, first, what, "MISSING"))

    def _index(self, read: Read) -> None:
        """The checkpoint index of the label, against every checkpoint that was reached."""
        name, due = layout.checkpoint_index(self.plan.label), self.plan.claimed | set(self._refs)
        if not due:
            return
        if set(self._refs) >= due:
            self._faults += compare(read, name, checkpoint_index.encode(self._refs), "INDEX")
            return
        try:
            found = checkpoint_index.decode(read(name) or b"")
        except Malformed as error:
            self._faults.append(Fault(name, 0, None, str(error), "INDEX"))
            return
        for upto, ref in sorted(self._refs.items()):
            if found.get(upto) != ref:
                self._faults.append(Fault(name, 0, upto, "differs from the log", "INDEX"))
