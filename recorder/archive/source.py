"""A hub's data directory as an archive reads it: beside a running hub, without its lock.

Sealed files never change. The open chunk grows, and may be sealed while we look: whoever misses
a file takes stock again. Its last entries may be taken back while they have no receipt yet, since
the hub finds no room for its index: they are not read before they have one.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from io import BufferedReader
from itertools import takewhile
from pathlib import Path
from typing import Protocol

from recorder.archive import frames
from recorder.archive.manifest import Piece, Segment, Tail
from veen import cbor, checkpoint_index, durable, layout
from veen.audit import leaves
from veen.audit.stock import Stock, take_stock
from veen.checkpoint import Checkpoint
from veen.errors import Malformed, Untrusted, VeenError
from veen.hub_identity import CheckpointBinding, HubIdentity
from veen.layout import ChunkName, OpenChunkName
from veen.limits import Limits
from veen.objects.body import digest_of
from veen.tombstone import Tombstone

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


class Moved(VeenError):
    """The directory changed under the one who reads it: look again."""


class Writer(Protocol):
    """The hub of a directory."""

    def acknowledged(self, label: bytes) -> int:
        """The last stream_seq for which it may have given a receipt; it takes back none of them."""

    def is_running(self) -> bool:
        """Whether it may be writing now. What a hub that ended has left, the next one keeps."""


class Stopped:
    """A hub that does not run."""

    def acknowledged(self, label: bytes) -> int:  # noqa: ARG002 - the protocol's word
        return 0

    def is_running(self) -> bool:
        return False


class Source:
    def __init__(self, root: Path, limits: Limits, hub: Writer | None = None) -> None:
        self.root = root
        self._limits = limits
        self._hub = hub or Stopped()
        self._bindings: dict[Place, bytes] = {}

    def documents(self) -> Documents:
        raw = self._document(layout.IDENTITY)
        signature, key_map = self._document(layout.IDENTITY_SIG), self._document(layout.KEY_MAP)
        identity = HubIdentity.decode(raw)
        identity.verify(signature)
        if key_map != cbor.dump([[key.key_id, key.hub_pk] for key in identity.hub_keys]):
            raise Untrusted(f"{layout.KEY_MAP} does not match {layout.IDENTITY}")
        return Documents(identity, raw, signature, key_map)

    def stock(self) -> Stock:
        return take_stock(self._names())

    def moment(self) -> Moment:
        """How the log stands now; entries that come later have no earlier hub_ts."""
        names = self._names()
        opened = sorted(one for one in map(layout.parse_open_chunk, names) if one is not None)
        found = [self._glance(one) for one in opened]
        sizes = tuple((one, last.end if last else 0) for one, last in found)
        last_ts = max((last.hub_ts for _, last in found if last), default=0)
        return Moment(frozenset(names), sizes, last_ts)

    def recorder_names(self) -> list[str]:
        """The recorder checkpoints that no power cut can take back any more."""
        folder = self.root / layout.RECORDER
        if not folder.is_dir():
            return []
        names = [f"{layout.RECORDER}/{path.name}" for path in folder.iterdir()]
        durable.sync_directory(folder)
        return [name for name in names if layout.parse_recorder_checkpoint(name)]

    def piece(self, name: str) -> Piece:
        with (self.root / name).open("rb") as file:
            return Piece(name=name, size=frames.size_of(file), sha256=digest_of(file))

    def segment(self, name: ChunkName) -> Segment:
        """A sealed chunk, its frames walked to their end; what they say is for an audit."""
        with (self.root / layout.chunk(name)).open("rb") as file:
            size = frames.size_of(file)
            first, last = frames.ends(frames.walk(file, name.label, name.start_seq, self._limits))
            if first is None or last is None or (last.stream_seq, last.end) != (name.end_seq, size):
                raise Untrusted(
                    f"{layout.chunk(name)} is damaged or not what its name says: "
                    "run `veen hub verify`; nothing of it was archived"
                )
            chunk = Piece(name=layout.chunk(name), size=size, sha256=digest_of(file))
        return self._segment(name, (first.hub_ts, last.hub_ts), chunk, is_pruned=False)

    def pruned_segment(self, name: ChunkName) -> Segment:
        """A chunk that retention took before it was archived: its tombstone tells what it was."""
        tomb = Tombstone.decode(self._bytes(leaves.tombstone(name)))
        left = leaves.unpack(self._bytes(leaves.leaves(name)), name)
        gone = Piece(name=layout.chunk(name), size=tomb.chunk_bytes, sha256=tomb.chunk_sha256)
        return self._segment(name, (left[0].hub_ts, left[-1].hub_ts), gone, is_pruned=True)

    def tail(self, name: OpenChunkName, to: Path, archived: int = 0) -> Tail | None:
        """The whole entries of an open chunk that no hub takes back, copied; None while it has
        none. Those up to ``archived`` are known to stay."""
        reached = max(archived, self._hub.acknowledged(name.label))
        with (self.root / layout.open_chunk(name)).open("rb") as file:
            first, last = self._ends(file, name, reached)
            if first is None or last is None:
                return None
            # What a power cut can still take back must not stand in an archive.
            durable.sync(file.fileno())
            digest = frames.copy(file, last.end, to)
            if frames.size_of(file) < last.end:
                raise Moved(f"{layout.open_chunk(name)} was cut while it was read")
        return Tail(
            start_seq=name.start_seq,
            end_seq=last.stream_seq,
            first_ts=first.hub_ts,
            last_ts=last.hub_ts,
            size=last.end,
            sha256=digest,
        )

    def index(self, label: bytes) -> dict[int, checkpoint_index.CheckpointRef]:
        try:
            return checkpoint_index.decode(self._bytes(layout.checkpoint_index(label)))
        except FileNotFoundError:
            return {}

    def bound(self, wanted: set[Place]) -> set[Place]:
        """Those that the binding manifest names; it is read again when one is not known yet."""
        if not wanted <= self._bindings.keys():
            self._bindings = {
                (line.label, line.upto_seq): line.encode() for line in self._read_bindings()
            }
        return wanted & self._bindings.keys()

    def bindings(self, held: set[Place]) -> bytes:
        """The lines of these checkpoints, in the order in which they were made."""
        self.bound(held)
        return b"".join(raw for place, raw in self._bindings.items() if place in held)

    def _read_bindings(self) -> Iterator[CheckpointBinding]:
        path = self.root / layout.CHECKPOINT_BINDING
        return bindings(path.read_bytes() if path.exists() else b"")

    def _glance(self, name: OpenChunkName) -> tuple[OpenChunkName, frames.Frame | None]:
        reached = self._hub.acknowledged(name.label)
        try:
            with (self.root / layout.open_chunk(name)).open("rb") as file:
                return name, self._ends(file, name, reached)[1]
        except FileNotFoundError:
            return name, None

    def _ends(
        self, file: BufferedReader, name: OpenChunkName, reached: int
    ) -> tuple[frames.Frame | None, frames.Frame | None]:
        """The first and the last whole entry; beside a running hub, none after ``reached``."""
        first, last = frames.ends(frames.walk(file, name.label, name.start_seq, self._limits))
        if last is None or last.stream_seq <= reached or not self._hub.is_running():
            return first, last
        found = frames.walk(file, name.label, name.start_seq, self._limits)
        return frames.ends(takewhile(lambda one: one.stream_seq <= reached, found))

    def _segment(
        self, name: ChunkName, times: tuple[int, int], chunk: Piece, *, is_pruned: bool
    ) -> Segment:
        checkpoint = Checkpoint.decode(self._bytes(layout.checkpoint(name.label, name.end_seq)))
        return Segment(
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
