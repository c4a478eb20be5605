"""What an archive holds of a hub: a manifest a label, and one over all of them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from veen import layout
from veen.audit.stock import take_stock
from veen.errors import Malformed
from veen.layout import ChunkName
from veen.manifest import SegmentKey, manifest_root
from veen.schema import Bytes32, Version
from veen.wire import WireMap


@dataclass(frozen=True, slots=True, kw_only=True)
class Piece(WireMap):
    """A file that never changes, by its name in the data directory."""

    name: str
    size: int
    sha256: Bytes32


@dataclass(frozen=True, slots=True, kw_only=True)
class Segment(WireMap):
    """A sealed chunk; hub_ts of its ends tells which chunks a time window needs."""

    epoch: int
    start_seq: int
    end_seq: int
    first_ts: int
    last_ts: int
    size: int
    sha256: Bytes32
    summary_sha256: Bytes32
    is_pruned: bool
    """Whether retention had taken the chunk before anyone archived it."""

    @property
    def key(self) -> SegmentKey:
        return SegmentKey(self.epoch, self.start_seq, self.end_seq, self.summary_sha256)

    def name(self, label: bytes) -> ChunkName:
        return ChunkName(label, self.start_seq, self.end_seq)


@dataclass(frozen=True, slots=True, kw_only=True)
class Tail(WireMap):
    """The whole entries of the chunk that was open, from start_seq to end_seq."""

    start_seq: int
    end_seq: int
    first_ts: int
    last_ts: int
    size: int
    sha256: Bytes32


@dataclass(frozen=True, slots=True, kw_only=True)
class LabelManifest(WireMap):
    """``index`` is the hash of the label's checkpoint index, where it has one."""

    ver: Version = 1
    label: Bytes32
    segments: tuple[Segment, ...]
    pieces: tuple[Piece, ...]
    root: Bytes32
    index: Bytes32 | None = None
    tail: Tail | None = None

    def rule(self) -> None:
        self._refuse_strange_names()
        self._refuse_disorder()
        if self.root != manifest_root(self.label, (one.key for one in self.segments)):
            raise Malformed("the root is not that of the segments")

    def _refuse_strange_names(self) -> None:
        """A name becomes a path: it must be that of a file of this label."""
        names = [one.name for one in self.pieces]
        if names != sorted(set(names)):
            raise Malformed("the files of a label are out of order or doubled")
        stock = take_stock(names)
        files = stock.of(self.label)
        is_index = layout.checkpoint_index(self.label) in names
        others = stock.unknown or stock.recorder or len(stock.labels) > 1
        if others or files.chunks or files.opened or is_index:
            raise Malformed("a file that is none of the label's")

    def _refuse_disorder(self) -> None:
        tail = self.tail
        if tail is not None and not self.sealed_seq + 1 == tail.start_seq <= tail.end_seq:
            raise Malformed(
                f"a tail from {tail.start_seq} to {tail.end_seq} after {self.sealed_seq}"
            )
        times = [ts for one in self.parts for ts in (one.first_ts, one.last_ts)]
        if times != sorted(times):
            raise Malformed("the times of a label go back")

    @property
    def parts(self) -> tuple[Segment | Tail, ...]:
        """All that holds entries, in order."""
        return self.segments if self.tail is None else (*self.segments, self.tail)

    @property
    def last_ts(self) -> int:
        return self.parts[-1].last_ts if self.parts else 0

    @property
    def stored_bytes(self) -> int:
        kept = [one.size for one in self.segments if not one.is_pruned]
        return (
            sum(kept) + sum(one.size for one in self.pieces) + (self.tail.size if self.tail else 0)
        )

    def checkpoints(self) -> set[int]:
        """The sizes at which there is a checkpoint."""
        found = (layout.parse_checkpoint(one.name) for one in self.pieces)
        return {one.upto_seq for one in found if one is not None}

    @property
    def sealed_seq(self) -> int:
        return self.segments[-1].end_seq if self.segments else 0

    @property
    def end_seq(self) -> int:
        return self.tail.end_seq if self.tail else self.sealed_seq


@dataclass(frozen=True, slots=True, kw_only=True)
class RecorderManifest(WireMap):
    """The recorder checkpoints, by the order of their names, which is that of their times."""

    ver: Version = 1
    pieces: tuple[Piece, ...]

    def rule(self) -> None:
        names = [one.name for one in self.pieces]
        if names != sorted(set(names)):
            raise Malformed("recorder checkpoints out of order or doubled")
        if not all(layout.parse_recorder_checkpoint(one) for one in names):
            raise Malformed("a file that is no recorder checkpoint")

    @property
    def last_ts(self) -> int:
        last = layout.parse_recorder_checkpoint(self.pieces[-1].name) if self.pieces else None
        return last.created_at if last else 0

    @property
    def stored_bytes(self) -> int:
        return sum(one.size for one in self.pieces)


NO_DOCUMENTS: Final = RecorderManifest(pieces=())


@dataclass(frozen=True, slots=True, kw_only=True)
class LabelRef(WireMap):
    label: Bytes32
    end_seq: int
    sha256: Bytes32


@dataclass(frozen=True, slots=True, kw_only=True)
class ArchiveManifest(WireMap):
    """One state of the archive; ``previous`` is the hash of the one before it.

    Labels are copied one after another. When the hub wrote meanwhile, some may lack entries from
    the hub_ts ``unsettled_from`` on; before it, the archive is a prefix of the whole hub.
    """

    ver: Version = 1
    hub_id: Bytes32
    identity: Bytes32
    identity_sig: Bytes32
    key_map: Bytes32
    binding: Bytes32
    labels: tuple[LabelRef, ...]
    unsettled_from: int | None = None
    escrow: Bytes32 | None = None
    previous: Bytes32 | None = None
    recorder: Bytes32 | None = None
    """The hash of the manifest of the recorder checkpoints, where there are any."""

    def rule(self) -> None:
        names = [one.label for one in self.labels]
        if names != sorted(set(names)):
            raise Malformed("labels unsorted or doubled")

    def ref(self, label: bytes) -> LabelRef | None:
        return next((one for one in self.labels if one.label == label), None)
