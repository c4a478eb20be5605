"""The cache of folds in object storage: summaries of nodes, and offsets of entries in chunks.

All of it is under ``folds/``, separate from the archive: a summary reveals the contents of events,
so access to it is granted separately, and it can be deleted as a whole.

The offset index holds the position of the last entry of each block of a chunk. It is derived from
the chunk and not trusted: a reader verifies the entry and its receipt at the position it names.
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
    """The port to the cache of folds."""

    def get(self, key: str) -> bytes | None:
        """Return what is stored under a key; None when nothing is."""

    def put(self, key: str, raw: bytes) -> None:
        """Store bytes; the same bytes again change nothing, others are refused."""


class NoCache:
    """A cache that stores nothing: every fold starts from the events."""

    def get(self, _key: str) -> bytes | None:
        return None

    def put(self, _key: str, _raw: bytes) -> None:
        return None


@dataclass(frozen=True, slots=True)
class StoreCache:
    """The cache in object storage."""

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
    """The cache keys of a label."""

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
        """The key includes all that a summary depends on, so that logs and readers do not
        collide."""
        kind = f"{scope.overlay.schema_set().hex()}/{reader.hex()}/{node.block}/{node.height}"
        place = f"{_seq(node.run.to_seq)}-{mmr_root.hex()}"
        return f"{self.summaries(scope.overlay.name)}{kind}/{place}"


def _seq(seq: int) -> str:
    return f"{seq:0{SEQ_DIGITS}d}"


def drop(objects: ObjectStore, retention: Retention, keys: FoldKeys) -> int:
    """Delete everything that folds of a label have cached; the archive is not affected."""
    cached = list(objects.keys(keys.prefix))
    for key in cached:
        retention.delete(key)
    return len(cached)


@dataclass(frozen=True, slots=True, kw_only=True)
class FoldPlace(WireArray):
    """The offset and size of an entry in its chunk."""

    stream_seq: int
    offset: int
    size: int


@dataclass(frozen=True, slots=True, kw_only=True)
class FoldPlaces(WireMap):
    """The places of a chunk: the last entry of each block."""

    ver: Version = 1
    label: Bytes32
    from_seq: int
    to_seq: int
    block: int
    places: tuple[FoldPlace, ...]

    def rule(self) -> None:
        if self.block < 1 or not 1 <= self.from_seq <= self.to_seq:
            raise Malformed(
                f"expected blocks of 1 or more entries in a range, got {self.from_seq} to "
                f"{self.to_seq} by {self.block}"
            )
        expected = list(_block_ends(self.from_seq, self.to_seq, self.block))
        if [place.stream_seq for place in self.places] != expected:
            raise Malformed("expected one place for each block that ends in the range, got others")

    def at(self, stream_seq: int) -> FoldPlace | None:
        return next((place for place in self.places if place.stream_seq == stream_seq), None)

    def start_of(self, stream_seq: int) -> tuple[int, int]:
        """Where to start reading to reach an entry: the first stream_seq there, and its offset."""
        earlier = [place for place in self.places if place.stream_seq < stream_seq]
        if not earlier:
            return self.from_seq, 0
        return earlier[-1].stream_seq + 1, earlier[-1].offset + earlier[-1].size


def scan(window: Window, label: bytes, run: SeqRun, block: int, limits: Limits) -> FoldPlaces:
    """Compute the places of a chunk with the entries of ``run``, from its headers."""
    expected, places = run.from_seq, []
    for offset, header in headers(window, limits):
        if (header.label, header.stream_seq) != (label, expected):
            raise Malformed(f"expected entry {expected}, got {header.stream_seq} at byte {offset}")
        if expected % block == 0:
            places.append(FoldPlace(stream_seq=expected, offset=offset, size=header.whole_size))
        expected += 1
    if expected != run.to_seq + 1:
        raise Malformed(f"expected entries up to {run.to_seq}, got them up to {expected - 1}")
    return FoldPlaces(
        label=label, from_seq=run.from_seq, to_seq=run.to_seq, block=block, places=tuple(places)
    )


def _block_ends(from_seq: int, to_seq: int, block: int) -> range:
    return range(-(-from_seq // block) * block, to_seq + 1, block)
