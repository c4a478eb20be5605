"""Which chunks of an archive a query has to read, up to a recorder checkpoint.

Of a stream these are all from shortly before its span of time to the checkpoint: so their leaves
lead to the root that the checkpoint signs. What is earlier is stood for by its peaks, which the
same root proves.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from recorder.archive.keys import HubKeys
from recorder.archive.manifest import ArchiveManifest, LabelManifest, Segment, Tail
from recorder.archive.store import HubArchive
from recorder.query.descriptor import Descriptor
from recorder.query.span import end_of
from spark_jobs.chunk_window import ArchivedChunk, chunk_of
from spark_jobs.log_bounds import UNBOUNDED, Span
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

    ``span`` holds the hub_ts of all that any of them can be about.
    """

    number: int
    stream: str
    chunk: ArchivedChunk
    last_seq: int
    questions: tuple[int, ...]
    span: Span


class StreamPlan(NamedTuple):
    """One stream: the peaks before its first piece, its pieces, and where it must come to."""

    stream: str
    end: StreamEnd
    questions: tuple[int, ...]
    span: Span
    peaks: Peaks
    pieces: tuple[Piece, ...]


def plans(
    archive: HubArchive,
    manifest: ArchiveManifest,
    checkpoint: RecorderCheckpoint,
    questions: Sequence[Descriptor],
) -> list[StreamPlan]:
    """A plan for each stream that is asked about; NotInArchive where the archive ends too early."""
    found: list[StreamPlan] = []
    number = 0
    for stream in sorted({name for one in questions for name in one.scope}, key=str.encode):
        asked = tuple(at for at, one in enumerate(questions) if stream in one.scope)
        span = _span([questions[at] for at in asked])
        end = end_of(stream, checkpoint)
        held = _held(archive, manifest, stream, end)
        parts = _parts(held, stream, end, span)
        peaks = _peaks(archive, held, parts)
        pieces = tuple(
            Piece(at, stream, chunk, min(chunk.name.end_seq, end.last_seq), asked, span)
            for at, chunk in enumerate(_chunks(archive, held, parts), number)
        )
        number += len(pieces)
        found.append(StreamPlan(stream, end, asked, span, peaks, pieces))
    return found


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
    held: LabelManifest | None, stream: str, end: StreamEnd, span: Span
) -> list[Segment | Tail]:
    """From the last part that begins before the span; its first entry shows where that begins."""
    parts = [one for one in held.parts if one.start_seq <= end.last_seq] if held else []
    early = [at for at, one in enumerate(parts) if one.first_ts < span.first]
    parts = parts[early[-1] :] if early else parts
    for one in parts:
        if isinstance(one, Segment) and one.is_pruned:
            raise NotInArchive(
                f"stream_seq {one.start_seq} to {one.end_seq} of {stream} were pruned before they "
                "were archived: ask for a later time, or the inline engine"
            )
    return parts


def _peaks(
    archive: HubArchive, held: LabelManifest | None, parts: Sequence[Segment | Tail]
) -> Peaks:
    """The peaks before the first part. They are believed once the root is reached from them."""
    before = parts[0].start_seq - 1 if parts else 0
    if held is None or not before:
        return mmr.EMPTY
    name = layout.peaks(held.label, before)
    try:
        found = PeakSnapshot.decode(archive.objects.get(archive.keys.file(name)))
    except ObjectMissing as error:
        raise Untrusted(f"the archive lacks {name}; run veen archive verify") from error
    except Malformed as error:
        raise Untrusted(f"{name}: {error}; run veen archive verify") from error
    if (found.label, found.upto_seq) != (held.label, before):
        raise Untrusted(f"{name} is of another place; run veen archive verify")
    return found.to_peaks()


def _chunks(
    archive: HubArchive, held: LabelManifest | None, parts: Sequence[Segment | Tail]
) -> Iterator[ArchivedChunk]:
    hub_id = archive.keys.hub_id
    for one in parts if held else ():
        assert held is not None  # noqa: S101 - for the type checker
        if isinstance(one, Tail):
            yield ArchivedTail(hub_id, ChunkName(held.label, one.start_seq, one.end_seq), one.size)
        else:
            yield chunk_of(hub_id, held, one)
