"""The growing log of a label: its open chunk, its peaks and its seal (spec 4.8).

``CommitBatch`` holds entries that have a place and a receipt but are not on disk yet: a batch is
flushed as a whole or dropped.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from hub.admission import VerifiedMsg
from hub.storage.datadir import DataDir
from hub.storage.index import ClientKey
from veen import mmr, receipt
from veen.captoken import TokenBucket
from veen.crypto import SigningKey
from veen.errors import Malformed, VeenError
from veen.invariants import ClientCursor
from veen.limits import ENTRY_HEADER_BYTES, Limits
from veen.log import layout
from veen.log.chunk import ChunkSummary, ChunkTally, PeakSnapshot
from veen.log.entry import (
    ControlRecord,
    CutShort,
    Entry,
    EntryHeader,
    FramedEntry,
    open_entry,
    read_entry,
)
from veen.log.layout import tombstone_file
from veen.log.nodes import NodeFile
from veen.mmr import Peaks
from veen.system import durable


class Damaged(VeenError):
    """The log differs from what this hub has signed; nothing may be appended to it."""


@dataclass(slots=True)
class LabelLog:
    """The state of a label, owned by the writer. It changes only after bytes are on disk."""

    datadir: DataDir
    label: bytes
    label_no: int
    stream_id: bytes | None
    epoch: int
    peaks: Peaks
    tally: ChunkTally
    last_ts: int
    nodes: NodeFile
    fd: int | None = None
    is_ended: bool = False
    """Whether the summary of the open chunk is written: nothing more is appended to it."""

    @property
    def head_seq(self) -> int:
        return self.peaks.size

    def open_path(self) -> Path:
        name = layout.OpenChunkName(self.label, self.tally.start_seq)
        return self.datadir.file(layout.open_chunk(name))

    def append(self, data: bytes) -> None:
        """Append framed entries to the open chunk; durable on return."""
        durable.append(self._handle(), self.tally.size, data)

    def sync(self) -> None:
        """Sync entries that an earlier process wrote and may not have synced."""
        durable.sync(self._handle())
        self.close()

    def undo(self) -> None:
        """Cut off what was appended since the state last changed."""
        durable.cut(self._handle(), self.tally.size)

    def end_chunk(self) -> None:
        """Write the summary of the open chunk."""
        write_summary(self.datadir, self.tally.summary(self.label, self.peaks.root()))
        self.is_ended = True

    def has_summary(self) -> bool:
        """Whether a seal of the open chunk was interrupted after its summary."""
        name = layout.ChunkName(self.label, self.tally.start_seq, self.head_seq)
        return self.tally.entries > 0 and self.datadir.file(layout.summary(name)).exists()

    def finish_chunk(self) -> None:
        """Rename the open chunk to its final name and begin the next."""
        finish_rename(
            self.datadir, layout.ChunkName(self.label, self.tally.start_seq, self.head_seq)
        )
        self.close()
        self.tally = ChunkTally.starting_at(self.head_seq + 1)
        self.is_ended = False

    def drop_chunk(self) -> None:
        """Remove an open chunk without entries, left by a write on a full disk."""
        self.close()
        self.open_path().unlink(missing_ok=True)

    def close(self) -> None:
        if self.fd is not None:
            os.close(self.fd)
            self.fd = None

    def _handle(self) -> int:
        if self.fd is None:
            self.fd = durable.open_file(self.open_path(), os.O_RDWR | os.O_CREAT)
        return self.fd


def finish_rename(datadir: DataDir, name: layout.ChunkName) -> None:
    """Do the last step of a seal, unless it was done before a crash."""
    sealed = datadir.file(layout.chunk(name))
    if sealed.exists() or datadir.file(tombstone_file(name)).exists():
        return
    still_open = datadir.file(layout.open_chunk(layout.OpenChunkName(name.label, name.start_seq)))
    if not still_open.exists():
        raise Damaged(f"{sealed.name} is missing: run `veen hub verify`")
    durable.rename(still_open, sealed)


def write_peaks(datadir: DataDir, label: bytes, peaks: Peaks) -> None:
    path = datadir.file(layout.peaks(label, peaks.size))
    durable.write_once(path, PeakSnapshot.of(label, peaks).encode())


def write_summary(datadir: DataDir, summary: ChunkSummary) -> None:
    name = layout.ChunkName(summary.label, summary.start_seq, summary.end_seq)
    durable.write_once(datadir.file(layout.summary(name)), summary.encode())


def read_peaks(datadir: DataDir, label: bytes, upto_seq: int) -> Peaks:
    """The peaks after ``upto_seq``, from their snapshot."""
    if upto_seq == 0:
        return mmr.EMPTY
    path = datadir.file(layout.peaks(label, upto_seq))
    try:
        snapshot = PeakSnapshot.decode(path.read_bytes())
    except FileNotFoundError:
        raise Damaged(f"{path.name} is missing: run `veen hub verify`") from None
    if (snapshot.label, snapshot.upto_seq) != (label, upto_seq):
        raise Damaged(f"{path.name} belongs to another label or size: run `veen hub verify`")
    return snapshot.to_peaks()


def read_summary(datadir: DataDir, name: layout.ChunkName) -> ChunkSummary:
    file = layout.summary(name)
    try:
        return ChunkSummary.decode(datadir.file(file).read_bytes())
    except (Malformed, FileNotFoundError) as error:
        raise Damaged(f"{file}: {error}: run `veen hub verify`") from error


@dataclass(frozen=True, slots=True)
class LocatedEntry:
    """An entry of a chunk with its offset; its frame is checked."""

    at: int
    header: EntryHeader
    entry: Entry

    def opened(self) -> FramedEntry:
        return open_entry(self.header, self.entry)


def whole_entries(
    raw: bytes, label: bytes, start_seq: int, limits: Limits
) -> Iterator[LocatedEntry]:
    """The entries of a chunk up to the first that is incomplete or out of sequence."""
    at, seq = 0, start_seq
    while at < len(raw):
        try:
            header, entry = read_entry(raw, at, limits)
        except (CutShort, Malformed):
            return
        if (header.label, header.stream_seq) != (label, seq):
            return
        yield LocatedEntry(at, header, entry)
        at += header.whole_size
        seq += 1


class ChunkFull(Exception):
    """The next entry belongs to a new chunk: flush, seal the open chunk, and append again."""


class StagedEntry(NamedTuple):
    """An entry of a batch: its message, place, receipt, frame and completed nodes."""

    verified: VerifiedMsg
    seq: int
    hub_ts: int
    chunk_start: int
    at: int
    receipt: bytes
    frame: bytes
    nodes: bytes


@dataclass(slots=True)
class LabelChange:
    """The state of a label after a batch, applied once the batch is on disk."""

    label_log: LabelLog
    peaks: Peaks
    tally: ChunkTally
    last_ts: int
    staged: list[StagedEntry] = field(default_factory=list)

    def apply(self) -> None:
        self.label_log.peaks = self.peaks
        self.label_log.tally = self.tally
        self.label_log.last_ts = self.last_ts


class CommitBatch:
    """Entries of several labels that become durable together."""

    def __init__(self, key: SigningKey, limits: Limits) -> None:
        self._key = key
        self._limits = limits
        self.changes: dict[bytes, LabelChange] = {}
        self.controls: list[tuple[ControlRecord, StagedEntry]] = []
        self.clients: dict[ClientKey, ClientCursor] = {}
        self.buckets: dict[bytes, TokenBucket] = {}

    def head_seq(self, label_log: LabelLog) -> int:
        return self.changes.get(label_log.label, label_log).peaks.size

    def seq_of(self, label: bytes, client_id: bytes, client_seq: int) -> int | None:
        """The stream_seq of a client's message in this batch."""
        change = self.changes.get(label)
        for staged in change.staged if change else ():
            if (staged.verified.client_id, staged.verified.client_seq) == (client_id, client_seq):
                return staged.seq
        return None

    def append(self, label_log: LabelLog, verified: VerifiedMsg, hub_ts: int) -> StagedEntry:
        """Stage a message: its place, receipt and frame."""
        change = self.changes.get(label_log.label) or LabelChange(
            label_log, label_log.peaks, label_log.tally, label_log.last_ts
        )
        peaks, completed = mmr.grow(change.peaks, verified.leaf_hash)
        signed = receipt.issue(
            self._key,
            label=label_log.label,
            stream_seq=peaks.size,
            leaf=verified.leaf_hash,
            root=peaks.root(),
            hub_ts=hub_ts,
        )
        entry = Entry(verified.raw, signed)
        size = ENTRY_HEADER_BYTES + len(verified.raw) + len(signed)
        if label_log.is_ended or change.tally.must_roll(size, self._limits):
            raise ChunkFull
        entry_hash = entry.entry_hash()
        frame = entry.frame(label_log.label, peaks.size, entry_hash)
        staged = StagedEntry(
            verified, peaks.size, hub_ts, change.tally.start_seq, change.tally.size,
            signed, frame, b"".join(completed),
        )  # fmt: skip
        change.staged.append(staged)
        change.peaks, change.last_ts = peaks, hub_ts
        change.tally = change.tally.plus(size, entry_hash)
        self.changes[label_log.label] = change
        return staged
