"""A sealed chunk read window by window, so that memory is bounded whatever its size."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final, NamedTuple

from recorder.archive.keys import HubKeys
from recorder.archive.manifest import LabelManifest, Segment
from veen import layout
from veen.entry import CutShort, FramedEntry, open_entry, read_entry
from veen.errors import Malformed, Untrusted
from veen.layout import ChunkName
from veen.limits import Limits
from veen.objects.port import ObjectStore

WINDOW: Final = 4 * 2**20


class Placed(NamedTuple):
    """An entry, and its offset in the chunk."""

    at: int
    framed: FramedEntry


@dataclass(frozen=True, slots=True)
class ArchivedChunk:
    """A sealed chunk of an archive, as its manifest tells of it."""

    hub_id: bytes
    name: ChunkName
    size: int

    @property
    def file(self) -> str:
        return layout.chunk(self.name)

    @property
    def key(self) -> str:
        return HubKeys(self.hub_id).file(self.file)


def chunk_of(hub_id: bytes, label: LabelManifest, segment: Segment) -> ArchivedChunk:
    return ArchivedChunk(hub_id, segment.name(label.label), segment.size)


def windows(
    objects: ObjectStore, chunk: ArchivedChunk, limits: Limits, window: int = WINDOW
) -> Iterator[list[Placed]]:
    """All entries from the first to the last, each with its frame checked; Untrusted if not all."""
    at, seq = 0, chunk.name.start_seq
    while at < chunk.size:
        raw = objects.get_range(chunk.key, at, max(window, limits.largest_entry))
        found = _entries(raw, at, chunk, limits)
        for placed in found:
            header = placed.framed.header
            if (header.label, header.stream_seq) != (chunk.name.label, seq):
                raise _broken(chunk, placed.at, f"entry {seq} is due")
            seq += 1
        yield found
        at = found[-1].at + found[-1].framed.header.whole_size
    if seq != chunk.name.end_seq + 1:
        raise _broken(chunk, at, f"ends before entry {seq}")


def _entries(raw: bytes, base: int, chunk: ArchivedChunk, limits: Limits) -> list[Placed]:
    """The whole entries of a window, one at least."""
    found: list[Placed] = []
    at = 0
    while at < len(raw):
        try:
            framed = open_entry(*read_entry(raw, at, limits))
        except CutShort:
            break
        except Malformed as error:
            raise _broken(chunk, base + at, str(error)) from error
        found.append(Placed(base + at, framed))
        at += framed.header.whole_size
    if not found:
        raise _broken(chunk, base, "an entry is cut short")
    return found


def _broken(chunk: ArchivedChunk, at: int, why: str) -> Untrusted:
    return Untrusted(f"{chunk.file} at byte {at}: {why}; verify_log tells more")
