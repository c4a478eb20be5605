"""The files of a log by name, in an archive or in a data directory."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from recorder.archive.manifest import ArchiveKeys, ArchiveManifest, LabelManifest, LabelRef
from recorder.archive.store import HubArchive
from veen.audit.context import take_inventory
from veen.audit.engine import AuditedLog
from veen.audit.report import AuditFault
from veen.errors import Malformed, Untrusted, VeenError
from veen.log import layout
from veen.log.layout import OpenChunkName
from veen.objects.port import ObjectMissing
from veen.objects.store import StoreRef


class LogFiles(Protocol):
    """Reads files by name; picklable, and gives the same bytes on every host."""

    def read(self, name: str) -> bytes | None:
        """Return the bytes of a file, or None when it does not exist."""


@dataclass(frozen=True, slots=True)
class LogInventory:
    """The files to audit, and faults already found while listing them."""

    files: LogFiles
    names: tuple[str, ...]
    acknowledged: Mapping[bytes, int]
    faults: tuple[AuditFault, ...] = ()

    def log(self) -> AuditedLog:
        return AuditedLog(
            inventory=take_inventory(self.names),
            read=self.files.read,
            acknowledged=self.acknowledged,
        )


@dataclass(frozen=True, slots=True)
class DirectoryFiles:
    """The log of a stopped hub, on a file system that every reader can access."""

    root: Path

    def read(self, name: str) -> bytes | None:
        try:
            return (self.root / name).read_bytes()
        except FileNotFoundError:
            return None


@dataclass(frozen=True, slots=True)
class ArchiveFiles:
    """A state of an archive; ``stored_as`` maps names to keys where the two differ."""

    services: StoreRef
    hub_id: bytes
    stored_as: Mapping[str, str]

    def read(self, name: str) -> bytes | None:
        key = self.stored_as.get(name) or ArchiveKeys(self.hub_id).file(name)
        try:
            return self.services.to_read().objects.get(key)
        except ObjectMissing:
            return None


def in_directory(root: Path, acknowledged: Mapping[bytes, int]) -> LogInventory:
    if not (root / "log").is_dir():
        raise VeenError(f"{root}: expected a data directory of a hub, got one without a log")
    folders = (folder for folder in ("log", layout.RECORDER) if (root / folder).is_dir())
    names = sorted(
        f"{folder}/{path.name}" for folder in folders for path in (root / folder).iterdir()
    )
    return LogInventory(DirectoryFiles(root), tuple(names), dict(acknowledged))


def in_archive(services: StoreRef, hub_id: bytes) -> LogInventory:
    """List the newest state of an archive.

    Objects that its manifests name and the store lacks are left out.
    """
    archive = HubArchive(services.to_read(), hub_id)
    manifest = archive.latest()
    listed = frozenset(archive.objects.keys(archive.keys.file("log/")))
    listing = _Listing(archive, listed)
    for ref in manifest.labels:
        listing.label(ref)
    listing.recorder(manifest)
    stored_as = {**_documents(archive.keys, manifest), **listing.stored_as}
    acknowledged = {ref.label: ref.end_seq for ref in manifest.labels}
    files = ArchiveFiles(services, hub_id, stored_as)
    return LogInventory(files, tuple(sorted(listing.names)), acknowledged, tuple(listing.faults))


@dataclass(slots=True)
class _Listing:
    archive: HubArchive
    listed: frozenset[str]
    names: set[str] = field(default_factory=set)
    stored_as: dict[str, str] = field(default_factory=dict)
    faults: list[AuditFault] = field(default_factory=list)

    def label(self, ref: LabelRef) -> None:
        try:
            manifest = self.archive.label_of(ref)
        except (ObjectMissing, Untrusted, Malformed) as error:
            self._without_manifest(ref, str(error))
            return
        keys = self.archive.keys
        self.names |= {name for name in _files(manifest) if keys.file(name) in self.listed}
        self._documents(manifest)

    def recorder(self, manifest: ArchiveManifest) -> None:
        """Recorder checkpoints count as present, like documents."""
        try:
            recorder = self.archive.recorder(manifest)
        except (ObjectMissing, Untrusted, Malformed) as error:
            keys = self.archive.keys
            file = keys.version(manifest.recorder or b"").removeprefix(keys.prefix)
            what = f"the manifest of the recorder checkpoints: {error}"
            self.faults.append(AuditFault(file, 0, None, what, "MANIFEST"))
            return
        self.names |= {piece.name for piece in recorder.pieces}

    def _documents(self, manifest: LabelManifest) -> None:
        """Files stored under another name count as present: a reader reports those that are
        missing."""
        keys, label = self.archive.keys, manifest.label
        if manifest.index is not None:
            name = layout.checkpoint_index(label)
            self.stored_as[name] = keys.version(manifest.index)
            self.names.add(name)
        if manifest.tail is not None:
            name = layout.open_chunk(OpenChunkName(label, manifest.tail.start_seq))
            self.stored_as[name] = keys.tail(label, manifest.tail.start_seq, manifest.tail.end_seq)
            self.names.add(name)

    def _without_manifest(self, ref: LabelRef, why: str) -> None:
        """Audit a label whose manifest is lost by the files that carry its name."""
        keys = self.archive.keys
        file = keys.version(ref.sha256).removeprefix(keys.prefix)
        self.faults.append(AuditFault(file, 0, None, f"the manifest of a label: {why}", "MANIFEST"))
        names = (key.removeprefix(keys.prefix) for key in self.listed)
        self.names |= {name for name in names if f"-{ref.label.hex()}" in name}


def _files(label: LabelManifest) -> Iterator[str]:
    yield from (piece.name for piece in label.pieces)
    for segment in label.segments:
        if not segment.is_pruned:
            yield layout.chunk(segment.name(label.label))


def _documents(keys: ArchiveKeys, manifest: ArchiveManifest) -> dict[str, str]:
    return {
        layout.IDENTITY: keys.version(manifest.identity),
        layout.IDENTITY_SIG: keys.version(manifest.identity_sig),
        layout.KEY_MAP: keys.version(manifest.key_map),
        layout.CHECKPOINT_BINDING: keys.version(manifest.binding),
    }
