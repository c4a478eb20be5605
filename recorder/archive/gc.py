"""Garbage collection: deletes the objects that only expired states of an archive refer to.

Each push of new data adds a state: a manifest, the manifests of its labels, and a copy of every
open chunk. Sealed files belong to every later state and are never deleted. Objects that no state
refers to are left alone as well, since a push in progress may have just written them. Which
objects a state refers to is computed from manifests, without reading a segment.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final, NamedTuple

from recorder.archive.manifest import ArchiveKeys, ArchiveManifest, LabelManifest, RecorderManifest
from recorder.archive.store import HubArchive
from veen.log import layout
from veen.objects.port import ObjectMissing, Retention
from veen.system.environment import Progress, ProgressCounter

_COLLECTABLE: Final = ("tail/", "version/")


class ArchiveObject(NamedTuple):
    key: str
    sha256: bytes
    size: int | None
    """None for a document, whose key is its hash."""
    is_bulk: bool = False
    """Whether its size depends on the entries: segments, tails, and leaves of pruned chunks."""


def objects_of_label(keys: ArchiveKeys, label: LabelManifest) -> Iterator[ArchiveObject]:
    """Yield the files of a label, without its manifest."""
    for piece in label.pieces:
        is_bulk = piece.name.startswith("log/leaves-")
        yield ArchiveObject(keys.file(piece.name), piece.sha256, piece.size, is_bulk)
    for segment in label.segments:
        if not segment.is_pruned:
            key = keys.file(layout.chunk(segment.name(label.label)))
            yield ArchiveObject(key, segment.sha256, segment.size, is_bulk=True)
    if label.tail is not None:
        tail = label.tail
        key = keys.tail(label.label, tail.start_seq, tail.end_seq)
        yield ArchiveObject(key, tail.sha256, tail.size, is_bulk=True)
    if label.index is not None:
        yield ArchiveObject(keys.version(label.index), label.index, None)


def objects_of_recorder(keys: ArchiveKeys, recorder: RecorderManifest) -> Iterator[ArchiveObject]:
    for piece in recorder.pieces:
        yield ArchiveObject(keys.file(piece.name), piece.sha256, piece.size)


def documents_of_manifest(keys: ArchiveKeys, manifest: ArchiveManifest) -> Iterator[ArchiveObject]:
    """Yield the documents that a manifest names, except those of its labels."""
    named = (manifest.identity, manifest.identity_sig, manifest.key_map, manifest.binding)
    for sha256 in (*named, manifest.escrow, manifest.recorder):
        if sha256 is not None:
            yield ArchiveObject(keys.version(sha256), sha256, None)


def objects_of_manifest(
    archive: HubArchive, sha256: bytes, manifest: ArchiveManifest
) -> Iterator[ArchiveObject]:
    """Yield every object of a state, its manifest last."""
    yield from documents_of_manifest(archive.keys, manifest)
    yield from objects_of_recorder(archive.keys, archive.recorder(manifest))
    for ref in manifest.labels:
        yield from objects_of_label(archive.keys, archive.label_of(ref))
        yield ArchiveObject(archive.keys.version(ref.sha256), ref.sha256, None)
    yield ArchiveObject(archive.keys.version(sha256), sha256, None)


def past_states(
    archive: HubArchive, manifest: ArchiveManifest
) -> Iterator[tuple[bytes, ArchiveManifest]]:
    """Yield earlier states, the newest first, as far back as the store has them."""
    while manifest.previous is not None:
        sha256 = manifest.previous
        try:
            manifest = archive.document(sha256, ArchiveManifest)
        except ObjectMissing:
            return
        yield sha256, manifest


@dataclass(frozen=True, slots=True)
class Keeping:
    """Which states to retain: the last ``states``, and those with an entry at or after
    ``since``."""

    states: int
    since: int | None = None

    def __post_init__(self) -> None:
        if self.states < 1:
            raise ValueError("the state that the head names always stays")


@dataclass(frozen=True, slots=True, kw_only=True)
class Forgettable:
    """Objects to delete.

    ``keys`` are in deletion order, so that an interrupted run can be repeated.
    """

    hub_id: bytes
    stored: int
    states: int
    keys: tuple[str, ...]
    size: int


def forgettable(archive: HubArchive, keeping: Keeping) -> Forgettable:
    """Find the objects that only expired states refer to; deletes nothing."""
    sha256, manifest = archive.latest_with_hash()
    retained = {object_.key for object_ in objects_of_manifest(archive, sha256, manifest)}
    old: list[tuple[bytes, ArchiveManifest]] = []
    count = 1
    for known, state in past_states(archive, manifest):
        referenced = None if old else _referenced(archive, known, state)
        if referenced is None or not (
            count < keeping.states or _is_young(archive, state, keeping.since)
        ):
            old.append((known, state))
        else:
            retained |= referenced
            count += 1
    keys: dict[str, None] = {}
    # The oldest first, and its manifest last, since the other objects are found through it.
    for known, state in reversed(old):
        names = _collectable(archive, known, state)
        keys |= dict.fromkeys(key for key in names if key not in retained)
    sizes = {key: size for key in keys if (size := _size(archive, key)) is not None}
    return Forgettable(
        hub_id=manifest.hub_id,
        stored=count,
        states=len(old),
        keys=tuple(sizes),
        size=sum(sizes.values()),
    )


def forget(retention: Retention, forgettable: Forgettable, progress: Progress) -> None:
    steps = ProgressCounter(len(forgettable.keys), progress)
    steps.begin()
    for key in forgettable.keys:
        retention.delete(key)
        steps.add()


def _referenced(archive: HubArchive, sha256: bytes, state: ArchiveManifest) -> set[str] | None:
    """The keys that a state refers to; None when an interrupted run has deleted some of them."""
    try:
        return {object_.key for object_ in objects_of_manifest(archive, sha256, state)}
    except ObjectMissing:
        return None


def _is_young(archive: HubArchive, state: ArchiveManifest, since: int | None) -> bool:
    if since is None:
        return False
    return any(label.last_ts >= since for label in archive.labels(state))


def _collectable(archive: HubArchive, sha256: bytes, state: ArchiveManifest) -> Iterator[str]:
    """The tails and documents of a state that the store still has."""
    keys = archive.keys
    for ref in state.labels:
        try:
            label = archive.label_of(ref)
        except ObjectMissing:
            continue
        yield from (
            object_.key
            for object_ in objects_of_label(keys, label)
            if _is_collectable(archive, object_.key)
        )
        yield keys.version(ref.sha256)
    yield from (document.key for document in documents_of_manifest(keys, state))
    yield keys.version(sha256)


def _is_collectable(archive: HubArchive, key: str) -> bool:
    return key.removeprefix(archive.keys.prefix).startswith(_COLLECTABLE)


def _size(archive: HubArchive, key: str) -> int | None:
    try:
        return archive.objects.size(key)
    except ObjectMissing:
        return None
