"""The chunks of an archive that a query has to read, up to a recorder checkpoint.

Of each stream these are the chunks from shortly before the span of time to shortly after it. Their
leaves must lead to the root that the checkpoint signs: earlier entries are represented by peaks,
later ones by a few nodes and the chunk in which the checkpoint ends. The same root proves both.

Also holds the bounds that decide whether a chunk can match, and the records that tasks return.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import count, groupby
from operator import attrgetter
from typing import Final, NamedTuple

from recorder.archive.manifest import (
    ArchivedSegment,
    ArchiveKeys,
    ArchiveManifest,
    LabelManifest,
    LabelRef,
    TailSegment,
)
from recorder.archive.store import HubArchive
from recorder.query.descriptor import Descriptor
from recorder.query.execute import end_of
from recorder.query.select import Cells, QueryEntry
from spark_jobs.chunk_window import ArchivedChunk, chunk_of
from spark_jobs.query_nodes import Cut, NodeGap, Top, gaps
from veen import mmr
from veen.errors import Malformed, Untrusted, VeenError
from veen.label import derive_label, routing_key, stream_id
from veen.log import layout
from veen.log.chunk import PeakSnapshot
from veen.log.layout import ChunkName
from veen.mmr import Peaks
from veen.objects.port import ObjectMissing
from veen.recorder_checkpoint import RecorderCheckpoint, StreamEnd

UNBOUNDED: Final = 1 << 64


@dataclass(frozen=True, slots=True)
class LogSpan:
    """From ``first`` to ``last``, both included."""

    first: int = 0
    last: int = UNBOUNDED

    def within(self, first: int = 0, last: int = UNBOUNDED) -> LogSpan:
        return LogSpan(max(self.first, first), min(self.last, last))

    def meets(self, first: int, last: int) -> bool:
        return max(self.first, first) <= min(self.last, last)


@dataclass(frozen=True, slots=True)
class LogBounds:
    """Bounds of a read; ``labels`` None is every label."""

    labels: frozenset[bytes] | None = None
    stream_seq: LogSpan = LogSpan()
    hub_ts: LogSpan = LogSpan()

    def with_labels(self, labels: Collection[bytes]) -> LogBounds:
        chosen = frozenset(labels)
        return replace(self, labels=chosen if self.labels is None else self.labels & chosen)

    def refs(self, manifest: ArchiveManifest) -> Iterator[LabelRef]:
        """The labels to read; the manifests of others are not read."""
        for ref in manifest.labels:
            if self.labels is None or ref.label in self.labels:
                yield ref

    def needs(self, segment: ArchivedSegment) -> bool:
        in_seq = self.stream_seq.meets(segment.start_seq, segment.end_seq)
        return in_seq and self.hub_ts.meets(segment.first_ts, segment.last_ts)

    def is_past(self, stream_seq: int, hub_ts: int) -> bool:
        """Whether an entry and all after it are out of bounds."""
        return stream_seq > self.stream_seq.last or hub_ts > self.hub_ts.last


class QuestionTally(NamedTuple):
    """Of a question in a chunk: messages before its time and up to its end, messages in its time
    that are not events, and matching events."""

    before: int
    upto: int
    unread: int
    matched: int


class ChunkFacts(NamedTuple):
    """What a chunk is, whatever matches: ``tops`` are the nodes over each of its cuts, ``groups``
    is the number of partial groups it returned."""

    number: int
    first_ts: int
    last_ts: int
    tops: tuple[tuple[Top, ...], ...]
    tallies: Mapping[int, QuestionTally]
    groups: int


class QuestionOrder(NamedTuple):
    """The order of rows, question by question."""

    question: int
    hub_ts: int
    stream: bytes
    seq: int


class ChunkWitness(NamedTuple):
    """The parts of a witness; ``path`` ends below the top of the chunk's own node."""

    entry: QueryEntry
    msg: bytes
    receipt: bytes
    body_key: bytes
    path: tuple[bytes, ...]


class TakenRows(NamedTuple):
    """A matching event: its row unless it is aggregated, and its witness if evidence is
    requested."""

    key: QuestionOrder
    row: bytes | None
    shown: ChunkWitness | None


class Grouped(NamedTuple):
    """The partial result of a chunk for a group of an aggregate."""

    group: tuple[int, bytes]
    cells: Cells


