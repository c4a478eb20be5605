"""A hub's data directory as read for an archive: beside a running hub, without taking its lock.

Sealed files never change. The open chunk grows and may be sealed during the read; a reader that
misses a file lists the directory again. Entries without a receipt are not read: the hub may still
roll them back when its disk is full. Chunk files are read entry by entry in bounded memory
(spec 4.8.1).
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from io import BufferedReader
from itertools import takewhile
from pathlib import Path
from typing import Protocol

from recorder.archive.manifest import ArchivedFile, ArchivedSegment, TailSegment
from veen.audit.context import Stock, take_inventory
from veen.checkpoint import Checkpoint
from veen.errors import Malformed, Untrusted, VeenError
from veen.hub_identity import CheckpointBinding, HubIdentity, whole_bindings
from veen.limits import ENTRY_HEADER_BYTES, Limits
from veen.log import layout
from veen.log.checkpoint_index import decode_growing
from veen.log.chunk import CheckpointRef, Tombstone
from veen.log.entry import Entry, EntryHeader, FramedEntry, open_entry
from veen.log.layout import ChunkName, OpenChunkName, leaf_file, tombstone_file, unpack_leaves
from veen.objects.port import PIECE, digest_of
from veen.system import durable
from veen.wire import cbor


@dataclass(frozen=True, slots=True)
class EntryFrame:
    """A complete entry: its position, its end in the file, and the hub_ts of its receipt."""

    stream_seq: int
    end: int
    hub_ts: int


def walk_frames(
    file: BufferedReader, label: bytes, start_seq: int, limits: Limits
) -> Iterator[EntryFrame]:
    """Yield the entries up to the first that is incomplete or out of sequence."""
    end, seq = 0, start_seq
    file.seek(0)
    while True:
        try:
            entry = _read(file, limits)
        except Malformed:
            return
        if (entry.header.label, entry.header.stream_seq) != (label, seq):
            return
        end, seq = end + entry.header.whole_size, seq + 1
        yield EntryFrame(entry.header.stream_seq, end, entry.receipt.hub_ts)


def frame_ends(frames: Iterator[EntryFrame]) -> tuple[EntryFrame | None, EntryFrame | None]:
    """Return the first and the last frame."""
    first = last = next(frames, None)
    for frame in frames:
        last = frame
    return first, last


def copy_frames(file: BufferedReader, size: int, to: Path) -> bytes:
    """Copy the first ``size`` bytes; return their SHA-256."""
    file.seek(0)
    with to.open("w+b") as target:
        while size > 0 and (piece := file.read(min(size, PIECE))):
            target.write(piece)
            size -= len(piece)
        target.flush()
        return digest_of(target)


def begins_with_frames(path: Path, size: int, sha256: bytes, scratch: Path) -> bool:
    """Whether the first ``size`` bytes of a file have this SHA-256."""
    with path.open("rb") as file:
        return frame_size(file) >= size and copy_frames(file, size, scratch) == sha256


def frame_size(file: BufferedReader) -> int:
    return os.fstat(file.fileno()).st_size


def _read(file: BufferedReader, limits: Limits) -> FramedEntry:
    header = EntryHeader.read(file.read(ENTRY_HEADER_BYTES), 0, limits)
    entry = Entry(file.read(header.msg_len), file.read(header.receipt_len))
    if entry.entry_hash() != header.entry_hash:
        raise Malformed("an entry is truncated or changed: its hash differs")
    return open_entry(header, entry)


Place = tuple[bytes, int]
"""A label, and the tree size of one of its checkpoints."""


@dataclass(frozen=True, slots=True)
class Documents:
    """The identity documents as read at one time, verified against each other."""

    identity: HubIdentity
    identity_raw: bytes
    signature: bytes
    key_map: bytes


@dataclass(frozen=True, slots=True)
class Moment:
    """A snapshot of the log: its names, the sizes of open chunks, and their latest hub_ts."""

    names: frozenset[str]
    sizes: tuple[tuple[OpenChunkName, int], ...]
    last_ts: int


class DirectoryChanged(VeenError):
    """The directory changed while it was read: retry."""

    error_code = "MOVED"


class RunningHub(Protocol):
    """Port to the hub of a directory."""

    def acknowledged(self, label: bytes) -> int:
        """The last stream_seq for which it may have issued a receipt; it never rolls those back."""

    def is_running(self) -> bool:
        """Whether it may be writing now.

        Entries left by a stopped hub are final: the next start does not roll them back.
        """


class StoppedHub:
    """A hub that is not running."""

    def acknowledged(self, label: bytes) -> int:  # noqa: ARG002 - named by the protocol
        return 0

    def is_running(self) -> bool:
        return False


class PushSource:
    def __init__(self, root: Path, limits: Limits, hub: RunningHub | None = None) -> None:
        self.root = root
        self._limits = limits
        self._hub = hub or StoppedHub()
        self._bindings: dict[Place, bytes] = {}

    def documents(self) -> Documents:
        raw = self._document(layout.IDENTITY)
        signature, key_map = self._document(layout.IDENTITY_SIG), self._document(layout.KEY_MAP)
        identity = HubIdentity.decode(raw)
        identity.verify(signature)
        if key_map != cbor.dump([[key.key_id, key.hub_pk] for key in identity.hub_keys]):
            raise Untrusted(f"{layout.KEY_MAP} does not match {layout.IDENTITY}")
        return Documents(identity, raw, signature, key_map)

    def inventory(self) -> Stock:
        return take_inventory(self._names())

    def moment(self) -> Moment:
        """Take a snapshot of the log; later entries have no earlier hub_ts."""
        names = self._names()
        chunks = sorted(name for name in map(layout.parse_open_chunk, names) if name is not None)
        last_frames = [(chunk, self._last_frame(chunk)) for chunk in chunks]
        sizes = tuple((chunk, last.end if last else 0) for chunk, last in last_frames)
        last_ts = max((last.hub_ts for _, last in last_frames if last), default=0)
        return Moment(frozenset(names), sizes, last_ts)

    def recorder_names(self) -> list[str]:
        """The recorder checkpoints that are durable."""
        folder = self.root / layout.RECORDER
        if not folder.is_dir():
            return []
        names = [f"{layout.RECORDER}/{path.name}" for path in folder.iterdir()]
        durable.sync_directory(folder)
        return [name for name in names if layout.parse_recorder_checkpoint(name)]

    def piece(self, name: str) -> ArchivedFile:
        with (self.root / name).open("rb") as file:
            return ArchivedFile(name=name, size=frame_size(file), sha256=digest_of(file))

    def segment(self, name: ChunkName) -> ArchivedSegment:
        """Describe a sealed chunk after walking all its frames.

        An audit verifies their contents.
        """
        with (self.root / layout.chunk(name)).open("rb") as file:
            size = frame_size(file)
            first, last = frame_ends(walk_frames(file, name.label, name.start_seq, self._limits))
            if first is None or last is None or (last.stream_seq, last.end) != (name.end_seq, size):
                raise Untrusted(
                    f"{layout.chunk(name)} is damaged, or is not the chunk of its name; nothing "
                    "of it was "
                    "archived; run veen hub verify"
                )
            chunk = ArchivedFile(name=layout.chunk(name), size=size, sha256=digest_of(file))
        return self._segment(name, (first.hub_ts, last.hub_ts), chunk, is_pruned=False)

    def pruned_segment(self, name: ChunkName) -> ArchivedSegment:
        """Describe a chunk that was pruned before it was archived, by its tombstone."""
        tombstone = Tombstone.decode(self._bytes(tombstone_file(name)))
        leaves = unpack_leaves(self._bytes(leaf_file(name)), name)
        chunk = ArchivedFile(
            name=layout.chunk(name), size=tombstone.chunk_bytes, sha256=tombstone.chunk_sha256
        )
        return self._segment(name, (leaves[0].hub_ts, leaves[-1].hub_ts), chunk, is_pruned=True)

    def tail(self, name: OpenChunkName, to: Path, archived: int = 0) -> TailSegment | None:
        """Copy the complete entries of an open chunk that the hub cannot roll back; None without
        any. Those up to ``archived`` are known to be final."""
        reached = max(archived, self._hub.acknowledged(name.label))
        with (self.root / layout.open_chunk(name)).open("rb") as file:
            first, last = self._ends(file, name, reached)
            if first is None or last is None:
                return None
            # Entries that a power failure can still undo must not be archived.
            durable.sync(file.fileno())
            digest = copy_frames(file, last.end, to)
            if frame_size(file) < last.end:
                raise DirectoryChanged(f"{layout.open_chunk(name)} was cut while it was read")
        return TailSegment(
            start_seq=name.start_seq,
            end_seq=last.stream_seq,
            first_ts=first.hub_ts,
            last_ts=last.hub_ts,
            size=last.end,
            sha256=digest,
        )

    def index(self, label: bytes) -> dict[int, CheckpointRef]:
        """The checkpoint index, which a running hub may be appending to.

        The late lines are read first: a hub that merges them removes them afterwards.
        """
        late = self._bytes_if_present(layout.late_checkpoints(label))
        return decode_growing(self._bytes_if_present(layout.checkpoint_index(label)), late)

    def bound(self, places: set[Place]) -> set[Place]:
        """Filter places by the binding manifest, which is read again when one is not known yet."""
        if not places <= self._bindings.keys():
            self._bindings = {
                (line.label, line.upto_seq): line.encode() for line in self._read_bindings()
            }
        return places & self._bindings.keys()

    def bindings(self, held: set[Place]) -> bytes:
        """The lines of these checkpoints, in the order in which they were written."""
        self.bound(held)
        return b"".join(raw for place, raw in self._bindings.items() if place in held)

    def _read_bindings(self) -> Iterator[CheckpointBinding]:
        path = self.root / layout.CHECKPOINT_BINDING
        return whole_bindings(path.read_bytes() if path.exists() else b"")

    def _last_frame(self, name: OpenChunkName) -> EntryFrame | None:
        reached = self._hub.acknowledged(name.label)
        try:
            with (self.root / layout.open_chunk(name)).open("rb") as file:
                return self._ends(file, name, reached)[1]
        except FileNotFoundError:
            return None

    def _ends(
        self, file: BufferedReader, name: OpenChunkName, reached: int
    ) -> tuple[EntryFrame | None, EntryFrame | None]:
        """The first and the last complete entry; of a running hub, none after ``reached``."""
        first, last = frame_ends(walk_frames(file, name.label, name.start_seq, self._limits))
        if last is None or last.stream_seq <= reached or not self._hub.is_running():
            return first, last
        frames = walk_frames(file, name.label, name.start_seq, self._limits)
        return frame_ends(takewhile(lambda frame: frame.stream_seq <= reached, frames))

    def _segment(
        self, name: ChunkName, times: tuple[int, int], chunk: ArchivedFile, *, is_pruned: bool
    ) -> ArchivedSegment:
        checkpoint = Checkpoint.decode(self._bytes(layout.checkpoint(name.label, name.end_seq)))
        return ArchivedSegment(
            epoch=checkpoint.epoch,
            start_seq=name.start_seq,
            end_seq=name.end_seq,
            first_ts=times[0],
            last_ts=times[1],
            size=chunk.size,
            sha256=chunk.sha256,
            summary_sha256=self.piece(layout.summary(name)).sha256,
            is_pruned=is_pruned,
        )

    def _names(self) -> list[str]:
        try:
            return [f"log/{path.name}" for path in (self.root / "log").iterdir()]
        except FileNotFoundError:
            raise VeenError(
                f"{self.root}: expected a data directory of a hub, got one without a log"
            ) from None

    def _bytes(self, name: str) -> bytes:
        return (self.root / name).read_bytes()

    def _bytes_if_present(self, name: str) -> bytes:
        try:
            return self._bytes(name)
        except FileNotFoundError:
            return b""

    def _document(self, name: str) -> bytes:
        try:
            return self._bytes(name)
        except FileNotFoundError:
            raise VeenError(
                f"{self.root}: {name} is missing: it is not a hub's data directory, or is "
                "incomplete"
            ) from None
