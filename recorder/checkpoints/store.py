"""The store of recorder checkpoints, in a directory and in object storage (SDR0 3.2.4).

A checkpoint is written once. Beside it lie its anchor references and the identity of the hub, so
that it can be verified without the hub; proof packages use the same identity. The cadence decides
by time and by volume when the next checkpoint or anchor is due.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Final

from recorder.archive.manifest import ArchiveKeys
from recorder.checkpoints.catalogue import (
    CheckpointCatalogue,
    RecorderCheckpointName,
    files,
    parse_name,
)
from veen import label
from veen.client.session import Session
from veen.errors import Malformed, Untrusted, VeenError
from veen.hub_identity import HubIdentity, followed_identity, new_identity
from veen.log import layout
from veen.objects.port import ObjectStore
from veen.recorder_checkpoint import RecorderCheckpoint
from veen.system import durable, filelock
from veen.wire import cbor
from veen.wire.objects import WireMap
from veen.wire.schema import Version

_MINUTE: Final = 60
_IDENTITY_VERSION_0: Final = "hub-papers.cbor"


@dataclass(frozen=True, slots=True)
class HubPrefix:
    """Keys of a hub's recorder in object storage.

    A checkpoint has the key that ``veen archive push`` gives it, so that a store holds it once.
    """

    hub_id: bytes

    @property
    def earlier_checkpoints(self) -> str:
        """The prefix under which earlier releases stored a second copy of checkpoints."""
        return f"recorder/{self.hub_id.hex()}/checkpoints/"

    @property
    def checkpoints(self) -> str:
        return ArchiveKeys(self.hub_id).file(f"{layout.RECORDER}/")

    def checkpoint(self, name: RecorderCheckpointName) -> str:
        return ArchiveKeys(self.hub_id).file(layout.recorder_checkpoint(name.short))

    def anchors(self, checkpoint_id: bytes) -> str:
        return f"recorder/{self.hub_id.hex()}/anchors/{checkpoint_id.hex()}/"


@dataclass(frozen=True, slots=True)
class CheckpointDirectory:
    """The recorder's directory of checkpoints and anchors.

    ``unstored`` are not yet in object storage.
    """

    root: Path

    @property
    def checkpoints(self) -> Path:
        return self.root / "checkpoints"

    @property
    def unstored(self) -> Path:
        return self.root / "unstored"

    @property
    def anchors(self) -> Path:
        return self.root / "anchors"

    @property
    def tasks(self) -> Path:
        return self.root / "tasks"

    @property
    def catalogue(self) -> CheckpointCatalogue:
        return CheckpointCatalogue(
            self.root / "checkpoints.sqlite", (self.checkpoints, self.unstored), self._lock
        )

    @property
    def _lock(self) -> Path:
        return self.root / "lock"

    def anchors_of(self, checkpoint_id: bytes) -> Path:
        return self.anchors / checkpoint_id.hex()

    def make(self) -> None:
        folders = (self.checkpoints, self.unstored, self.anchors, self.tasks)
        if all(folder.is_dir() for folder in folders):
            return
        for folder in folders:
            durable.make_directory(folder)
        durable.sync_directory(self.root)
        durable.sync_directory(self.root.parent)

    @contextmanager
    def held(self) -> Iterator[None]:
        """Hold the exclusive lock of the directory."""
        self.make()
        with filelock.locked(self._lock):
            yield


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckpointCadence:
    """When a recorder checkpoint is due; 0 disables a measure."""

    every_minutes: int
    every_events: int

    def due(
        self,
        now: int,
        last: RecorderCheckpoint | None,
        heads: Mapping[str, int],
        waited_sec: float = 0,
    ) -> str | None:
        """Return why a checkpoint is due now, or None. ``heads`` is the last stream_seq of each
        stream.

        Without new events none is due. ``waited_sec`` is for how long the last checkpoint has been
        the last by the monotonic clock, since its date may be in the future after a clock error.
        """
        events = new_events(last, heads)
        if last is None:
            return "there is none yet"
        if self.every_events and events >= self.every_events:
            return f"{events} events since the last"
        elapsed = max(now - last.created_at, int(waited_sec))
        if self.every_minutes and events and elapsed >= self.every_minutes * _MINUTE:
            return f"{elapsed // _MINUTE} minutes since the last"
        return None


def new_events(last: RecorderCheckpoint | None, heads: Mapping[str, int]) -> int:
    """Count the events after the last checkpoint, over all streams."""
    ends = {} if last is None else dict(zip(last.names, last.ends, strict=True))
    return sum(
        max(0, seq - (ends[name].last_seq if name in ends else 0)) for name, seq in heads.items()
    )


@dataclass(frozen=True, slots=True)
class Lateness:
    """How many checkpoints and seconds anchoring is behind its cadence."""

    checkpoints: int
    seconds: int

    @property
    def is_late(self) -> bool:
        return bool(self.checkpoints or self.seconds)


@dataclass(frozen=True, slots=True, kw_only=True)
class AnchorCadence:
    """When an anchor is due; 0 disables a measure."""

    every_checkpoints: int
    every_minutes: int

    def lateness(self, now: int, waiting: Sequence[RecorderCheckpointName]) -> Lateness:
        """The lateness given the checkpoints after the last anchored checkpoint, in order of
        time."""
        if not waiting:
            return Lateness(0, 0)
        over = len(waiting) - self.every_checkpoints + 1 if self.every_checkpoints else 0
        limit = self.every_minutes * _MINUTE
        age = now - waiting[0].created_at - limit + 1 if self.every_minutes else 0
        if self.every_minutes and waiting[0].created_at > now + _MINUTE:
            # Dated in the future by a wrong clock: its age is unknown, so it is due now.
            age = 1
        return Lateness(max(0, over), max(0, age))

    def is_due(self, now: int, waiting: Sequence[RecorderCheckpointName]) -> bool:
        return self.lateness(now, waiting).is_late


def store_identity(home: CheckpointDirectory, session: Session) -> HubIdentity:
    """Store the hub's signed identity beside its checkpoints, for offline verification."""
    status = session.api.status()
    identity = followed_identity(session.hub, status.identity())
    with home.held():
        stored = _read(home.root)
        if stored is not None and _is_signed(*stored):
            # The client's state may be older than the identity stored here.
            followed_identity(stored[0], identity)
        if stored != (identity, status.identity_sig):
            # A crash between the two leaves a pair that does not verify; the next run repairs it.
            durable.write(home.root / layout.IDENTITY, identity.encode())
            durable.write(home.root / layout.IDENTITY_SIG, status.identity_sig)
    return identity


