"""The files of a log by their names, wherever they lie: in an archive, or in a data directory."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from recorder.archive.keys import HubKeys
from recorder.archive.manifest import ArchiveManifest, LabelManifest, LabelRef
from recorder.archive.store import HubArchive
from spark_jobs.store_door import StoreDoor
from veen import layout
from veen.audit.engine import Log
from veen.audit.report import Fault
from veen.audit.stock import take_stock
from veen.errors import Malformed, Untrusted, VeenError
from veen.layout import OpenChunkName
from veen.objects.port import ObjectMissing


class LogFiles(Protocol):
    """Bytes by name; it can be pickled, and reads the same wherever it goes."""

    def read(self, name: str) -> bytes | None:
        """The bytes of a file, or None when there is none."""


@dataclass(frozen=True, slots=True)
class LogInventory:
    """What there is to audit, and what already showed when it was listed."""

    files: LogFiles
    names: tuple[str, ...]
    acknowledged: Mapping[bytes, int]
    faults: tuple[Fault, ...] = ()

    def log(self) -> Log:
        return Log(
            stock=take_stock(self.names), read=self.files.read, acknowledged=self.acknowledged
        )


@dataclass(frozen=True, slots=True)
class DirectoryFiles:
    """The log of a hub that does not run, on a file system that every reader has."""

    root: Path

    def read(self, name: str) -> bytes | None:
        try:
            return (self.root / name).read_bytes()
        except FileNotFoundError:
            return None


@dataclass(frozen=True, slots=True)
class ArchiveFiles:
    """One state of an archive. ``kept_as`` has the keys of what is kept under another name."""

    door: StoreDoor
    hub_id: bytes
    kept_as: Mapping[str, str]

    def read(self, name: str) -> bytes | None:
        key = self.kept_as.get(name) or HubKeys(self.hub_id).file(name)
        try:
            return self.door.to_read().objects.get(key)
        except ObjectMissing:
            return None


def in_directory(root: Path, acknowledged: Mapping[bytes, int]) -> LogInventory:
    if not (root / "log").is_dir():
        raise VeenError(f"{root} is not a data directory: it has no log")
    folders = (one for one in ("log", layout.RECORDER) if (root / one).is_dir())
    names = sorted(f"{one}/{path.name}" for one in folders for path in (root / one).iterdir())
    return LogInventory(DirectoryFiles(root), tuple(names), dict(acknowledged))


def in_archive(door: StoreDoor, hub_id: bytes) -> LogInventory:
    """The newest state of an archive; what its manifests name and the store lacks is missing."""
    archive = HubArchive(door.to_read(), hub_id)
    manifest = archive.latest()
    listed = frozenset(archive.objects.keys(archive.keys.file("log/")))
    taken = _Listing(archive, listed)
    for ref in manifest.labels:
        taken.label(ref)
    taken.recorder(manifest)
    kept_as = {**_documents(archive.keys, manifest), **taken.kept_as}
    acknowledged = {ref.label: ref.end_seq for ref in manifest.labels}
    files = ArchiveFiles(door, hub_id, kept_as)
    return LogInventory(files, tuple(sorted(taken.names)), acknowledged, tuple(taken.faults))


@dataclass(slots=True)
class _Listing:
    archive: HubArchive
    listed: frozenset[str]
    names: set[str] = field(default_factory=set)
    kept_as: dict[str, str] = field(default_factory=dict)
    faults: list[Fault] = field(default_factory=list)

    def label(self, ref: LabelRef) -> None:
        try:
            found = self.archive.label_of(ref)
        except (ObjectMissing, Untrusted, Malformed) as error:
            self._without_manifest(ref, str(error))
            return
        keys = self.archive.keys
        self.names |= {name for name in _files(found) if keys.file(name) in self.listed}
        self._documents(found)

    def recorder(self, manifest: ArchiveManifest) -> None:
        """Recorder checkpoints count as there, like documents."""
        try:
            found = self.archive.recorder(manifest)
        except (ObjectMissing, Untrusted, Malformed) as error:
            keys = self.archive.keys
            file = keys.version(manifest.recorder or b"").removeprefix(keys.prefix)
            what = f"the manifest of the recorder checkpoints: {error}"
            self.faults.append(Fault(file, 0, None, what, "MANIFEST"))
            return
        self.names |= {one.name for one in found.pieces}

    def _documents(self, found: LabelManifest) -> None:
        """What is kept under another name counts as there: a reader finds out if it is not."""
        keys, label = self.archive.keys, found.label
        if found.index is not None:
            name = layout.checkpoint_index(label)
            self.kept_as[name] = keys.version(found.index)
            self.names.add(name)
        if found.tail is not None:
            name = layout.open_chunk(OpenChunkName(label, found.tail.start_seq))
            self.kept_as[name] = keys.tail(label, found.tail.start_seq, found.tail.end_seq)
            self.names.add(name)

    def _without_manifest(self, ref: LabelRef, why: str) -> None:
        """A label whose manifest is lost is audited by the files that bear its name."""
        keys = self.archive.keys
        file = keys.version(ref.sha256).removeprefix(keys.prefix)
        self.faults.append(Fault(file, 0, None, f"the manifest of a label: {why}", "MANIFEST"))
        names = (key.removeprefix(keys.prefix) for key in self.listed)
        self.names |= {name for name in names if f"-{ref.label.hex()}" in name}


def _files(label: LabelManifest) -> Iterator[str]:
    yield from (one.name for one in label.pieces)
    for segment in label.segments:
        if not segment.is_pruned:
            yield layout.chunk(segment.name(label.label))


def _documents(keys: HubKeys, manifest: ArchiveManifest) -> dict[str, str]:
    return {
        layout.IDENTITY: keys.version(manifest.identity),
        layout.IDENTITY_SIG: keys.version(manifest.identity_sig),
        layout.KEY_MAP: keys.version(manifest.key_map),
        layout.CHECKPOINT_BINDING: keys.version(manifest.binding),
    }
