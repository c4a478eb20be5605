"""The files of a data directory, sorted by label and kind (spec 4.8.3)."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, NamedTuple

from hub.storage import pruned
from hub.storage.datadir import DataDir
from veen import layout
from veen.layout import ChunkName, OpenChunkName

_BY_SEQ: Final = re.compile(r"log/(peaks|checkpoint)-([0-9a-f]{64})-(\d{20})\.cbor")
_BY_RANGE: Final = re.compile(
    r"log/(?:(chunk)|(leaves))-([0-9a-f]{64})-(\d{20})-(\d{20})\.(?(1)summary|bin)"
)
_BY_LABEL: Final = re.compile(r"log/checkpoint-index-([0-9a-f]{64})\.cbor")


class CheckpointName(NamedTuple):
    label: bytes
    upto_seq: int


def parse_checkpoint(path: str) -> CheckpointName | None:
    """The checkpoint that a path names, or None when it names something else."""
    found = _BY_SEQ.fullmatch(path)
    if found is None or found[1] != "checkpoint":
        return None
    return CheckpointName(bytes.fromhex(found[2]), int(found[3]))


@dataclass(slots=True)
class LabelFiles:
    label: bytes
    chunks: list[ChunkName] = field(default_factory=list)
    opened: list[OpenChunkName] = field(default_factory=list)
    summaries: set[ChunkName] = field(default_factory=set)
    tombstones: list[ChunkName] = field(default_factory=list)
    leaves: set[ChunkName] = field(default_factory=set)
    peaks: set[int] = field(default_factory=set)
    checkpoints: set[int] = field(default_factory=set)
    has_index: bool = False
    chunk_bytes: int = 0

    def segments(self) -> list[ChunkName | OpenChunkName]:
        """Chunks, gone or present, in the order of the label; the sealed one of a pair first."""
        gone = set(self.tombstones) - set(self.chunks)
        found: list[ChunkName | OpenChunkName] = [*self.chunks, *gone, *self.opened]
        return sorted(found, key=lambda one: (one.start_seq, len(one) == 2))

    def missing(self, first: int, last: int) -> list[str]:
        """The chunks that ought to hold these entries, by the summaries they left."""
        gone = sorted(one for one in self.summaries if first <= one.start_seq <= last)
        unnamed = ChunkName(self.label, first, last)
        return [layout.chunk(one) for one in gone or [unnamed]]


@dataclass(slots=True)
class Inventory:
    labels: dict[bytes, LabelFiles] = field(default_factory=dict)
    unknown: list[str] = field(default_factory=list)

    @property
    def chunk_bytes(self) -> int:
        return sum(files.chunk_bytes for files in self.labels.values())

    def of(self, label: bytes) -> LabelFiles:
        return self.labels.setdefault(label, LabelFiles(label))


def take_stock(datadir: DataDir) -> Inventory:
    found = Inventory()
    for path in sorted(datadir.log.iterdir()):
        name = f"log/{path.name}"
        if not (_chunk(found, name, path) or _artefact(found, name)):
            found.unknown.append(name)
    return found


def _chunk(found: Inventory, name: str, path: Path) -> bool:
    sealed, opened = layout.parse_chunk(name), layout.parse_open_chunk(name)
    gone = pruned.parse_tombstone(name)
    if sealed is not None:
        found.of(sealed.label).chunks.append(sealed)
    elif opened is not None:
        found.of(opened.label).opened.append(opened)
    elif gone is not None:
        found.of(gone.label).tombstones.append(gone)
    present = sealed or opened
    if present is not None:
        found.of(present.label).chunk_bytes += path.stat().st_size
    return present is not None or gone is not None


def _artefact(found: Inventory, name: str) -> bool:
    if match := _BY_SEQ.fullmatch(name):
        files = found.of(bytes.fromhex(match[2]))
        (files.peaks if match[1] == "peaks" else files.checkpoints).add(int(match[3]))
    elif match := _BY_RANGE.fullmatch(name):
        files = found.of(bytes.fromhex(match[3]))
        kind = files.summaries if match[1] else files.leaves
        kind.add(ChunkName(files.label, int(match[4]), int(match[5])))
    elif match := _BY_LABEL.fullmatch(name):
        found.of(bytes.fromhex(match[1])).has_index = True
    return match is not None
