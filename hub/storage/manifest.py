"""The manifest tree of a label: its sealed segments, complete or not, without reading them.

A segment is keyed by (label, epoch, seq range). Its leaf does not say whether the chunk is still
here, so the root of a manifest stays the same when retention prunes (spec 3.4.1).
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from hub.storage import pruned
from hub.storage.datadir import DataDir
from hub.storage.inventory import LabelFiles, take_stock
from hub.storage.label_log import read_peaks
from veen import layout, mmr
from veen.checkpoint import Checkpoint
from veen.chunk import ChunkSummary
from veen.digest import h, ht, u64be
from veen.errors import Malformed, Untrusted
from veen.layout import ChunkName


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

    def leaf(self, label: bytes) -> bytes:
        key = (u64be(self.epoch), u64be(self.start_seq), u64be(self.end_seq))
        return ht("veen/manifest-leaf", label, *key, self.summary_hash)


@dataclass(frozen=True, slots=True)
class Manifest:
    label: bytes
    segments: tuple[Segment, ...]

    def root(self) -> bytes:
        leaves = [segment.leaf(self.label) for segment in self.segments]
        return ht("veen/manifest-root", u64be(len(leaves)), *mmr.peaks_of(leaves, _node))

    @property
    def end_seq(self) -> int:
        return self.segments[-1].end_seq if self.segments else 0


def manifest(datadir: DataDir, label: bytes) -> Manifest:
    """The manifest of a label; Untrusted when a segment is missing or its artefacts disagree."""
    files = take_stock(datadir).of(label)
    segments: list[Segment] = []
    for name in (one for one in files.segments() if isinstance(one, ChunkName)):
        due = segments[-1].end_seq + 1 if segments else 1
        if name.start_seq != due:
            raise Untrusted(f"label {label.hex()}: no segment holds stream_seq {due}")
        segments.append(_segment(datadir, files, name))
    return Manifest(label, tuple(segments))


def _segment(datadir: DataDir, files: LabelFiles, name: ChunkName) -> Segment:
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
        raise Untrusted(f"segment {layout.chunk(name)}: {pruned.leaves(name)} is missing")
    return Segment(checkpoint.epoch, name.start_seq, name.end_seq, state, h(raw))


def _node(left: bytes, right: bytes) -> bytes:
    return ht("veen/manifest-node", left, right)
