"""The growing log of one label: its open chunk, its peaks, and how it is sealed (spec 4.8)."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from hub.storage.datadir import DataDir
from veen import checkpoint_index, durable, layout, mmr
from veen.audit import leaves
from veen.checkpoint import Checkpoint
from veen.checkpoint_index import CheckpointRef
from veen.chunk import ChunkSummary, PeakSnapshot, Tally
from veen.entry import CutShort, Entry, EntryHeader, FramedEntry, open_entry, read_entry
from veen.errors import Malformed, VeenError
from veen.limits import Limits
from veen.mmr import Peaks
from veen.nodes import NodeFile


class Damaged(VeenError):
    """The log is not what this hub has signed; it must not go on from here."""


@dataclass(slots=True)
class LabelLog:
    """State of one label, owned by the one writer. It moves only once bytes are on disk."""

    datadir: DataDir
    label: bytes
    label_no: int
    stream_id: bytes | None
    epoch: int
    peaks: Peaks
    tally: Tally
    last_ts: int
    nodes: NodeFile
    fd: int | None = None
    is_ended: bool = False
    """Whether the summary of the open chunk stands: then nothing more goes into it."""

    @property
    def head_seq(self) -> int:
        return self.peaks.size

    def open_path(self) -> Path:
        name = layout.OpenChunkName(self.label, self.tally.start_seq)
        return self.datadir.file(layout.open_chunk(name))

    def append(self, data: bytes) -> None:
        """Append framed entries to the open chunk; they are on disk on return."""
        durable.append(self._handle(), self.tally.size, data)

    def sync(self) -> None:
        """Make sure of entries that a process wrote that ended before its sync."""
        durable.sync(self._handle())
        self.close()

    def undo(self) -> None:
        """Take back what was appended since the state last moved."""
        durable.cut(self._handle(), self.tally.size)

    def end_chunk(self) -> None:
        """Write the summary of the open chunk."""
        write_summary(self.datadir, self.tally.summary(self.label, self.peaks.root()))
        self.is_ended = True

    def has_summary(self) -> bool:
        """Whether a seal of the open chunk went as far as its summary."""
        name = layout.ChunkName(self.label, self.tally.start_seq, self.head_seq)
        return self.tally.entries > 0 and self.datadir.file(layout.summary(name)).exists()

    def finish_chunk(self) -> None:
        """Give the open chunk its final name and begin the next one."""
        finish_rename(
            self.datadir, layout.ChunkName(self.label, self.tally.start_seq, self.head_seq)
        )
        self.close()
        self.tally = Tally.starting_at(self.head_seq + 1)
        self.is_ended = False

    def drop_chunk(self) -> None:
        """Remove an open chunk without entries, which a write that found no room left behind."""
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
    """The last step of a seal, which a crash may have left undone."""
    sealed = datadir.file(layout.chunk(name))
    if sealed.exists() or datadir.file(leaves.tombstone(name)).exists():
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


def write_checkpoint(datadir: DataDir, checkpoint: Checkpoint, start_seq: int) -> None:
    """A checkpoint and its line in the label's index; the file itself is never rewritten."""
    label, upto = checkpoint.label_curr, checkpoint.upto_seq
    durable.write_once(datadir.file(layout.checkpoint(label, upto)), checkpoint.encode())
    index = read_checkpoint_index(datadir, label)
    line = CheckpointRef(
        mmr_root=checkpoint.mmr_root,
        start_seq=start_seq,
        end_seq=upto,
        peaks_ref=layout.peaks(label, upto),
    )
    if index.get(upto) != line:
        index[upto] = line
        durable.write(datadir.file(layout.checkpoint_index(label)), checkpoint_index.encode(index))


def read_checkpoint_index(datadir: DataDir, label: bytes) -> dict[int, CheckpointRef]:
    try:
        return checkpoint_index.decode(datadir.file(layout.checkpoint_index(label)).read_bytes())
    except FileNotFoundError:
        return {}


def read_peaks(datadir: DataDir, label: bytes, upto_seq: int) -> Peaks:
    """The peaks after ``upto_seq``, from the snapshot that its chunk left."""
    if upto_seq == 0:
        return mmr.EMPTY
    path = datadir.file(layout.peaks(label, upto_seq))
    try:
        snapshot = PeakSnapshot.decode(path.read_bytes())
    except FileNotFoundError:
        raise Damaged(f"{path.name} is missing: run `veen hub verify`") from None
    if (snapshot.label, snapshot.upto_seq) != (label, upto_seq):
        raise Damaged(f"{path.name} is not what its name says")
    return snapshot.to_peaks()


def read_summary(datadir: DataDir, name: layout.ChunkName) -> ChunkSummary:
    file = layout.summary(name)
    try:
        return ChunkSummary.decode(datadir.file(file).read_bytes())
    except (Malformed, FileNotFoundError) as error:
        raise Damaged(f"{file}: {error}: run `veen hub verify`") from error


@dataclass(frozen=True, slots=True)
class Found:
    """One entry as it lies in a chunk, its frame checked."""

    at: int
    header: EntryHeader
    entry: Entry

    def opened(self) -> FramedEntry:
        return open_entry(self.header, self.entry)


def whole_entries(raw: bytes, label: bytes, start_seq: int, limits: Limits) -> Iterator[Found]:
    """The entries of an open chunk up to the first that is not whole or not next in line."""
    at, seq = 0, start_seq
    while at < len(raw):
        try:
            header, entry = read_entry(raw, at, limits)
        except (CutShort, Malformed):
            return
        if (header.label, header.stream_seq) != (label, seq):
            return
        yield Found(at, header, entry)
        at += header.whole_size
        seq += 1
