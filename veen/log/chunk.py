"""Chunk files of a label and what belongs to them: summary, peaks, index, tombstone (spec 4.8).

The checkpoint index maps upto_seq to root, chunk and peaks (spec 4.8.3). The manifest covers the
sealed segments of a label with one root (spec 3.4.1); its leaves do not depend on where a chunk is
stored, so the root stays the same when retention prunes and when an archive copies. A tombstone
describes a pruned chunk and is signed by the hub.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import NamedTuple

from veen import mmr
from veen.crypto import SigningKey, signature_is_valid
from veen.digest import ht, u64be
from veen.errors import Malformed, Untrusted
from veen.hub_identity import HubIdentity
from veen.limits import Limits
from veen.log.entry import Entry, EntryHeader, read_entry
from veen.wire import cbor
from veen.wire.objects import WireArray, WireMap
from veen.wire.schema import Bytes32, Bytes64, Version


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckpointRef(WireArray):
    """A line of the checkpoint index: the root, the chunk and the peaks of a checkpoint."""

    mmr_root: Bytes32
    start_seq: int
    end_seq: int
    peaks_ref: str

    def rule(self) -> None:
        if not 1 <= self.start_seq <= self.end_seq:
            raise Malformed(
                f"checkpoint index: expected a chunk from 1 on, got {self.start_seq} to "
                f"{self.end_seq}"
            )


def encode_checkpoint_index(index: Mapping[int, CheckpointRef]) -> bytes:
    """The map upto_seq -> reference, by ascending upto_seq."""
    if 0 in index:
        raise Malformed("checkpoint index: expected stream_seq from 1, got 0")
    return cbor.encode({upto: index[upto].plain() for upto in sorted(index)})


def decode_checkpoint_index(raw: bytes) -> dict[int, CheckpointRef]:
    count, at = cbor.mapping(raw, 0)
    index: dict[int, CheckpointRef] = {}
    last = 0
    for _ in range(count):
        upto, at = cbor.uint(raw, at)
        if upto <= last:
            raise Malformed(f"checkpoint index out of order at {upto}")
        index[upto], at = CheckpointRef.read(raw, at)
        index[upto].check()
        last = upto
    cbor.finish(raw, at)
    return index


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
            raise Malformed(
                f"chunk: expected a range from 1 on, got {self.start_seq} to {self.end_seq}"
            )
        if self.entry_count != self.end_seq - self.start_seq + 1:
            raise Malformed(
                f"chunk: {self.entry_count} entries do not fit {self.start_seq} to {self.end_seq}"
            )


@dataclass(frozen=True, slots=True, kw_only=True)
class PeakSnapshot(WireArray):
    """The peaks of a label after ``upto_seq``, by increasing height."""

    label: Bytes32
    upto_seq: int
    peaks: tuple[Bytes32, ...]

    def rule(self) -> None:
        if len(self.peaks) != self.upto_seq.bit_count():
            raise Malformed(f"{len(self.peaks)} peaks do not fit size {self.upto_seq}")

    @classmethod
    def of(cls, label: bytes, peaks: mmr.Peaks) -> PeakSnapshot:
        return cls(label=label, upto_seq=peaks.size, peaks=peaks.hashes)

    def to_peaks(self) -> mmr.Peaks:
        return mmr.Peaks(self.upto_seq, self.peaks)


class ChunkTally(NamedTuple):
    """The running totals of a growing chunk, from which its summary is made."""

    start_seq: int
    entries: int
    size: int
    hashes: mmr.Peaks

    @classmethod
    def starting_at(cls, seq: int) -> ChunkTally:
        return cls(seq, 0, 0, mmr.EMPTY)

    def plus(self, size: int, entry_hash: bytes) -> ChunkTally:
        hashes = self.hashes.append(entry_hash)
        return ChunkTally(self.start_seq, self.entries + 1, self.size + size, hashes)

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


class SegmentKey(NamedTuple):
    epoch: int
    start_seq: int
    end_seq: int
    summary_hash: bytes


def manifest_root(label: bytes, segments: Iterable[SegmentKey]) -> bytes:
    """The root over segments in order; Untrusted when they leave a gap or overlap."""
    leaves, expected = [], 1
    for segment in segments:
        if segment.start_seq != expected or segment.end_seq < segment.start_seq:
            raise Untrusted(f"label {label.hex()}: no segment holds stream_seq {expected}")
        expected = segment.end_seq + 1
        key = (u64be(segment.epoch), u64be(segment.start_seq), u64be(segment.end_seq))
        leaves.append(ht("veen/manifest-leaf", label, *key, segment.summary_hash))
    return ht("veen/manifest-root", u64be(len(leaves)), *mmr.peaks_of(leaves, _node))


def _node(left: bytes, right: bytes) -> bytes:
    return ht("veen/manifest-node", left, right)


@dataclass(frozen=True, slots=True, kw_only=True)
class Tombstone(WireMap):
    ver: Version = 1
    label: Bytes32
    start_seq: int
    end_seq: int
    chunk_bytes: int
    chunk_sha256: Bytes32
    summary_sha256: Bytes32
    leaves_sha256: Bytes32
    pruned_at: int
    moved_to: str | None = None
    hub_sig: Bytes64 = bytes(64)

    def rule(self) -> None:
        if not 1 <= self.start_seq <= self.end_seq:
            raise Malformed(
                f"tombstone: expected a range from 1 on, got {self.start_seq} to {self.end_seq}"
            )

    def signed(self, key: SigningKey) -> Tombstone:
        return replace(self, hub_sig=key.sign(self._signing_digest()))

    def verify(self, hub: HubIdentity) -> None:
        """Raise Untrusted unless a key of the hub, valid at pruned_at, signed this."""
        keys = (key for key in hub.hub_keys if key.overlaps(self.pruned_at, self.pruned_at))
        if not any(
            signature_is_valid(key.hub_pk, self.hub_sig, self._signing_digest()) for key in keys
        ):
            raise Untrusted(f"the tombstone at {self.start_seq} is not signed by the hub")

    def _signing_digest(self) -> bytes:
        return ht("veen/tombstone", replace(self, hub_sig=bytes(64)).encode())
