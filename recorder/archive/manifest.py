"""What an archive holds of a hub: a manifest a label, and one over all of them.

Where each object of an archived hub lives, from its contents alone.

A file that never changes keeps the name it has in the data directory. What changes there - the
identity, indexes, manifests - is kept by its hash, and one head names the latest.
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
    hub_id: bytes

    @property
    def prefix(self) -> str:
        return f"hubs/{self.hub_id.hex()}/"

    @property
    def head(self) -> str:
        """The name of the head, apart from the keys of objects."""
        return f"hubs/{self.hub_id.hex()}"

    def file(self, name: str) -> str:
        """An immutable file, by its name in the data directory."""
        return f"{self.prefix}{name}"

    def version(self, sha256: bytes) -> str:
        """A document that is replaced as a whole, by the hash of its bytes."""
        return f"{self.prefix}version/{sha256.hex()}"

    def tail(self, label: bytes, start_seq: int, end_seq: int) -> str:
        """The beginning of a chunk that was still open when it was copied."""
        return f"{self.prefix}tail/chunk-{label.hex()}-{_seq(start_seq)}-{_seq(end_seq)}.open"


def _seq(seq: int) -> str:
    return f"{seq:0{SEQ_DIGITS}d}"


@dataclass(frozen=True, slots=True, kw_only=True)
class ArchivedFile(WireMap):
    """A file that never changes, by its name in the data directory."""

    name: str
    size: int
    sha256: Bytes32


@dataclass(frozen=True, slots=True, kw_only=True)
class ArchivedSegment(WireMap):
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
class TailSegment(WireMap):
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
    segments: tuple[ArchivedSegment, ...]
    pieces: tuple[ArchivedFile, ...]
    root: Bytes32
    index: Bytes32 | None = None
    tail: TailSegment | None = None

    def rule(self) -> None:
        self._refuse_strange_names()
        self._refuse_disorder()
        if self.root != manifest_root(self.label, (segment.key for segment in self.segments)):
            raise Malformed("the root is not that of the segments")

    def _refuse_strange_names(self) -> None:
        """A name becomes a path: it must be that of a file of this label."""
        names = [piece.name for piece in self.pieces]
        if names != sorted(set(names)):
            raise Malformed("the files of a label are out of order or doubled")
        inventory = take_inventory(names)
        files = inventory.of(self.label)
        is_index = layout.checkpoint_index(self.label) in names
        others = inventory.unknown or inventory.recorder or len(inventory.labels) > 1
        if others or files.chunks or files.opened or is_index:
            raise Malformed("a file that is none of the label's")

    def _refuse_disorder(self) -> None:
        tail = self.tail
        if tail is not None and not self.sealed_seq + 1 == tail.start_seq <= tail.end_seq:
            raise Malformed(
                f"a tail from {tail.start_seq} to {tail.end_seq} after {self.sealed_seq}"
            )
        times = [ts for part in self.parts for ts in (part.first_ts, part.last_ts)]
        if times != sorted(times):
            raise Malformed("the times of a label go back")

    @property
    def parts(self) -> tuple[ArchivedSegment | TailSegment, ...]:
        """All that holds entries, in order."""
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
        """The sizes at which there is a checkpoint."""
        checkpoint_file_names = (layout.parse_checkpoint(piece.name) for piece in self.pieces)
        return {
            checkpoint_file_name.upto_seq
            for checkpoint_file_name in checkpoint_file_names
            if checkpoint_file_name is not None
        }

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
    pieces: tuple[ArchivedFile, ...]

    def rule(self) -> None:
        names = [piece.name for piece in self.pieces]
        if names != sorted(set(names)):
            raise Malformed("recorder checkpoints out of order or doubled")
        if not all(layout.parse_recorder_checkpoint(name) for name in names):
            raise Malformed("a file that is no recorder checkpoint")

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
        names = [label.label for label in self.labels]
        if names != sorted(set(names)):
            raise Malformed("labels unsorted or doubled")

    def ref(self, label: bytes) -> LabelRef | None:
        return next((item for item in self.labels if item.label == label), None)
