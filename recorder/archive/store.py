"""An archive in an object store: documents by their hash, files by their name, one head."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Final, TypeVar

from recorder.archive.keys import HubKeys
from recorder.archive.manifest import (
    NO_DOCUMENTS,
    ArchiveManifest,
    LabelManifest,
    LabelRef,
    Piece,
    RecorderManifest,
    Segment,
    Tail,
)
from veen import layout
from veen.digest import h
from veen.errors import Untrusted
from veen.hub_identity import HubIdentity
from veen.identity_file import SignedIdentity
from veen.objects.opened import Store
from veen.objects.port import Head, ObjectMissing
from veen.wire import WireObject

W = TypeVar("W", bound=WireObject)
_IN_MEMORY: Final = 2**23
_HUB_ID: Final = re.compile(r"[0-9a-f]{64}")


class NoArchive(Untrusted):
    """The store holds nothing of this hub."""


class HubArchive:
    """What one store holds of one hub."""

    def __init__(self, store: Store, hub_id: bytes) -> None:
        self.keys = HubKeys(hub_id)
        self.objects = store.objects
        self.heads = store.heads

    def head(self) -> Head:
        return self.heads.read(self.keys.head)

    def latest(self) -> ArchiveManifest:
        return self.latest_with_hash()[1]

    def latest_with_hash(self) -> tuple[bytes, ArchiveManifest]:
        found = self.head().value
        if found is None:
            raise NoArchive(f"the store has no archive of hub {self.keys.hub_id.hex()}")
        return found, self.document(found, ArchiveManifest)

    def document(self, sha256: bytes, wanted: type[W]) -> W:
        return wanted.decode(self.version(sha256))

    def version(self, sha256: bytes) -> bytes:
        return self.objects.get(self.keys.version(sha256), expect=sha256)

    def put_version(self, raw: bytes) -> bytes:
        """Keep a document under its hash, and read it back; the same one again changes nothing."""
        sha256 = h(raw)
        self.objects.put(self.keys.version(sha256), raw)
        self.version(sha256)
        return sha256

    def identity(self, manifest: ArchiveManifest) -> HubIdentity:
        """The archived identity, verified down to the hub_id that was asked for."""
        return self.signed_identity(manifest).identity

    def signed_identity(self, manifest: ArchiveManifest) -> SignedIdentity:
        """The same, with its signature."""
        found = HubIdentity.decode(self.version(manifest.identity))
        signature = self.version(manifest.identity_sig)
        found.verify(signature)
        if {found.hub_id, manifest.hub_id} != {self.keys.hub_id}:
            raise Untrusted("the archive holds the identity of another hub")
        return SignedIdentity(found, signature)

    def label(self, manifest: ArchiveManifest, label: bytes) -> LabelManifest | None:
        ref = manifest.ref(label)
        return None if ref is None else self.label_of(ref)

    def label_of(self, ref: LabelRef) -> LabelManifest:
        found = self.document(ref.sha256, LabelManifest)
        if (found.label, found.end_seq) != (ref.label, ref.end_seq):
            raise Untrusted(f"the manifest of label {ref.label.hex()} is another's")
        return found

    def labels(self, manifest: ArchiveManifest) -> Iterator[LabelManifest]:
        return (self.label_of(ref) for ref in manifest.labels)

    def recorder(self, manifest: ArchiveManifest) -> RecorderManifest:
        if manifest.recorder is None:
            return NO_DOCUMENTS
        return self.document(manifest.recorder, RecorderManifest)

    def fetch_piece(self, piece: Piece, root: Path) -> None:
        self.objects.get_file(self.keys.file(piece.name), root / piece.name, expect=piece.sha256)

    def fetch_segment(self, label: bytes, segment: Segment, to: Path) -> None:
        key = self.keys.file(layout.chunk(segment.name(label)))
        self.objects.get_file(key, to, expect=segment.sha256)

    def fetch_tail(self, label: bytes, tail: Tail, to: Path) -> None:
        key = self.keys.tail(label, tail.start_seq, tail.end_seq)
        self.objects.get_file(key, to, expect=tail.sha256)

    def read_back(self, key: str, size: int, sha256: bytes, scratch: Path) -> None:
        """Read an object and forget it: ObjectDamaged unless it has this hash."""
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
    """The hubs of which a store holds anything, one step of its listing for each."""
    after = ""
    while (key := next(store.objects.keys("hubs/", start_after=after), None)) is not None:
        name = key.split("/")[1]
        if _HUB_ID.fullmatch(name):
            yield bytes.fromhex(name)
        # The first character after the slash: past every key of this hub.
        after = f"hubs/{name}0"
