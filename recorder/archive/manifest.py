"""The manifests of an archived hub, one a label and one for the hub, and the keys of its objects.

An immutable file keeps the name it has in the data directory. What changes there (the identity,
indexes, manifests) is stored under its hash, and one head names the latest manifest.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from veen.audit.context import take_inventory
from veen.errors import Malformed
from veen.log import layout
from veen.log.chunk import SegmentKey, manifest_root
from veen.log.layout import SEQ_DIGITS, ChunkName
from veen.wire.objects import WireMap
from veen.wire.schema import Bytes32, Version


@dataclass(frozen=True, slots=True)
class ArchiveKeys:
    """The keys of the objects of an archived hub."""

    hub_id: bytes

    @property
    def prefix(self) -> str:
        return f"hubs/{self.hub_id.hex()}/"

    @property
    def head(self) -> str:
        """The name of the head, which is not an object key."""
        return f"hubs/{self.hub_id.hex()}"

    def file(self, name: str) -> str:
        """An immutable file, by its name in the data directory."""
        return f"{self.prefix}{name}"

    def version(self, sha256: bytes) -> str:
        """A document that is replaced as a whole, by its hash."""
        return f"{self.prefix}version/{sha256.hex()}"

    def tail(self, label: bytes, start_seq: int, end_seq: int) -> str:
        """The entries of a chunk that was open when it was copied."""
        return f"{self.prefix}tail/chunk-{label.hex()}-{_seq(start_seq)}-{_seq(end_seq)}.open"


def _seq(seq: int) -> str:
    return f"{seq:0{SEQ_DIGITS}d}"


@dataclass(frozen=True, slots=True, kw_only=True)
class ArchivedFile(WireMap):
    """An immutable file, by its name in the data directory."""

    name: str
    size: int
    sha256: Bytes32


@dataclass(frozen=True, slots=True, kw_only=True)
class ArchivedSegment(WireMap):
    """A sealed chunk; the hub_ts of its first and last entry select it for a time window."""

    epoch: int
    start_seq: int
    end_seq: int
    first_ts: int
    last_ts: int
    size: int
    sha256: Bytes32
    summary_sha256: Bytes32
    is_pruned: bool
    """Whether retention pruned the chunk before it was archived."""

    @property
    def key(self) -> SegmentKey:
        return SegmentKey(self.epoch, self.start_seq, self.end_seq, self.summary_sha256)

    def name(self, label: bytes) -> ChunkName:
        return ChunkName(label, self.start_seq, self.end_seq)


@dataclass(frozen=True, slots=True, kw_only=True)
class TailSegment(WireMap):
    """The complete entries of an open chunk, from start_seq to end_seq."""

    start_seq: int
    end_seq: int
    first_ts: int
    last_ts: int
    size: int
    sha256: Bytes32


@dataclass(frozen=True, slots=True, kw_only=True)
class LabelManifest(WireMap):
    """The objects of a label; ``index`` is the hash of its checkpoint index, where it has one."""

    ver: Version = 1
    label: Bytes32
    segments: tuple[ArchivedSegment, ...]
    pieces: tuple[ArchivedFile, ...]
    root: Bytes32
    index: Bytes32 | None = None
    tail: TailSegment | None = None

    def rule(self) -> None:
        self._verify_names()
        self._verify_order()
        if self.root != manifest_root(self.label, (segment.key for segment in self.segments)):
            raise Malformed("label manifest: root is not that of its segments")

    def _verify_names(self) -> None:
        """A name becomes a path, so it must be that of a file of this label."""
        names = [piece.name for piece in self.pieces]
        if names != sorted(set(names)):
            raise Malformed("label manifest: expected file names sorted and unique")
        inventory = take_inventory(names)
        files = inventory.of(self.label)
        is_index = layout.checkpoint_index(self.label) in names
        others = inventory.unknown or inventory.recorder or len(inventory.labels) > 1
        if others or files.chunks or files.opened or is_index:
            raise Malformed("label manifest: got a file that is not of the label")

    def _verify_order(self) -> None:
        tail = self.tail
        if tail is not None and not self.sealed_seq + 1 == tail.start_seq <= tail.end_seq:
            raise Malformed(
                f"label manifest: expected a tail from {self.sealed_seq + 1} on, got "
                f"{tail.start_seq} to {tail.end_seq}"
            )
        times = [ts for part in self.parts for ts in (part.first_ts, part.last_ts)]
        if times != sorted(times):
            raise Malformed("label manifest: hub times decrease")

    @property
    def parts(self) -> tuple[ArchivedSegment | TailSegment, ...]:
        """Everything that holds entries, in order."""
        return self.segments if self.tail is None else (*self.segments, self.tail)

    @property
    def last_ts(self) -> int:
        return self.parts[-1].last_ts if self.parts else 0

    @property
    def stored_bytes(self) -> int:
        stored = [segment.size for segment in self.segments if not segment.is_pruned]
        return (
            sum(stored)
            + sum(piece.size for piece in self.pieces)
            + (self.tail.size if self.tail else 0)
        )

    def checkpoints(self) -> set[int]:
        """The tree sizes of the archived checkpoints."""
        names = (layout.parse_checkpoint(piece.name) for piece in self.pieces)
        return {name.upto_seq for name in names if name is not None}

    @property
    def sealed_seq(self) -> int:
        return self.segments[-1].end_seq if self.segments else 0

    @property
    def end_seq(self) -> int:
        return self.tail.end_seq if self.tail else self.sealed_seq


@dataclass(frozen=True, slots=True, kw_only=True)
class RecorderManifest(WireMap):
    """The recorder checkpoints, sorted by name, which is by time."""

    ver: Version = 1
    pieces: tuple[ArchivedFile, ...]

    def rule(self) -> None:
        names = [piece.name for piece in self.pieces]
        if names != sorted(set(names)):
            raise Malformed("recorder manifest: expected file names sorted and unique")
        if not all(layout.parse_recorder_checkpoint(name) for name in names):
            raise Malformed("recorder manifest: got a file that is not a recorder checkpoint")

    @property
    def last_ts(self) -> int:
        last = layout.parse_recorder_checkpoint(self.pieces[-1].name) if self.pieces else None
        return last.created_at if last else 0

    @property
    def stored_bytes(self) -> int:
        return sum(piece.size for piece in self.pieces)


NO_DOCUMENTS: Final = RecorderManifest(pieces=())


@dataclass(frozen=True, slots=True, kw_only=True)
class LabelRef(WireMap):
    label: Bytes32
    end_seq: int
    sha256: Bytes32


@dataclass(frozen=True, slots=True, kw_only=True)
class ArchiveManifest(WireMap):
    """A state of the archive; ``previous`` is the hash of the state before it.

    Labels are copied in sequence. When the hub wrote meanwhile, some may lack entries from the
    hub_ts ``unsettled_from`` on; before it, the archive is a consistent prefix of the hub.
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
    """The hash of the RecorderManifest, if there are recorder checkpoints."""

    def rule(self) -> None:
        names = [label.label for label in self.labels]
        if names != sorted(set(names)):
            raise Malformed("archive manifest: expected labels sorted and unique")

    def ref(self, label: bytes) -> LabelRef | None:
        return next((ref for ref in self.labels if ref.label == label), None)
