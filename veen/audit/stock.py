"""The files of a log, sorted by label and kind from their names alone (spec 4.8.3)."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Final

from veen import layout
from veen.audit import leaves
from veen.layout import ChunkName, OpenChunkName

_BY_SEQ: Final = re.compile(r"log/(peaks|checkpoint)-([0-9a-f]{64})-([0-9]{20})\.cbor")
_BY_RANGE: Final = re.compile(
    r"log/(?:(chunk)|leaves)-([0-9a-f]{64})-([0-9]{20})-([0-9]{20})\.(?(1)summary|bin)"
)
_INDEX: Final = re.compile(r"log/checkpoint-index-[0-9a-f]{64}\.cbor")


@dataclass(slots=True)
class LabelStock:
    label: bytes
    chunks: set[ChunkName] = field(default_factory=set)
    opened: set[OpenChunkName] = field(default_factory=set)
    tombstones: set[ChunkName] = field(default_factory=set)
    summaries: set[ChunkName] = field(default_factory=set)
    leaves: set[ChunkName] = field(default_factory=set)
    peaks: set[int] = field(default_factory=set)
    checkpoints: set[int] = field(default_factory=set)

    def segments(self) -> list[ChunkName | OpenChunkName]:
        """Chunks, gone or present, in the order of the label; the sealed one of a pair first."""
        found: list[ChunkName | OpenChunkName] = [*self.chunks | self.tombstones, *self.opened]
        return sorted(found, key=lambda one: (one.start_seq, len(one) == 2, one))

    def missing(self, first: int, last: int) -> list[str]:
        """The chunks that ought to hold these entries, by the summaries they left."""
        return missing(self.label, self.summaries, first, last)


@dataclass(slots=True)
class Stock:
    labels: dict[bytes, LabelStock] = field(default_factory=dict)
    recorder: list[str] = field(default_factory=list)
    """Recorder checkpoints, which are of all labels."""
    unknown: list[str] = field(default_factory=list)

    def of(self, label: bytes) -> LabelStock:
        return self.labels.setdefault(label, LabelStock(label))


def missing(label: bytes, summaries: Iterable[ChunkName], first: int, last: int) -> list[str]:
    gone = sorted(one for one in summaries if first <= one.start_seq <= last)
    return [layout.chunk(one) for one in gone or [ChunkName(label, first, last)]]


def take_stock(names: Iterable[str]) -> Stock:
    """Sort names such as ``log/chunk-….log``; what is no file of a log is kept apart."""
    found = Stock()
    for name in sorted(names):
        if layout.parse_recorder_checkpoint(name):
            found.recorder.append(name)
        elif not (_chunk(found, name) or _artefact(found, name)):
            found.unknown.append(name)
    return found


def _chunk(found: Stock, name: str) -> bool:
    sealed, opened = layout.parse_chunk(name), layout.parse_open_chunk(name)
    gone = leaves.parse_tombstone(name)
    if sealed is not None:
        found.of(sealed.label).chunks.add(sealed)
    elif opened is not None:
        found.of(opened.label).opened.add(opened)
    elif gone is not None:
        found.of(gone.label).tombstones.add(gone)
    return any((sealed, opened, gone))


def _artefact(found: Stock, name: str) -> bool:
    if match := _BY_SEQ.fullmatch(name):
        files = found.of(bytes.fromhex(match[2]))
        (files.peaks if match[1] == "peaks" else files.checkpoints).add(int(match[3]))
    elif match := _BY_RANGE.fullmatch(name):
        files = found.of(bytes.fromhex(match[2]))
        kind = files.summaries if match[1] else files.leaves
        kind.add(ChunkName(files.label, int(match[3]), int(match[4])))
    elif match := _INDEX.fullmatch(name):
        found.of(bytes.fromhex(name[21:85]))
    return match is not None
