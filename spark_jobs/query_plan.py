"""Which chunks of an archive a query has to read, up to a recorder checkpoint.

Of a stream these are all from shortly before its span of time to shortly after it. Their leaves
must lead to the root that the checkpoint signs: what is earlier is stood for by its peaks, what is
later by a few nodes and the chunk in which the checkpoint ends. The same root proves both.

Which entries a query can be about: what decides whether a chunk has to be opened.

What tasks of a query send back, as it travels and is sorted.
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
    """From ``first`` to ``last``, both within."""

    first: int = 0
    last: int = UNBOUNDED

    def within(self, first: int = 0, last: int = UNBOUNDED) -> LogSpan:
        return LogSpan(max(self.first, first), min(self.last, last))

    def meets(self, first: int, last: int) -> bool:
        return max(self.first, first) <= min(self.last, last)


@dataclass(frozen=True, slots=True)
class LogBounds:
    """``labels`` is None when any label will do."""

    labels: frozenset[bytes] | None = None
    stream_seq: LogSpan = LogSpan()
    hub_ts: LogSpan = LogSpan()

    def with_labels(self, value: Collection[bytes]) -> LogBounds:
        result = frozenset(value)
        return replace(self, labels=result if self.labels is None else self.labels & result)

    def refs(self, manifest: ArchiveManifest) -> Iterator[LabelRef]:
        """The labels to look into; the manifests of others are not even read."""
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
    """Of one question in one chunk: messages before its time and up to its end, messages in its
    time that are no events, and events that match.
    """

    before: int
    upto: int
    unread: int
    matched: int


class ChunkFacts(NamedTuple):
    """What a chunk is, whatever matches: ``tops`` are the nodes over each of its cuts, ``groups``
    is how many partial groups it gave.
    """

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
    """What a witness is made of; ``path`` ends below the top of the chunk's own node."""

    entry: QueryEntry
    msg: bytes
    receipt: bytes
    body_key: bytes
    path: tuple[bytes, ...]


class TakenRows(NamedTuple):
    """An event that matches: its row where it gives one, and what shows it where that is asked."""

    key: QuestionOrder
    row: bytes | None
    shown: ChunkWitness | None


class Grouped(NamedTuple):
    """What a chunk adds to one group of an aggregate."""

    group: tuple[int, bytes]
    cells: Cells


class Refused(NamedTuple):
    """Why nothing at all can be answered."""

    detail: str


Found = ChunkFacts | TakenRows | Grouped | Refused


class NotInArchive(VeenError):
    """The archive does not hold all that the checkpoint speaks of."""


@dataclass(frozen=True, slots=True)
class ArchivedTail(ArchivedChunk):
    """The whole entries of a chunk that was open when it was pushed."""

    @property
    def file(self) -> str:
        return self.key.removeprefix(ArchiveKeys(self.hub_id).prefix)

    @property
    def key(self) -> str:
        return ArchiveKeys(self.hub_id).tail(*self.name)


@dataclass(frozen=True, slots=True)
class ChunkTask:
    """What one task reads: a chunk up to ``last_seq``, for the questions of these numbers.

    ``span`` holds the hub_ts of all that any of them can be about; the nodes over ``cuts`` are sent
    back.
    """

    number: int
    stream: str
    chunk: ArchivedChunk
    last_seq: int
    questions: tuple[int, ...]
    span: LogSpan
    cuts: tuple[Cut, ...]


class Bridge(NamedTuple):
    """A node that stands for chunks: what is known of it, and the piece that completes it."""

    gap: NodeGap
    within: Peaks
    piece: ChunkTask

    def top(self, tops: Sequence[Sequence[Top]]) -> Top:
        """From the nodes over the cuts of the piece."""
        return self.gap.top(self.within, tops[self.piece.cuts.index(self.gap.cut)])


class StreamPlan(NamedTuple):
    """One stream: the peaks before its first piece, its pieces, and where it must come to.

    ``bridges`` lead over what is not read, to ``last``, the chunk in which the checkpoint ends.
    Both are empty where ``pieces`` go that far.
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
        """Each piece once, though it may complete several nodes."""
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
    """A plan for each stream that is asked about; NotInArchive where the archive ends too early."""
    result: list[StreamPlan] = []
    numbers = count()
    for stream in sorted(
        {name for question in questions for name in question.scope}, key=str.encode
    ):
        asked = tuple(at for at, question in enumerate(questions) if stream in question.scope)
        span = _span([questions[at] for at in asked])
        end = end_of(stream, checkpoint)
        held = _held(archive, manifest, stream, end)
        if held is None:
            result.append(StreamPlan(stream, end, asked, span, mmr.EMPTY, (), (), ()))
        else:
            draft = _Draft(archive, held, stream, end, asked, span, numbers)
            result.append(draft.plan())
    return result


@dataclass(frozen=True, slots=True)
class _Draft:
    """A plan in the making, of a stream that has messages."""

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
        result = list(gaps(parts[near - 1].end_seq, beyond)) if beyond else []
        if len({item.chunk for item in result}) >= len(beyond):
            near, result = len(parts), []
        pieces = tuple(self._piece(part, self.questions) for part in parts[:near])
        bridges = self._bridges(result, parts[near:-1])
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
            chunk: self._piece(parts[chunk], (), *(item.cut for item in some))
            for chunk, some in groupby(gaps, attrgetter("chunk"))
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
    """From the last part that begins before the span; its first entry shows where that begins."""
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
    """How many parts there are up to the first that ends after the span; all, where none does."""
    late = (at for at, part in enumerate(parts, 1) if part.last_ts > span.last)
    return next(late, len(parts))


def _peaks(archive: HubArchive, held: LabelManifest, size: int) -> Peaks:
    """The peaks at an end of a chunk. They are believed once the root is reached from them."""
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
        raise Untrusted(f"{name} is of another place; run veen archive verify")
    return snapshot.to_peaks()


def _chunk(
    archive: HubArchive, held: LabelManifest, part: ArchivedSegment | TailSegment
) -> ArchivedChunk:
    hub_id = archive.keys.hub_id
    if isinstance(part, TailSegment):
        name = ChunkName(held.label, part.start_seq, part.end_seq)
        return ArchivedTail(hub_id, name, part.size)
    return chunk_of(hub_id, held, part)
