"""The portable set of a client: files listed with their hashes in a manifest (spec 15).

It is a directory: each part has the name that the specification gives it, can be read by itself,
and is written and read in one pass of bounded memory.
"""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, Final

from veen.digest import h_blocks
from veen.errors import Malformed, Untrusted
from veen.label import EpochLabels, Profile, routing_key, stream_id
from veen.mmr import Peaks
from veen.payload import attachment_coid
from veen.system import durable
from veen.wire.api import LimitRegistry
from veen.wire.objects import WireMap
from veen.wire.schema import Bytes32, Version

CARD: Final = "identity_card.pub"
KEYSTORE: Final = "keystore.enc"
IDENTITY: Final = "hub-identity.cbor"
IDENTITY_SIG: Final = "hub-identity.sig"
RECEIPTS: Final = "receipts.cborseq"
PAYLOADS: Final = "payloads.cborseq"
CHECKPOINTS: Final = "checkpoints.cborseq"
SYNC_STATE: Final = "sync_state.cbor"
CAP_TOKENS: Final = "cap_tokens.cborseq"
MANIFEST: Final = "manifest.cbor"
ATTACHMENTS: Final = "attachments"

FILES: Final = (
    CARD, KEYSTORE, IDENTITY, IDENTITY_SIG, RECEIPTS, PAYLOADS, CHECKPOINTS, SYNC_STATE, CAP_TOKENS,
)  # fmt: skip
MAX_SMALL_BYTES: Final = 1 << 22
MAX_ATTACHMENT_BYTES: Final = 1 << 26
_ATTACHMENT: Final = re.compile(r"attachments/[0-9a-f]{64}")
_BLOCK: Final = 1 << 20


@dataclass(frozen=True, slots=True, kw_only=True)
class FileRef(WireMap):
    name: str
    size: int
    sha256: Bytes32

    def rule(self) -> None:
        if self.name not in FILES and not _ATTACHMENT.fullmatch(self.name):
            raise Malformed(f"unknown file {self.name!r} in a portable set")


@dataclass(frozen=True, slots=True, kw_only=True)
class PortableManifest(WireMap):
    """The files of a set, sorted by name."""

    ver: Version = 1
    files: tuple[FileRef, ...]

    def rule(self) -> None:
        names = [file.name for file in self.files]
        if names != sorted(set(names)) or not set(FILES) <= set(names):
            raise Malformed("manifest: files out of order, duplicate or missing")


@dataclass(frozen=True, slots=True, kw_only=True)
class LabelState(WireMap):
    """A label of a set; its entries begin at ``first_seq``, after ``peaks_before``."""

    stream: str
    profile: Profile
    epoch: int
    label: Bytes32
    first_seq: int
    peaks_before: tuple[Bytes32, ...]
    last_stream_seq: int
    last_mmr_root: Bytes32

    def rule(self) -> None:
        if not 1 <= self.first_seq <= self.last_stream_seq:
            raise Malformed(f"sync state: invalid range {self.first_seq} to {self.last_stream_seq}")

    def labels(self, hub_id: bytes) -> EpochLabels:
        epoch_labels = EpochLabels(routing_key(hub_id), stream_id(self.stream), self.profile)
        if epoch_labels.at(self.epoch) != self.label:
            raise Untrusted(f"{self.stream}: the label does not belong to epoch {self.epoch}")
        return epoch_labels

    def before(self) -> Peaks:
        return Peaks(self.first_seq - 1, self.peaks_before)


@dataclass(frozen=True, slots=True, kw_only=True)
class SyncState(WireMap):
    """The labels of a set and their ends, in the order of its sequences."""

    ver: Version = 1
    hub_url: str
    limits: LimitRegistry
    labels: tuple[LabelState, ...]

    def rule(self) -> None:
        if len({label.label for label in self.labels}) != len(self.labels):
            raise Malformed("sync state: duplicate label")


def manifest_of(root: Path) -> PortableManifest:
    """The manifest of the files in a directory, read back from it."""
    paths = sorted(path for path in root.rglob("*") if not path.is_dir())
    return PortableManifest(
        files=tuple(_ref(path, path.relative_to(root).as_posix()) for path in paths)
    )


def taken(source: Path, into: Path) -> PortableManifest:
    """Copy a set and verify the copy against its manifest."""
    into.mkdir(mode=durable.DIR_MODE)
    (into / ATTACHMENTS).mkdir(mode=durable.DIR_MODE)
    manifest = PortableManifest.decode(small(source / MANIFEST))
    for ref in manifest.files:
        with _opened(source / ref.name) as file, (into / ref.name).open("xb") as copy:
            (into / ref.name).chmod(durable.FILE_MODE)
            if h_blocks(_copied(file, copy, ref)) != ref.sha256:
                raise Untrusted(f"{source / ref.name} does not match its digest in the manifest")
    return manifest


def small(path: Path, max_bytes: int = MAX_SMALL_BYTES) -> bytes:
    """The content of a file of bounded size."""
    with _opened(path) as file:
        raw = file.read(max_bytes + 1)
    if len(raw) > max_bytes:
        raise Malformed(f"{path} has more than {max_bytes} bytes")
    return raw


def attachment(path: Path) -> bytes:
    """A sealed attachment, verified to have the coid of its file name."""
    raw = small(path, MAX_ATTACHMENT_BYTES)
    if attachment_coid(raw).hex() != path.name:
        raise Malformed(f"{path} is not the attachment that its name says")
    return raw


def _ref(path: Path, name: str) -> FileRef:
    with path.open("rb") as file:
        size = os.fstat(file.fileno()).st_size
        return FileRef(name=name, size=size, sha256=h_blocks(_blocks(file)))


def _opened(path: Path) -> BinaryIO:
    """Open a regular file; symbolic links are refused."""
    try:
        handle = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError as error:
        raise Malformed(f"{path}: {error.strerror}; the portable set is incomplete") from error
    if not stat.S_ISREG(os.fstat(handle).st_mode):
        os.close(handle)
        raise Malformed(f"{path} is not a regular file")
    return os.fdopen(handle, "rb")


def _copied(file: BinaryIO, copy: BinaryIO, ref: FileRef) -> Iterator[bytes]:
    left = ref.size
    for block in _blocks(file):
        left -= len(block)
        if left < 0:
            break
        copy.write(block)
        yield block
    if left:
        raise Untrusted(f"{ref.name}: expected {ref.size} bytes by the manifest, got another size")


def _blocks(file: BinaryIO) -> Iterator[bytes]:
    while block := file.read(_BLOCK):
        yield block