class QueryRefused(NamedTuple):
    """Why the query cannot be answered."""

    detail: str


ChunkResult = ChunkFacts | TakenRows | Grouped | QueryRefused


class NotInArchive(VeenError):
    """The archive does not hold all that the checkpoint covers."""


@dataclass(frozen=True, slots=True)
class ArchivedTail(ArchivedChunk):
    """The complete entries of a chunk that was open when it was pushed."""

    @property
    def file(self) -> str:
        return self.key.removeprefix(ArchiveKeys(self.hub_id).prefix)

    @property
    def key(self) -> str:
        return ArchiveKeys(self.hub_id).tail(*self.name)


@dataclass(frozen=True, slots=True)
class ChunkTask:
    """What a task reads: a chunk up to ``last_seq``, for the questions of these numbers.

    ``span`` covers the hub_ts that any of them can match; the nodes over ``cuts`` are returned.
    """

    number: int
    stream: str
    chunk: ArchivedChunk
    last_seq: int
    questions: tuple[int, ...]
    span: LogSpan
    cuts: tuple[Cut, ...]


class Bridge(NamedTuple):
    """A node that represents chunks: its known part, and the task that completes it."""

    gap: NodeGap
    within: Peaks
    piece: ChunkTask

    def top(self, tops: Sequence[Sequence[Top]]) -> Top:
        """The node, from the nodes over the cuts of the task."""
        return self.gap.top(self.within, tops[self.piece.cuts.index(self.gap.cut)])


class StreamPlan(NamedTuple):
    """A stream: the peaks before its first task, its tasks, and the end they must lead to.

    ``bridges`` cover what is not read, up to ``last``, the chunk in which the checkpoint ends. Both
    are empty where ``pieces`` reach that far.
    """

    stream: str
    end: StreamEnd
    questions: tuple[int, ...]
    span: LogSpan
    peaks: Peaks
    pieces: tuple[ChunkTask, ...]
    bridges: tuple[Bridge, ...]
    last: tuple[ChunkTask, ...]

    @property
    def bridging(self) -> tuple[ChunkTask, ...]:
        """Each task once, though it may complete several nodes."""
        return tuple(dict.fromkeys(bridge.piece for bridge in self.bridges))

    @property
    def to_read(self) -> tuple[ChunkTask, ...]:
        return (*self.pieces, *self.bridging, *self.last)


def plans(
    archive: HubArchive,
    manifest: ArchiveManifest,
    checkpoint: RecorderCheckpoint,
    questions: Sequence[Descriptor],
) -> list[StreamPlan]:
    """A plan for each stream of the questions; NotInArchive where the archive ends too early."""
    stream_plans: list[StreamPlan] = []
    numbers = count()
    for stream in sorted(
        {name for question in questions for name in question.scope}, key=str.encode
    ):
        asked = tuple(at for at, question in enumerate(questions) if stream in question.scope)
        span = _span([questions[at] for at in asked])
        end = end_of(stream, checkpoint)
        held = _held(archive, manifest, stream, end)
        if held is None:
            stream_plans.append(StreamPlan(stream, end, asked, span, mmr.EMPTY, (), (), ()))
        else:
            planner = _Planner(archive, held, stream, end, asked, span, numbers)
            stream_plans.append(planner.plan())
    return stream_plans