def _is_signed(identity: HubIdentity, signature: bytes) -> bool:
    try:
        identity.verify(signature)
    except Untrusted:
        return False
    return True


def read_identity(folder: Path) -> HubIdentity | None:
    """Read and verify the identity in a directory, such as a data directory; None without one."""
    pair = _read(folder)
    if pair is None:
        return None
    identity, signature = pair
    try:
        identity.verify(signature)
    except Untrusted as error:
        raise Untrusted(f"{folder / layout.IDENTITY}: {error}") from error
    return identity


def identity_of_document(document: RecorderCheckpoint, given: HubIdentity | None) -> HubIdentity:
    """Return the identity to verify a document with.

    The hub's first key is enough, being its id.
    """
    if given is not None:
        return given
    if label.hub_id(document.hub_public) != document.hub_id:
        raise Untrusted(
            f"hub {document.hub_id.hex()} signed this with a later key; give a directory with its "
            f"{layout.IDENTITY} and {layout.IDENTITY_SIG} as --identity to verify that key"
        )
    return new_identity(document.hub_public, 0, "")


def _read(folder: Path) -> tuple[HubIdentity, bytes] | None:
    try:
        raw = (folder / layout.IDENTITY).read_bytes()
        signature = (folder / layout.IDENTITY_SIG).read_bytes()
    except FileNotFoundError:
        return None
    try:
        return HubIdentity.decode(raw), signature
    except Malformed as error:
        raise Malformed(f"{folder / layout.IDENTITY}: {error}") from error


