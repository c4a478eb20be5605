"""An archive in an object store: documents by hash, files by name, one head; and its status.

The credentials of the store come from the environment only.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final, TypeVar

from recorder.archive.escrow import Escrow
from recorder.archive.manifest import (
    NO_DOCUMENTS,
    ArchivedFile,
    ArchivedSegment,
    ArchiveKeys,
    ArchiveManifest,
    LabelManifest,
    LabelRef,
    RecorderManifest,
    TailSegment,
)
from veen.digest import h
from veen.errors import Untrusted
from veen.hub_identity import HubIdentity
from veen.identity_store import SignedIdentity
from veen.log import layout
from veen.objects.port import ObjectMissing, Store, StoreHead, StoreSettings, credentials_in
from veen.objects.store import open_to_read
from veen.wire.objects import WireObject

W = TypeVar("W", bound=WireObject)
_IN_MEMORY: Final = 2**23
_HUB_ID: Final = re.compile(r"[0-9a-f]{64}")


class NoArchive(Untrusted):
    """The store holds no archive of this hub."""


class HubArchive:
    """The archive of a hub in a store."""

    def __init__(self, store: Store, hub_id: bytes) -> None:
        self.keys = ArchiveKeys(hub_id)
        self.objects = store.objects
        self.heads = store.heads

    def head(self) -> StoreHead:
        return self.heads.read(self.keys.head)

    def latest(self) -> ArchiveManifest:
        return self.latest_with_hash()[1]

    def latest_with_hash(self) -> tuple[bytes, ArchiveManifest]:
        value = self.head().value
        if value is None:
            raise NoArchive(f"the store has no archive of hub {self.keys.hub_id.hex()}")
        return value, self.document(value, ArchiveManifest)

    def document(self, sha256: bytes, kind: type[W]) -> W:
        return kind.decode(self.version(sha256))

    def version(self, sha256: bytes) -> bytes:
        return self.objects.get(self.keys.version(sha256), expect=sha256)

    def put_version(self, raw: bytes) -> bytes:
        """Store a document under its hash and read it back; idempotent."""
        sha256 = h(raw)
        self.objects.put(self.keys.version(sha256), raw)
        self.version(sha256)
        return sha256

    def identity(self, manifest: ArchiveManifest) -> HubIdentity:
        """The archived identity, verified against the requested hub_id."""
        return self.signed_identity(manifest).identity

    def signed_identity(self, manifest: ArchiveManifest) -> SignedIdentity:
        """Like ``identity``, with its signature."""
        identity = HubIdentity.decode(self.version(manifest.identity))
        signature = self.version(manifest.identity_sig)
        identity.verify(signature)
        if {identity.hub_id, manifest.hub_id} != {self.keys.hub_id}:
            raise Untrusted("the archive holds the identity of another hub")
        return SignedIdentity(identity, signature)

    def label(self, manifest: ArchiveManifest, label: bytes) -> LabelManifest | None:
        ref = manifest.ref(label)
        return None if ref is None else self.label_of(ref)

    def label_of(self, ref: LabelRef) -> LabelManifest:
        document = self.document(ref.sha256, LabelManifest)
        if (document.label, document.end_seq) != (ref.label, ref.end_seq):
            raise Untrusted(
                f"label {ref.label.hex()}: expected its manifest up to {ref.end_seq}, got another"
            )
        return document

    def labels(self, manifest: ArchiveManifest) -> Iterator[LabelManifest]:
        return (self.label_of(ref) for ref in manifest.labels)

    def recorder(self, manifest: ArchiveManifest) -> RecorderManifest:
        if manifest.recorder is None:
            return NO_DOCUMENTS
        return self.document(manifest.recorder, RecorderManifest)

    def fetch_piece(self, piece: ArchivedFile, root: Path) -> None:
        self.objects.get_file(self.keys.file(piece.name), root / piece.name, expect=piece.sha256)

    def fetch_segment(self, label: bytes, segment: ArchivedSegment, to: Path) -> None:
        key = self.keys.file(layout.chunk(segment.name(label)))
        self.objects.get_file(key, to, expect=segment.sha256)

    def fetch_tail(self, label: bytes, tail: TailSegment, to: Path) -> None:
        key = self.keys.tail(label, tail.start_seq, tail.end_seq)
        self.objects.get_file(key, to, expect=tail.sha256)

    def read_back(self, key: str, size: int, sha256: bytes, scratch: Path) -> None:
        """Read an object and discard it; ObjectDamaged unless it has this hash."""
        if size <= _IN_MEMORY:
            self.objects.get(key, expect=sha256)
        else:
            self.objects.get_file(key, scratch / "read-back", expect=sha256)

    def has(self, key: str, size: int) -> bool:
        try:
            return self.objects.size(key) == size
        except ObjectMissing:
            return False


def hubs(store: Store) -> Iterator[bytes]:
    """Yield the hubs that a store holds an archive of, with one or two listing requests for each.

    A recorder stores its checkpoints under the keys of the archive, even if there is none.
    """
    after = ""
    while (key := next(store.objects.keys("hubs/", start_after=after), None)) is not None:
        name = key.split("/")[1]
        if _HUB_ID.fullmatch(name) and _has_archive(store, name, key):
            yield bytes.fromhex(name)
        # "0" follows "/", so this sorts after every key of this hub.
        after = f"hubs/{name}0"


def _has_archive(store: Store, hub: str, first_key: str) -> bool:
    prefix = f"hubs/{hub}/"
    if not first_key.startswith(f"{prefix}{layout.RECORDER}/"):
        return True
    after = f"{prefix}{layout.RECORDER}0"
    return next(store.objects.keys(prefix, start_after=after), None) is not None


@dataclass(frozen=True, slots=True)
class LabelStatus:
    label: bytes
    end_seq: int
    sealed_seq: int
    last_ts: int
    stored_bytes: int
    root: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class HubStatus:
    """Status of an archived hub.

    ``is_escrowed`` is None without an escrow, else whether it has the current key.
    """

    hub_id: bytes
    manifest: bytes
    key_id: bytes
    labels: tuple[LabelStatus, ...]
    is_escrowed: bool | None
    unsettled_from: int | None
    recorder_checkpoints: int
    recorder_bytes: int

    @property
    def entries(self) -> int:
        return sum(label.end_seq for label in self.labels)

    @property
    def stored_bytes(self) -> int:
        return sum(label.stored_bytes for label in self.labels) + self.recorder_bytes

    @property
    def last_ts(self) -> int:
        return max((label.last_ts for label in self.labels), default=0)


def status(archive: HubArchive) -> HubStatus:
    sha256, manifest = archive.latest_with_hash()
    current = archive.identity(manifest).current.key_id
    escrow = archive.document(manifest.escrow, Escrow) if manifest.escrow else None
    recorder = archive.recorder(manifest)
    labels = (
        LabelStatus(
            label.label,
            label.end_seq,
            label.sealed_seq,
            label.last_ts,
            label.stored_bytes,
            label.root,
        )
        for label in archive.labels(manifest)
    )
    return HubStatus(
        hub_id=manifest.hub_id,
        manifest=sha256,
        key_id=current,
        labels=tuple(labels),
        is_escrowed=None if escrow is None else current in escrow.key_ids,
        unsettled_from=manifest.unsettled_from,
        recorder_checkpoints=len(recorder.pieces),
        recorder_bytes=recorder.stored_bytes,
    )


def archive_in(store: StoreSettings, hub_id: bytes, environment: Mapping[str, str]) -> HubArchive:
    """Open the archive of a hub read-only."""
    return HubArchive(open_to_read(store, credentials_in(environment)), hub_id)
