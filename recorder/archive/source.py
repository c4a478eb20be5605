"""A hub's data directory as an archive reads it: beside a running hub, without its lock.

Sealed files never change. The open chunk grows, and may be sealed while we look: whoever misses
a file takes stock again. Its last entries may be taken back while they have no receipt yet, since
the hub finds no room for its index: they are not read before they have one.

The entries of a chunk file, one after another in bounded memory (spec 4.8.1).
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
from veen.hub_identity import CheckpointBinding, HubIdentity
from veen.limits import ENTRY_HEADER_BYTES, Limits
from veen.log import layout
from veen.log.chunk import CheckpointRef, Tombstone, decode_checkpoint_index
from veen.log.entry import Entry, EntryHeader, FramedEntry, open_entry
from veen.log.layout import ChunkName, OpenChunkName, leaf_file, tombstone_file, unpack_leaves
from veen.objects.port import PIECE, digest_of
from veen.system import durable
from veen.wire import cbor


@dataclass(frozen=True, slots=True)
class EntryFrame:
    """A whole entry: its place, where it ends in its file, and the hub_ts of its receipt."""

    stream_seq: int
    end: int
    hub_ts: int


def walk_frames(
    file: BufferedReader, label: bytes, start_seq: int, limits: Limits
) -> Iterator[EntryFrame]:
    """The entries up to the first that is not whole or not next in line."""
    end, seq = 0, start_seq
    file.seek(0)
    while True:
        try:
            result = _read(file, limits)
        except Malformed:
            return
        if (result.header.label, result.header.stream_seq) != (label, seq):
            return
        end, seq = end + result.header.whole_size, seq + 1
        yield EntryFrame(result.header.stream_seq, end, result.receipt.hub_ts)


def frame_ends(frames: Iterator[EntryFrame]) -> tuple[EntryFrame | None, EntryFrame | None]:
    """The first and the last."""
    first = last = next(frames, None)
    for frame in frames:
        last = frame
    return first, last


def copy_frames(file: BufferedReader, size: int, to: Path) -> bytes:
    """Copy the first ``size`` bytes; their SHA-256."""
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
        raise Malformed("an entry that is cut short or changed")
    return open_entry(header, entry)


Place = tuple[bytes, int]
"""A label, and the size at which it has a checkpoint."""


@dataclass(frozen=True, slots=True)
class Documents:
    """The identity artefacts as they stood when they were read, checked against each other."""

    identity: HubIdentity
    identity_raw: bytes
    signature: bytes
    key_map: bytes


@dataclass(frozen=True, slots=True)
class Moment:
    """What the log looked like: its names, the sizes of open chunks, and their latest hub_ts."""

    names: frozenset[str]
    sizes: tuple[tuple[OpenChunkName, int], ...]
    last_ts: int


class DirectoryChanged(VeenError):
    """The directory changed under the one who reads it: look again."""


class RunningHub(Protocol):
    """The hub of a directory."""

    def acknowledged(self, label: bytes) -> int:
        """The last stream_seq for which it may have given a receipt; it takes back none of them."""

    def is_running(self) -> bool:
        """Whether it may be writing now. What a hub that ended has left, the next one keeps."""


class StoppedHub:
    """A hub that does not run."""

    def acknowledged(self, label: bytes) -> int:  # noqa: ARG002 - the protocol's word
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
        """How the log stands now; entries that come later have no earlier hub_ts."""
        names = self._names()
        opened = sorted(item for item in map(layout.parse_open_chunk, names) if item is not None)
        result = [self._glance(item) for item in opened]
        sizes = tuple((item, last.end if last else 0) for item, last in result)
        last_ts = max((last.hub_ts for _, last in result if last), default=0)
        return Moment(frozenset(names), sizes, last_ts)

    def recorder_names(self) -> list[str]:
        """The recorder checkpoints that no power cut can take back any more."""
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
        """A sealed chunk, its frames walked to their end; what they say is for an audit."""
        with (self.root / layout.chunk(name)).open("rb") as file:
            size = frame_size(file)
            first, last = frame_ends(walk_frames(file, name.label, name.start_seq, self._limits))
            if first is None or last is None or (last.stream_seq, last.end) != (name.end_seq, size):
                raise Untrusted(
                    f"{layout.chunk(name)} is damaged or not what its name says: "
                    "run `veen hub verify`; nothing of it was archived"
                )
            chunk = ArchivedFile(name=layout.chunk(name), size=size, sha256=digest_of(file))
        return self._segment(name, (first.hub_ts, last.hub_ts), chunk, is_pruned=False)

    def pruned_segment(self, name: ChunkName) -> ArchivedSegment:
        """A chunk that retention took before it was archived: its tombstone tells what it was."""
        tombstone = Tombstone.decode(self._bytes(tombstone_file(name)))
        left = unpack_leaves(self._bytes(leaf_file(name)), name)
        gone = ArchivedFile(
            name=layout.chunk(name), size=tombstone.chunk_bytes, sha256=tombstone.chunk_sha256
        )
        return self._segment(name, (left[0].hub_ts, left[-1].hub_ts), gone, is_pruned=True)

    def tail(self, name: OpenChunkName, to: Path, archived: int = 0) -> TailSegment | None:
        """The whole entries of an open chunk that no hub takes back, copied; None while it has
        none. Those up to ``archived`` are known to stay."""
        reached = max(archived, self._hub.acknowledged(name.label))
        with (self.root / layout.open_chunk(name)).open("rb") as file:
            first, last = self._ends(file, name, reached)
            if first is None or last is None:
                return None
            # What a power cut can still take back must not stand in an archive.
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
        try:
            return decode_checkpoint_index(self._bytes(layout.checkpoint_index(label)))
        except FileNotFoundError:
            return {}

    def bound(self, places: set[Place]) -> set[Place]:
        """Those that the binding manifest names; it is read again when one is not known yet."""
        if not places <= self._bindings.keys():
            self._bindings = {
                (line.label, line.upto_seq): line.encode() for line in self._read_bindings()
            }
        return places & self._bindings.keys()

    def bindings(self, held: set[Place]) -> bytes:
        """The lines of these checkpoints, in the order in which they were made."""
        self.bound(held)
        return b"".join(raw for place, raw in self._bindings.items() if place in held)

    def _read_bindings(self) -> Iterator[CheckpointBinding]:
        path = self.root / layout.CHECKPOINT_BINDING
        return bindings(path.read_bytes() if path.exists() else b"")

    def _glance(self, name: OpenChunkName) -> tuple[OpenChunkName, EntryFrame | None]:
        reached = self._hub.acknowledged(name.label)
        try:
            with (self.root / layout.open_chunk(name)).open("rb") as file:
                return name, self._ends(file, name, reached)[1]
        except FileNotFoundError:
            return name, None

    def _ends(
        self, file: BufferedReader, name: OpenChunkName, reached: int
    ) -> tuple[EntryFrame | None, EntryFrame | None]:
        """The first and the last whole entry; beside a running hub, none after ``reached``."""
        first, last = frame_ends(walk_frames(file, name.label, name.start_seq, self._limits))
        if last is None or last.stream_seq <= reached or not self._hub.is_running():
            return first, last
        frames = walk_frames(file, name.label, name.start_seq, self._limits)
        return frame_ends(takewhile(lambda item: item.stream_seq <= reached, frames))

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
            raise VeenError(f"{self.root} is not a data directory: it has no log") from None

    def _bytes(self, name: str) -> bytes:
        return (self.root / name).read_bytes()

    def _document(self, name: str) -> bytes:
        try:
            return self._bytes(name)
        except FileNotFoundError:
            raise VeenError(f"{self.root} has no {name}: it is not a hub's, or not whole") from None


def bindings(raw: bytes) -> Iterator[CheckpointBinding]:
    """The whole lines of a binding manifest."""
    at = 0
    while at < len(raw):
        try:
            end = cbor.skip(raw, at)
            line = CheckpointBinding.decode(raw[at:end])
        except Malformed:
            return
        yield line
        at = end
