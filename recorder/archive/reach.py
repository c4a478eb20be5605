"""Every object that one state of an archive stands on, without reading a segment."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from recorder.archive.keys import HubKeys
from recorder.archive.manifest import ArchiveManifest, LabelManifest, RecorderManifest
from recorder.archive.store import HubArchive
from veen import layout
from veen.objects.port import ObjectMissing


class Wanted(NamedTuple):
    key: str
    sha256: bytes
    size: int | None
    """None for a document, which is named by its hash."""
    is_bulk: bool = False
    """Whether it grows with the entries: segments, tails, and leaves of what was pruned."""


def of_label(keys: HubKeys, label: LabelManifest) -> Iterator[Wanted]:
    """The files of a label; its manifest itself is not among them."""
    for piece in label.pieces:
        is_bulk = piece.name.startswith("log/leaves-")
        yield Wanted(keys.file(piece.name), piece.sha256, piece.size, is_bulk)
    for segment in label.segments:
        if not segment.is_pruned:
            key = keys.file(layout.chunk(segment.name(label.label)))
            yield Wanted(key, segment.sha256, segment.size, is_bulk=True)
    if label.tail is not None:
        tail = label.tail
        key = keys.tail(label.label, tail.start_seq, tail.end_seq)
        yield Wanted(key, tail.sha256, tail.size, is_bulk=True)
    if label.index is not None:
        yield Wanted(keys.version(label.index), label.index, None)


def of_recorder(keys: HubKeys, recorder: RecorderManifest) -> Iterator[Wanted]:
    for piece in recorder.pieces:
        yield Wanted(keys.file(piece.name), piece.sha256, piece.size)


def documents(keys: HubKeys, manifest: ArchiveManifest) -> Iterator[Wanted]:
    """The documents that a manifest names, but for those of its labels."""
    named = (manifest.identity, manifest.identity_sig, manifest.key_map, manifest.binding)
    for sha256 in (*named, manifest.escrow, manifest.recorder):
        if sha256 is not None:
            yield Wanted(keys.version(sha256), sha256, None)


def of_manifest(archive: HubArchive, sha256: bytes, manifest: ArchiveManifest) -> Iterator[Wanted]:
    """All of it, the manifest last."""
    yield from documents(archive.keys, manifest)
    yield from of_recorder(archive.keys, archive.recorder(manifest))
    for ref in manifest.labels:
        yield from of_label(archive.keys, archive.label_of(ref))
        yield Wanted(archive.keys.version(ref.sha256), ref.sha256, None)
    yield Wanted(archive.keys.version(sha256), sha256, None)


def past(archive: HubArchive, manifest: ArchiveManifest) -> Iterator[tuple[bytes, ArchiveManifest]]:
    """The states before, the newest first, as far back as the store still has them."""
    while manifest.previous is not None:
        sha256 = manifest.previous
        try:
            manifest = archive.document(sha256, ArchiveManifest)
        except ObjectMissing:
            return
        yield sha256, manifest