@dataclass(frozen=True, slots=True)
class _Planner:
    """Plans a stream that has messages."""

    archive: HubArchive
    held: LabelManifest
    stream: str
    end: StreamEnd
    questions: tuple[int, ...]
    span: LogSpan
    numbers: Iterator[int]

    def plan(self) -> StreamPlan:
        parts = _parts(self.held, self.stream, self.end, self.span)
        near = _near(parts, self.span)
        beyond = [part.end_seq for part in parts[near:-1]]
        node_gaps = list(gaps(parts[near - 1].end_seq, beyond)) if beyond else []
        if len({gap.chunk for gap in node_gaps}) >= len(beyond):
            near, node_gaps = len(parts), []
        pieces = tuple(self._piece(part, self.questions) for part in parts[:near])
        bridges = self._bridges(node_gaps, parts[near:-1])
        last = tuple(self._piece(part, ()) for part in parts[-1:] if bridges)
        peaks = _peaks(self.archive, self.held, parts[0].start_seq - 1)
        return StreamPlan(
            self.stream, self.end, self.questions, self.span, peaks, pieces, bridges, last
        )

    def _piece(
        self, part: ArchivedSegment | TailSegment, questions: tuple[int, ...], *cuts: Cut
    ) -> ChunkTask:
        last_seq = min(part.end_seq, self.end.last_seq)
        cuts = cuts or (Cut(part.start_seq - 1, last_seq),)
        return ChunkTask(
            next(self.numbers), self.stream, _chunk(self.archive, self.held, part),
            max(cut.upto for cut in cuts), questions, self.span, cuts,
        )  # fmt: skip

    def _bridges(
        self, gaps: Sequence[NodeGap], parts: Sequence[ArchivedSegment | TailSegment]
    ) -> tuple[Bridge, ...]:
        pieces = {
            chunk: self._piece(parts[chunk], (), *(gap.cut for gap in chunk_gaps))
            for chunk, chunk_gaps in groupby(gaps, attrgetter("chunk"))
        }
        return tuple(Bridge(gap, self._within(gap), pieces[gap.chunk]) for gap in gaps)

    def _within(self, gap: NodeGap) -> Peaks:
        if gap.cut.after == gap.start:
            return mmr.EMPTY
        return gap.within(_peaks(self.archive, self.held, gap.cut.after))


def _span(questions: Sequence[Descriptor]) -> LogSpan:
    lasts = [question.filter.last_second for question in questions]
    return LogSpan(
        min(question.filter.first_second for question in questions),
        max(UNBOUNDED if last is None else last for last in lasts),
    )


def _held(
    archive: HubArchive, manifest: ArchiveManifest, stream: str, end: StreamEnd
) -> LabelManifest | None:
    if not end.last_seq:
        return None
    name = derive_label(routing_key(archive.keys.hub_id), stream_id(stream), 0)
    label = archive.label(manifest, name)
    at = label.end_seq if label else 0
    if label is None or at < end.last_seq:
        raise NotInArchive(
            f"the archive ends at stream_seq {at} of {stream}, the checkpoint at {end.last_seq}: "
            "run veen archive push, then submit the query again"
        )
    return label


def _parts(
    held: LabelManifest, stream: str, end: StreamEnd, span: LogSpan
) -> Sequence[ArchivedSegment | TailSegment]:
    """From the last part that begins before the span.

    Its first entry shows where the span begins.
    """
    parts = [part for part in held.parts if part.start_seq <= end.last_seq]
    early = [at for at, part in enumerate(parts) if part.first_ts < span.first]
    parts = parts[early[-1] :] if early else parts
    for part in parts:
        if isinstance(part, ArchivedSegment) and part.is_pruned:
            raise NotInArchive(
                f"stream_seq {part.start_seq} to {part.end_seq} of {stream} were pruned before "
                "they "
                "were archived: ask for a later time, or the inline engine"
            )
    return parts


def _near(parts: Sequence[ArchivedSegment | TailSegment], span: LogSpan) -> int:
    """The number of parts up to the first that ends after the span; all, if none does."""
    late = (at for at, part in enumerate(parts, 1) if part.last_ts > span.last)
    return next(late, len(parts))


def _peaks(archive: HubArchive, held: LabelManifest, size: int) -> Peaks:
    """The peaks at the end of a chunk; they are verified once the root is reached from them."""
    if not size:
        return mmr.EMPTY
    name = layout.peaks(held.label, size)
    try:
        snapshot = PeakSnapshot.decode(archive.objects.get(archive.keys.file(name)))
    except ObjectMissing as error:
        raise Untrusted(f"the archive lacks {name}; run veen archive verify") from error
    except Malformed as error:
        raise Untrusted(f"{name}: {error}; run veen archive verify") from error
    if (snapshot.label, snapshot.upto_seq) != (held.label, size):
        raise Untrusted(
            f"{name}: expected the peaks of its name, got others; run veen archive verify"
        )
    return snapshot.to_peaks()


def _chunk(
    archive: HubArchive, held: LabelManifest, part: ArchivedSegment | TailSegment
) -> ArchivedChunk:
    hub_id = archive.keys.hub_id
    if isinstance(part, TailSegment):
        name = ChunkName(held.label, part.start_seq, part.end_seq)
        return ArchivedTail(hub_id, name, part.size)
    return chunk_of(hub_id, held, part)