class CheckpointStore:
    """The recorder's checkpoints; without ``objects`` they are in this directory only."""

    def __init__(
        self, home: CheckpointDirectory, hub_id: bytes, objects: ObjectStore | None
    ) -> None:
        self.home = home
        self._prefix = HubPrefix(hub_id)
        self._objects = objects

    def put(self, checkpoint: RecorderCheckpoint) -> None:
        """Store a checkpoint here, then in object storage; idempotent.

        When object storage fails, it stays in ``unstored``, and ``settle`` uploads it later.
        """
        name = RecorderCheckpointName.of(checkpoint)
        with self.home.held():
            if not (self.home.checkpoints / name.file).exists():
                folder = self.home.checkpoints if self._objects is None else self.home.unstored
                with self.home.catalogue.changing(name):
                    durable.write_once(folder / name.file, checkpoint.encode())
        self.settle()

    def settle(self) -> int:
        """Upload checkpoints that are not yet in object storage; return how many."""
        if self._objects is None or not files(self.home.unstored):
            return 0
        with self.home.held():
            waiting = [name for name in map(parse_name, files(self.home.unstored)) if name]
            for name in waiting:
                path = self.home.unstored / name.file
                self._objects.put(self._prefix.checkpoint(name), path.read_bytes())
                with self.home.catalogue.changing(name):
                    durable.rename(path, self.home.checkpoints / name.file)
                    durable.sync_directory(self.home.unstored)
        return len(waiting)

    def fetch(self) -> int:
        """Download checkpoints that only object storage holds; return how many."""
        if self._objects is None:
            return 0
        fetched = 0
        for documents in (self._archived, self._of_earlier_release):
            with self.home.held():
                for name, raw in documents(self._objects, set(self.names())):
                    with self.home.catalogue.changing(name):
                        durable.write_once(self.home.checkpoints / name.file, raw)
                    fetched += 1
        return fetched

    def _archived(
        self, objects: ObjectStore, known: set[RecorderCheckpointName]
    ) -> Iterator[tuple[RecorderCheckpointName, bytes]]:
        """Checkpoints of the archive that are not known; its keys have the start of an id."""
        here = {name.short for name in known}
        prefix = ArchiveKeys(self._prefix.hub_id).prefix
        for key in objects.keys(self._prefix.checkpoints):
            short = layout.parse_recorder_checkpoint(key.removeprefix(prefix))
            if short is None or short in here:
                continue
            raw = objects.get(key)
            name = RecorderCheckpointName.of(_decode(key, raw))
            if name.short != short:
                raise Untrusted(f"{key}: expected the recorder checkpoint of its name, got {name}")
            yield name, raw

    def _of_earlier_release(
        self, objects: ObjectStore, known: set[RecorderCheckpointName]
    ) -> Iterator[tuple[RecorderCheckpointName, bytes]]:
        prefix = self._prefix.earlier_checkpoints
        for key in objects.keys(prefix):
            name = parse_name(key.removeprefix(prefix))
            if name is not None and name not in known:
                yield name, objects.get(key, expect=name.checkpoint_id)

    def names(self) -> list[RecorderCheckpointName]:
        """The names of all checkpoints stored here, by time."""
        return list(reversed(list(self.newest_first())))

    def newest_first(self) -> Generator[RecorderCheckpointName, None, None]:
        """The names from the newest on; what is not asked for is not read."""
        with self.home.catalogue.reading() as names:
            yield from names.newest_first()

    def newest(self, limit: int) -> list[RecorderCheckpointName]:
        """At most ``limit`` names, the newest, by time."""
        with closing(self.newest_first()) as names:
            return list(islice(names, limit))[::-1]

    def starting(self, prefix: str, limit: int) -> list[RecorderCheckpointName]:
        """At most ``limit`` names whose checkpoint_id in hex begins with a prefix."""
        with self.home.catalogue.reading() as names:
            return names.starting(prefix, limit)

    def count(self) -> int:
        with self.home.catalogue.reading() as names:
            return names.count()

    def get(self, name: RecorderCheckpointName) -> RecorderCheckpoint:
        for folder in (self.home.checkpoints, self.home.unstored):
            if (folder / name.file).exists():
                return read_document(folder / name.file, name)
        raise Untrusted(f"{self.home.root} has no recorder checkpoint {name.checkpoint_id.hex()}")

    def latest(self) -> RecorderCheckpoint | None:
        names = self.newest(1)
        return self.get(names[0]) if names else None


def read_document(path: Path, name: RecorderCheckpointName | None = None) -> RecorderCheckpoint:
    """Decode a checkpoint file, which must match its name."""
    checkpoint = _decode(str(path), path.read_bytes())
    if name is not None and RecorderCheckpointName.of(checkpoint) != name:
        raise Untrusted(f"{path}: expected the recorder checkpoint of its name, got another")
    return checkpoint


def _decode(where: str, raw: bytes) -> RecorderCheckpoint:
    try:
        return RecorderCheckpoint.decode(raw)
    except Malformed as error:
        raise Malformed(f"{where}: expected a recorder checkpoint: {error}") from error


class HubIdentityUnknown(VeenError):
    """The runner has not connected to the hub yet."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _StoredIdentity(WireMap):
    """The content of a HubIdentityFile."""

    ver: Version = 1
    identity: bytes
    signature: bytes


class HubIdentityFile:
    """The hub identity and its signature, in one file.

    Version 0 is an array of the two, under another name. It is read, and replaced by the next
    write.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._version_0 = path.with_name(_IDENTITY_VERSION_0)
        self._stored = b""

    def store(self, identity: HubIdentity, signature: bytes) -> None:
        """Store a verified identity; an older identity than the stored one is Untrusted."""
        content = _StoredIdentity(identity=identity.encode(), signature=signature).encode()
        if content != self._stored:
            if self._path.exists() or self._version_0.exists():
                followed_identity(self.read()[0], identity)
            durable.write(self._path, content)
            self._version_0.unlink(missing_ok=True)
            self._stored = content

    def read(self) -> tuple[HubIdentity, bytes]:
        """Return the identity and the signature by its current key."""
        path = self._path if self._path.exists() else self._version_0
        try:
            raw = path.read_bytes()
            if path == self._version_0:
                identity, signature = cbor.decode(raw)
                return HubIdentity.decode(identity), signature
            stored = _StoredIdentity.decode(raw)
            return HubIdentity.decode(stored.identity), stored.signature
        except FileNotFoundError as error:
            raise HubIdentityUnknown(
                "the service has not reached the hub yet; try again later"
            ) from error
        except Malformed as error:
            raise type(error)(f"{path}: {error}") from error
