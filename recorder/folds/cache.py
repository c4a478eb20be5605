"""What folds keep beside an archive, and where: summaries, and places in chunks.

All of it is under ``folds/``, apart from the archive: a summary tells what events say in the
clear, so whoever may read it is decided apart, and it can be deleted as a whole.

Where the last entry of each block lies in a chunk, so that nobody reads a chunk to find it.

It is derived from the chunk and says nothing that is believed: whoever follows it finds the entry
it names, with its receipt, or refuses it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from recorder.folds.archive_log import Window, headers
from veen.errors import Malformed
from veen.limits import Limits
from veen.log.layout import SEQ_DIGITS
from veen.objects.port import ObjectMissing, ObjectStore, Retention
from veen.overlay.fold import Node, Scope, SeqRun
from veen.wire.objects import WireArray, WireMap
from veen.wire.schema import Bytes32, Version


class Cache(Protocol):
    def get(self, key: str) -> bytes | None:
        """What was kept under a key; None when nothing was."""

    def put(self, key: str, raw: bytes) -> None:
        """Keep it; the same bytes again change nothing, others are refused."""


class NoCache:
    """Nothing is known and nothing is kept: every fold begins with the events."""

    def get(self, _key: str) -> bytes | None:
        return None

    def put(self, _key: str, _raw: bytes) -> None:
        return None


@dataclass(frozen=True, slots=True)
class StoreCache:
    objects: ObjectStore

    def get(self, key: str) -> bytes | None:
        try:
            return self.objects.get(key)
        except ObjectMissing:
            return None

    def put(self, key: str, raw: bytes) -> None:
        self.objects.put(key, raw)


@dataclass(frozen=True, slots=True)
class FoldKeys:
    """The keys of one label of one hub."""

    hub_id: bytes
    label: bytes

    @property
    def prefix(self) -> str:
        return f"folds/{self.hub_id.hex()}/{self.label.hex()}/"

    def places(self, run: SeqRun, block: int) -> str:
        return f"{self.prefix}places/{block}/{_seq(run.from_seq)}-{_seq(run.to_seq)}"

    def summaries(self, overlay: str) -> str:
        return f"{self.prefix}summary/{overlay}/"

    def summary(self, scope: Scope, reader: bytes, node: Node, mmr_root: bytes) -> str:
        """By all that a summary depends on, so that another log or reader has other keys."""
        kind = f"{scope.overlay.schema_set().hex()}/{reader.hex()}/{node.block}/{node.height}"
        place = f"{_seq(node.run.to_seq)}-{mmr_root.hex()}"
        return f"{self.summaries(scope.overlay.name)}{kind}/{place}"


def _seq(seq: int) -> str:
    return f"{seq:0{SEQ_DIGITS}d}"


def drop(objects: ObjectStore, retention: Retention, keys: FoldKeys) -> int:
    """Delete all that folds of a label have kept; the archive itself is elsewhere."""
    result = list(objects.keys(keys.prefix))
    for key in result:
        retention.delete(key)
    return len(result)


@dataclass(frozen=True, slots=True, kw_only=True)
class FoldPlace(WireArray):
    stream_seq: int
    offset: int
    size: int


@dataclass(frozen=True, slots=True, kw_only=True)
class FoldPlaces(WireMap):
    ver: Version = 1
    label: Bytes32
    from_seq: int
    to_seq: int
    block: int
    places: tuple[FoldPlace, ...]

    def rule(self) -> None:
        if self.block < 1 or not 1 <= self.from_seq <= self.to_seq:
            raise Malformed(f"places from {self.from_seq} to {self.to_seq} by {self.block}")
        due = list(_due(self.from_seq, self.to_seq, self.block))
        if [place.stream_seq for place in self.places] != due:
            raise Malformed("not one place for each block that ends here")

    def at(self, stream_seq: int) -> FoldPlace | None:
        return next((place for place in self.places if place.stream_seq == stream_seq), None)

    def start_of(self, stream_seq: int) -> tuple[int, int]:
        """Where to begin to read an entry: the first stream_seq there, and its offset."""
        earlier = [place for place in self.places if place.stream_seq < stream_seq]
        if not earlier:
            return self.from_seq, 0
        return earlier[-1].stream_seq + 1, earlier[-1].offset + earlier[-1].size


def scan(window: Window, label: bytes, run: SeqRun, block: int, limits: Limits) -> FoldPlaces:
    """The places of a chunk with the entries of ``run``, from its headers."""
    due, result = run.from_seq, []
    for offset, header in headers(window, limits):
        if (header.label, header.stream_seq) != (label, due):
            raise Malformed(f"entry {header.stream_seq} stands where {due} is due")
        if due % block == 0:
            result.append(FoldPlace(stream_seq=due, offset=offset, size=header.whole_size))
        due += 1
    if due != run.to_seq + 1:
        raise Malformed(f"it ends before {due}, not after {run.to_seq}")
    return FoldPlaces(
        label=label, from_seq=run.from_seq, to_seq=run.to_seq, block=block, places=tuple(result)
    )


def _due(from_seq: int, to_seq: int, block: int) -> range:
    return range(-(-from_seq // block) * block, to_seq + 1, block)
