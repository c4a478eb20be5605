"""Chunk files: a run of entries of one label, with its summary and the peaks at its end (4.8)."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

from veen import mmr
from veen.entry import Entry, EntryHeader, read_entry
from veen.errors import Malformed
from veen.limits import Limits
from veen.schema import Bytes32
from veen.wire import WireArray


@dataclass(frozen=True, slots=True, kw_only=True)
class ChunkSummary(WireArray):
    label: Bytes32
    start_seq: int
    end_seq: int
    mmr_root_end: Bytes32
    entry_count: int
    total_bytes: int
    entry_hashes_root: Bytes32

    def rule(self) -> None:
        if not 1 <= self.start_seq <= self.end_seq:
            raise Malformed(f"a chunk from {self.start_seq} to {self.end_seq}")
        if self.entry_count != self.end_seq - self.start_seq + 1:
            raise Malformed(f"{self.entry_count} entries from {self.start_seq} to {self.end_seq}")


@dataclass(frozen=True, slots=True, kw_only=True)
class PeakSnapshot(WireArray):
    """The peaks of a label after ``upto_seq``, by increasing height."""

    label: Bytes32
    upto_seq: int
    peaks: tuple[Bytes32, ...]

    def rule(self) -> None:
        if len(self.peaks) != self.upto_seq.bit_count():
            raise Malformed(f"{len(self.peaks)} peaks after {self.upto_seq}")

    @classmethod
    def of(cls, label: bytes, peaks: mmr.Peaks) -> PeakSnapshot:
        return cls(label=label, upto_seq=peaks.size, peaks=peaks.hashes)

    def to_peaks(self) -> mmr.Peaks:
        return mmr.Peaks(self.upto_seq, self.peaks)


class Tally(NamedTuple):
    """What is known of a chunk while it grows: enough to summarise it without reading it."""

    start_seq: int
    entries: int
    size: int
    hashes: mmr.Peaks

    @classmethod
    def starting_at(cls, seq: int) -> Tally:
        return cls(seq, 0, 0, mmr.EMPTY)

    def plus(self, size: int, entry_hash: bytes) -> Tally:
        hashes = self.hashes.append(entry_hash)
        return Tally(self.start_seq, self.entries + 1, self.size + size, hashes)

    def must_roll(self, next_size: int, limits: Limits) -> bool:
        """Whether the next entry belongs to a new chunk (spec 4.8.2)."""
        too_large = self.size + next_size > limits.max_chunk_bytes
        return self.entries > 0 and (too_large or self.entries >= limits.max_checkpoint_interval)

    def summary(self, label: bytes, mmr_root_end: bytes) -> ChunkSummary:
        return ChunkSummary(
            label=label,
            start_seq=self.start_seq,
            end_seq=self.start_seq + self.entries - 1,
            mmr_root_end=mmr_root_end,
            entry_count=self.entries,
            total_bytes=self.size,
            entry_hashes_root=self.hashes.root(),
        )


def read_entries(raw: bytes, limits: Limits) -> Iterator[tuple[int, EntryHeader, Entry]]:
    """Every entry of a chunk with its offset, each frame checked."""
    at = 0
    while at < len(raw):
        header, entry = read_entry(raw, at, limits)
        yield at, header, entry
        at += header.whole_size
