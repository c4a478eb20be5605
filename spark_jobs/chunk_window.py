"""Sequential reads of a sealed chunk, window by window, in bounded memory."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final, NamedTuple

from recorder.archive.manifest import ArchivedSegment, ArchiveKeys, LabelManifest
from veen.errors import Malformed, Untrusted
from veen.limits import Limits
from veen.log import layout
from veen.log.entry import CutShort, FramedEntry, open_entry, read_entry
from veen.log.layout import ChunkName
from veen.objects.port import ObjectStore

WINDOW: Final = 4 * 2**20


class PlacedEntry(NamedTuple):
    """An entry, and its offset in the chunk."""

    at: int
    framed: FramedEntry


@dataclass(frozen=True, slots=True)
class ArchivedChunk:
    """A sealed chunk of an archive, as described by its manifest."""

    hub_id: bytes
    name: ChunkName
    size: int

    @property
    def file(self) -> str:
        return layout.chunk(self.name)

    @property
    def key(self) -> str:
        return ArchiveKeys(self.hub_id).file(self.file)


def chunk_of(hub_id: bytes, label: LabelManifest, segment: ArchivedSegment) -> ArchivedChunk:
    return ArchivedChunk(hub_id, segment.name(label.label), segment.size)


def windows(
    objects: ObjectStore, chunk: ArchivedChunk, limits: Limits, window: int = WINDOW
) -> Iterator[list[PlacedEntry]]:
    """Yield all entries of a chunk in windows, with their frames verified.

    Raises Untrusted if any is missing.
    """
    at, seq = 0, chunk.name.start_seq
    while at < chunk.size:
        raw = objects.get_range(chunk.key, at, max(window, limits.largest_entry))
        entries = _entries(raw, at, chunk, limits)
        for placed in entries:
            header = placed.framed.header
            if (header.label, header.stream_seq) != (chunk.name.label, seq):
                detail = f"expected entry {seq}, got {header.stream_seq}"
                raise _broken(chunk, placed.at, detail)
            seq += 1
        yield entries
        at = entries[-1].at + entries[-1].framed.header.whole_size
    if seq != chunk.name.end_seq + 1:
        raise _broken(
            chunk, at, f"expected entries up to {chunk.name.end_seq}, got them up to {seq - 1}"
        )


def _entries(raw: bytes, base: int, chunk: ArchivedChunk, limits: Limits) -> list[PlacedEntry]:
    """The complete entries of a window, at least one."""
    entries: list[PlacedEntry] = []
    at = 0
    while at < len(raw):
        try:
            framed = open_entry(*read_entry(raw, at, limits))
        except CutShort:
            break
        except Malformed as error:
            raise _broken(chunk, base + at, str(error)) from error
        entries.append(PlacedEntry(base + at, framed))
        at += framed.header.whole_size
    if not entries:
        raise _broken(chunk, base, "an entry is truncated")
    return entries


def _broken(chunk: ArchivedChunk, at: int, why: str) -> Untrusted:
    return Untrusted(f"{chunk.file} at byte {at}: {why}; run verify_log")
