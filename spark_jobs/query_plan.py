"""Which chunks of an archive a query has to read, up to a recorder checkpoint.

Of a stream these are all from shortly before its span of time to shortly after it. Their leaves
must lead to the root that the checkpoint signs: what is earlier is stood for by its peaks, what is
later by a few nodes and the chunk in which the checkpoint ends. The same root proves both.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import count, groupby
from operator import attrgetter
from typing import NamedTuple

from recorder.archive.keys import HubKeys
from recorder.archive.manifest import ArchiveManifest, LabelManifest, Segment, Tail
from recorder.archive.store import HubArchive
from recorder.query.descriptor import Descriptor
from recorder.query.span import end_of
from spark_jobs.chunk_window import ArchivedChunk, chunk_of
from spark_jobs.log_bounds import UNBOUNDED, Span
from spark_jobs.query_bridge import Cut, Gap, gaps
from spark_jobs.query_nodes import Top
from veen import layout, mmr
from veen.chunk import PeakSnapshot
from veen.errors import Malformed, Untrusted, VeenError
from veen.label import label, routing_key
from veen.layout import ChunkName
from veen.mmr import Peaks
from veen.objects.port import ObjectMissing
from veen.recorder_checkpoint import RecorderCheckpoint, StreamEnd
from veen.stream import stream_id


class NotInArchive(VeenError):
    """The archive does not hold all that the checkpoint speaks of."""


@dataclass(frozen=True, slots=True)
class ArchivedTail(ArchivedChunk):
    """The whole entries of a chunk that was open when it was pushed."""

    @property
    def file(self) -> str:
        return self.key.removeprefix(HubKeys(self.hub_id).prefix)

    @property
    def key(self) -> str:
        return HubKeys(self.hub_id).tail(*self.name)


@dataclass(frozen=True, slots=True)
class Piece:
    """What one task reads: a chunk up to ``last_seq``, for the questions of these numbers.

    ``span`` holds the hub_ts of all that any of them can be about; the nodes over ``cuts`` are sent
    back.
    """

    number: int
    stream: str
    chunk: ArchivedChunk
    last_seq: int
    questions: tuple[int, ...]
    span: Span
    cuts: tuple[Cut, ...]


class Bridge(NamedTuple):
    """A node that stands for chunks: what is known of it, and the piece that completes it."""

    gap: Gap
    within: Peaks
    piece: Piece

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
    span: Span
    peaks: Peaks
    pieces: tuple[Piece, ...]
    bridges: tuple[Bridge, ...]
    last: tuple[Piece, ...]

    @property
    def bridging(self) -> tuple[Piece, ...]:
        """Each piece once, though it may complete several nodes."""
        return tuple(dict.fromkeys(one.piece for one in self.bridges))

    @property
    def to_read(self) -> tuple[Piece, ...]:
        return (*self.pieces, *self.bridging, *self.last)


def plans(
    archive: HubArchive,
    manifest: ArchiveManifest,
    checkpoint: RecorderCheckpoint,
    questions: Sequence[Descriptor],
) -> list[StreamPlan]:
    """A plan for each stream that is asked about; NotInArchive where the archive ends too early."""
    found: list[StreamPlan] = []
    numbers = count()
    for stream in sorted({name for one in questions for name in one.scope}, key=str.encode):
        asked = tuple(at for at, one in enumerate(questions) if stream in one.scope)
        span = _span([questions[at] for at in asked])
        end = end_of(stream, checkpoint)
        held = _held(archive, manifest, stream, end)
        if held is None:
            found.append(StreamPlan(stream, end, asked, span, mmr.EMPTY, (), (), ()))
        else:
            draft = _Draft(archive, held, stream, end, asked, span, numbers)
            found.append(draft.plan())
    return found


@dataclass(frozen=True, slots=True)
class _Draft:
    """A plan in the making, of a stream that has messages."""

    archive: HubArchive
    held: LabelManifest
    stream: str
    end: StreamEnd
    questions: tuple[int, ...]
    span: Span
    numbers: Iterator[int]

    def plan(self) -> StreamPlan:
        parts = _parts(self.held, self.stream, self.end, self.span)
        near = _near(parts, self.span)
        beyond = [one.end_seq for one in parts[near:-1]]
        found = list(gaps(parts[near - 1].end_seq, beyond)) if beyond else []
        if len({one.chunk for one in found}) >= len(beyond):
            near, found = len(parts), []
        pieces = tuple(self._piece(one, self.questions) for one in parts[:near])
        bridges = self._bridges(found, parts[near:-1])
        last = tuple(self._piece(one, ()) for one in parts[-1:] if bridges)
        peaks = _peaks(self.archive, self.held, parts[0].start_seq - 1)
        return StreamPlan(
            self.stream, self.end, self.questions, self.span, peaks, pieces, bridges, last
        )

    def _piece(self, part: Segment | Tail, questions: tuple[int, ...], *cuts: Cut) -> Piece:
        last_seq = min(part.end_seq, self.end.last_seq)
        cuts = cuts or (Cut(part.start_seq - 1, last_seq),)
        return Piece(
            next(self.numbers), self.stream, _chunk(self.archive, self.held, part),
            max(one.upto for one in cuts), questions, self.span, cuts,
        )  # fmt: skip

    def _bridges(self, found: Sequence[Gap], parts: Sequence[Segment | Tail]) -> tuple[Bridge, ...]:
        pieces = {
            chunk: self._piece(parts[chunk], (), *(one.cut for one in some))
            for chunk, some in groupby(found, attrgetter("chunk"))
        }
        return tuple(Bridge(one, self._within(one), pieces[one.chunk]) for one in found)

    def _within(self, gap: Gap) -> Peaks:
        if gap.cut.after == gap.start:
            return mmr.EMPTY
        return gap.within(_peaks(self.archive, self.held, gap.cut.after))


def _span(questions: Sequence[Descriptor]) -> Span:
    lasts = [one.filter.last_second for one in questions]
    return Span(
        min(one.filter.first_second for one in questions),
        max(UNBOUNDED if last is None else last for last in lasts),
    )


def _held(
    archive: HubArchive, manifest: ArchiveManifest, stream: str, end: StreamEnd
) -> LabelManifest | None:
    if not end.last_seq:
        return None
    name = label(routing_key(archive.keys.hub_id), stream_id(stream), 0)
    found = archive.label(manifest, name)
    at = found.end_seq if found else 0
    if found is None or at < end.last_seq:
        raise NotInArchive(
            f"the archive ends at stream_seq {at} of {stream}, the checkpoint at {end.last_seq}: "
            "run veen archive push, then submit the query again"
        )
    return found


def _parts(
    held: LabelManifest, stream: str, end: StreamEnd, span: Span
) -> Sequence[Segment | Tail]:
    """From the last part that begins before the span; its first entry shows where that begins."""
    parts = [one for one in held.parts if one.start_seq <= end.last_seq]
    early = [at for at, one in enumerate(parts) if one.first_ts < span.first]
    parts = parts[early[-1] :] if early else parts
    for one in parts:
        if isinstance(one, Segment) and one.is_pruned:
            raise NotInArchive(
                f"stream_seq {one.start_seq} to {one.end_seq} of {stream} were pruned before they "
                "were archived: ask for a later time, or the inline engine"
            )
    return parts


def _near(parts: Sequence[Segment | Tail], span: Span) -> int:
    """How many parts there are up to the first that ends after the span; all, where none does."""
    late = (at for at, one in enumerate(parts, 1) if one.last_ts > span.last)
    return next(late, len(parts))


def _peaks(archive: HubArchive, held: LabelManifest, size: int) -> Peaks:
    """The peaks at an end of a chunk. They are believed once the root is reached from them."""
    if not size:
        return mmr.EMPTY
    name = layout.peaks(held.label, size)
    try:
        found = PeakSnapshot.decode(archive.objects.get(archive.keys.file(name)))
    except ObjectMissing as error:
        raise Untrusted(f"the archive lacks {name}; run veen archive verify") from error
    except Malformed as error:
        raise Untrusted(f"{name}: {error}; run veen archive verify") from error
    if (found.label, found.upto_seq) != (held.label, size):
        raise Untrusted(f"{name} is of another place; run veen archive verify")
    return found.to_peaks()


def _chunk(archive: HubArchive, held: LabelManifest, part: Segment | Tail) -> ArchivedChunk:
    hub_id = archive.keys.hub_id
    if isinstance(part, Tail):
        name = ChunkName(held.label, part.start_seq, part.end_seq)
        return ArchivedTail(hub_id, name, part.size)
    return chunk_of(hub_id, held, part)
