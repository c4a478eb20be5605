"""The manifest of a label in a data directory: complete or not, without reading its segments."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from hub.storage.datadir import DataDir
from hub.storage.label_log import read_peaks
from veen import layout
from veen.audit import leaves
from veen.audit.stock import LabelStock, take_stock
from veen.checkpoint import Checkpoint
from veen.chunk import ChunkSummary
from veen.digest import h
from veen.errors import Malformed, Untrusted
from veen.layout import ChunkName
from veen.manifest import SegmentKey, manifest_root


class State(Enum):
    PRESENT = "present"
    PRUNED = "pruned"


@dataclass(frozen=True, slots=True)
class Segment:
    epoch: int
    start_seq: int
    end_seq: int
    state: State
    summary_hash: bytes

    @property
    def key(self) -> SegmentKey:
        return SegmentKey(self.epoch, self.start_seq, self.end_seq, self.summary_hash)


@dataclass(frozen=True, slots=True)
class Manifest:
    label: bytes
    segments: tuple[Segment, ...]

    def root(self) -> bytes:
        return manifest_root(self.label, (segment.key for segment in self.segments))

    @property
    def end_seq(self) -> int:
        return self.segments[-1].end_seq if self.segments else 0


def manifest(datadir: DataDir, label: bytes) -> Manifest:
    """The manifest of a label; Untrusted when a segment is missing or its artefacts disagree."""
    files = take_stock(datadir.log_names()).of(label)
    segments: list[Segment] = []
    for name in (one for one in files.segments() if isinstance(one, ChunkName)):
        due = segments[-1].end_seq + 1 if segments else 1
        if name.start_seq != due:
            raise Untrusted(f"label {label.hex()}: no segment holds stream_seq {due}")
        segments.append(_segment(datadir, files, name))
    return Manifest(label, tuple(segments))


def _segment(datadir: DataDir, files: LabelStock, name: ChunkName) -> Segment:
    try:
        raw = datadir.file(layout.summary(name)).read_bytes()
        summary = ChunkSummary.decode(raw)
        end = layout.checkpoint(name.label, name.end_seq)
        checkpoint = Checkpoint.decode(datadir.file(end).read_bytes())
    except (Malformed, FileNotFoundError) as error:
        raise Untrusted(f"segment {layout.chunk(name)}: {error}") from error
    roots = {
        summary.mmr_root_end,
        checkpoint.mmr_root,
        read_peaks(datadir, name.label, name.end_seq).root(),
    }
    if ChunkName(summary.label, summary.start_seq, summary.end_seq) != name or len(roots) != 1:
        raise Untrusted(f"segment {layout.chunk(name)}: summary, peaks and checkpoint disagree")
    state = State.PRESENT if name in files.chunks else State.PRUNED
    if state is State.PRUNED and name not in files.leaves:
        raise Untrusted(f"segment {layout.chunk(name)}: {leaves.leaves(name)} is missing")
    return Segment(checkpoint.epoch, name.start_seq, name.end_seq, state, h(raw))
