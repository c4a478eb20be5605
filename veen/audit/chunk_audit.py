"""The audit of one chunk from its own bytes and the peaks at its start: all it can tell alone.

A chunk is audited from where its name and its snapshot say it begins. Whether that is right is
decided where chunks are joined; if it is not, the chunk is audited again from the right start.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace
from itertools import chain
from typing import NamedTuple

from veen import mmr
from veen.audit.artefacts import Artefacts
from veen.audit.climb import Climb, Hint, no_hint, read_snapshot
from veen.audit.context import Context
from veen.audit.findings import ChunkFindings, Kind, Read, Start, Task, Use
from veen.audit.frames import Bad, Good, split
from veen.audit.report import Fault
from veen.audit.strays import ORDER, StrayCheck
from veen.audit.walk import EntryWalk, See, nobody
from veen.chunk import Tally
from veen.entry import FramedEntry
from veen.layout import ChunkName
from veen.mmr import Peaks


class _Seal(NamedTuple):
    """What the seal of a chunk comes to."""

    rolled: Tally | None = None
    if_whole: tuple[Fault, ...] = ()
    if_not: tuple[Fault, ...] = ()


def audit_chunk(
    task: Task, read: Read, context: Context, *, see: See = nobody, hint: Hint = no_hint
) -> ChunkFindings:
    """Everything that can be told of a chunk, sealed or open."""
    raw = read(task.file) or b""
    frames = split(raw, task.label, context.limits)
    begin, first = _begin(frames)
    first_ts = first.receipt.hub_ts if first else None
    start = task.start or guess_start(task, read, context, first_ts)
    found = _ChunkAudit(task, start, read, context, see, hint).run(raw, chain(begin, frames))
    return replace(
        found,
        first_seq=first.receipt.stream_seq if first else None,
        first_size=first.header.whole_size if first and len(begin) == 1 else None,
    )


def guess_start(task: Task, read: Read, context: Context, first_ts: int | None) -> Start:
    """The start of a chunk by its name, its snapshot and its first entry."""
    seen = task.segment.start_seq - 1
    began = task.first_ts if task.first_ts is not None else first_ts
    origin = None if began is None else context.origin(task.label, began)
    return Start(seen, read_snapshot(read, task.label, seen), 0, origin)


def beside(task: Task, start: Start, read: Read, context: Context) -> Artefacts:
    origin = start.origin if start.origin and start.origin.from_first else None
    return Artefacts(task, read, context, origin, start.last_ts)


def _begin(frames: Iterator[Good | Bad]) -> tuple[list[Good | Bad], FramedEntry | None]:
    """The frames up to the first sound one, and its entry."""
    taken: list[Good | Bad] = []
    for frame in frames:
        taken.append(frame)
        if isinstance(frame, Good):
            return taken, frame.framed
    return taken, None


class _ChunkAudit:
    def __init__(
        self, task: Task, start: Start, read: Read, context: Context, see: See, hint: Hint
    ) -> None:
        self._task = task
        self._start = start
        self._climb = Climb(task, read, start.peaks, hint)
        self._artefacts = beside(task, start, read, context)
        self._walk = EntryWalk(task, start, context, self._climb, self._artefacts, see)
        self._walk.clients.place_by(lambda: self._walk.seen)
        self._strays = StrayCheck(task, start, context)
        self._notes: list[str] = []

    def run(self, raw: bytes, frames: Iterable[Good | Bad]) -> ChunkFindings:
        last: Good | Bad | None = None
        size = len(raw)
        for frame in frames:
            if last is not None:
                self._walk.take(last)
            last = frame
        is_torn = self._task.kind is Kind.OPEN and isinstance(last, Bad)
        if is_torn and isinstance(last, Bad):
            self._torn(last, size)
        elif last is not None:
            self._walk.take(last)
        self._walk.finish()
        self._strays.look(raw, self._walk.faults)
        seal = self._seal(size, is_torn=is_torn)
        self._artefacts.finish()
        return self._findings(size, seal)

    def _torn(self, torn: Bad, size: int) -> None:
        """Bytes after the last whole entry: of a crash, unless a receipt was given for them."""
        if self._walk.seen < self._task.promised:
            self._walk.take(torn)
        else:
            self._notes.append(
                f"{self._task.file}: a torn tail of {size - torn.at} bytes at {torn.at}, "
                "cut at the next start"
            )

    def _seal(self, size: int, *, is_torn: bool) -> _Seal:
        """A sealed chunk must end where its name says, and its summary must say so too."""
        walk, segment = self._walk, self._task.segment
        actual = ChunkName(segment.label, self._start.seen + 1, walk.seen)
        if isinstance(segment, ChunkName):
            end = segment.end_seq
        elif not is_torn and walk.hashes and actual in self._task.summaries:
            self._notes.append(f"{self._task.file}: a seal that the next start will finish")
            end = walk.seen
        else:
            return _Seal()
        if walk.seen != end and not walk.excused:
            what = f"ends after {walk.seen}, its name says {end}"
            walk.faults.append(Fault(self._task.file, size, walk.seen, what, "NAME"))
        walk.excused = end
        return self._summary(actual, actual._replace(end_seq=end))

    def _summary(self, actual: ChunkName, due: ChunkName) -> _Seal:
        peaks, walk = self._climb.peaks, self._walk
        # An entry that stands there twice takes nothing away.
        is_sound = all(one.code == ORDER for one in (*walk.faults, *self._strays.faults))
        is_whole = is_sound and actual.start_seq == self._task.segment.start_seq
        if not is_whole and actual not in self._task.summaries:
            alone = self._artefacts.summary_alone(due, peaks if actual == due else None)
        else:
            alone = self._artefacts.summary_alone(actual, peaks)
        if not is_whole:
            self._notes.append(
                f"{self._task.file}: its summary is compared by place and root alone, "
                "since not all of its entries are right"
            )
            return _Seal(None, tuple(alone), tuple(alone))
        hashes = Peaks(len(walk.hashes), mmr.peaks_of(walk.hashes))
        tally = Tally(actual.start_seq, len(walk.hashes), walk.size, hashes)
        return _Seal(tally, tuple(self._artefacts.summary(actual, tally, peaks)), tuple(alone))

    def _findings(self, size: int, seal: _Seal) -> ChunkFindings:
        walk, artefacts, start = self._walk, self._artefacts, self._start
        if self._climb.adrift:
            first, last = self._climb.adrift[0], self._climb.adrift[-1]
            self._notes.append(
                f"{self._task.file}: the roots of entries {first} to {last} "
                "rest on entries that are missing or cannot be read"
            )
        return ChunkFindings(
            task=self._task,
            start=start,
            is_confirmed=walk.is_confirmed or artefacts.is_vouched(start.peaks),
            first_ts=walk.first_ts,
            seen=walk.seen,
            peaks=self._climb.peaks,
            last_ts=walk.last_ts,
            excused=walk.excused,
            size=size,
            entries=len(walk.hashes),
            checkpoints=artefacts.checkpoints,
            faults=(*walk.faults, *self._strays.faults, *artefacts.faults),
            if_whole=seal.if_whole,
            if_not=seal.if_not,
            notes=tuple(self._notes),
            firsts=tuple(walk.clients.firsts.items()),
            lasts=tuple(walk.clients.lasts.items()),
            gaps=tuple(walk.clients.gaps),
            after=tuple(walk.clients.after.items()),
            strays=tuple(self._strays.found),
            uses=tuple(Use(ref, hub_ts, count) for (ref, hub_ts), count in walk.uses.items()),
            told=tuple(walk.told),
            refs=tuple(artefacts.refs.items()),
            bindings=tuple(artefacts.bindings),
            rolled=seal.rolled,
        )
