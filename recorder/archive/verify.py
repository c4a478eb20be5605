"""Verification (fsck) of an archive: complete and of one hub, by manifests and small objects.

No segment is read: the store reports its size, and its manifest, summary, peaks and signed
checkpoint must agree on the rest. ``read_all`` also reads every byte; verifying the entries
themselves is the task of an audit. Signatures are verified with the newest hub identity known from
elsewhere: the archive's own identity cannot show that a key has been retired.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TypeVar

from recorder.archive.escrow import Escrow
from recorder.archive.gc import (
    ArchiveObject,
    documents_of_manifest,
    objects_of_label,
    objects_of_recorder,
)
from recorder.archive.manifest import (
    NO_DOCUMENTS,
    ArchivedSegment,
    ArchiveManifest,
    LabelManifest,
    LabelRef,
    RecorderManifest,
)
from recorder.archive.push import read_document
from recorder.archive.source import Place
from recorder.archive.store import HubArchive
from veen.checkpoint import Checkpoint
from veen.digest import h
from veen.errors import Malformed, Untrusted
from veen.hub_identity import HubIdentity, newest_identity, whole_bindings
from veen.label import DEFAULT_PROFILE, derive_label, routing_key
from veen.log import layout
from veen.log.chunk import ChunkSummary, PeakSnapshot, Tombstone, decode_checkpoint_index
from veen.log.layout import leaf_file, tombstone_file
from veen.objects.port import ObjectMissing
from veen.recorder_checkpoint import RecorderCheckpoint
from veen.system.environment import Progress, ProgressCounter
from veen.wire import cbor
from veen.wire.objects import WireObject

T = TypeVar("T")
W = TypeVar("W", bound=WireObject)
_BAD = (ObjectMissing, Untrusted, Malformed)


class RecorderCheck:
    """Verifies recorder checkpoints in order; ``held`` are the checkpoints of all labels."""

    def __init__(self, hub: HubIdentity, held: set[Place]) -> None:
        self._hub = hub
        self._held = held
        self._last: RecorderCheckpoint | None = None

    def take(self, name: str, raw: bytes) -> None:
        """Refuse a document that is not the hub's, goes back, or covers what is not archived."""
        document = read_document(name, raw)
        document.verify(self._hub)
        if self._last is not None:
            document.verify_follows(self._last)
        self._last = document
        for place in places(document):
            if place not in self._held:
                raise Untrusted(f"the archive lacks the checkpoint of a stream at {place[1]}")


def places(document: RecorderCheckpoint) -> list[Place]:
    """The label and tree size of every checkpoint that a document covers."""
    routing = routing_key(document.hub_id)
    return [
        (derive_label(routing, end.stream_id, 0), end.last_seq)
        for end in document.ends
        if end.last_seq
    ]


@dataclass(frozen=True, slots=True, order=True)
class Flaw:
    key: str
    what: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ArchiveVerified:
    manifest: bytes
    labels: int
    entries: int
    segments: int
    stored_bytes: int
    roots: dict[bytes, bytes]
    """The manifest root of each label."""
    hub: HubIdentity | None
    """The identity that signatures were verified with; None if none is known."""
    flaws: tuple[Flaw, ...]

    @property
    def ok(self) -> bool:
        return not self.flaws


class _ArchiveCheck:
    """Collects all flaws instead of stopping at the first."""

    def __init__(
        self, archive: HubArchive, scratch: Path | None, known: HubIdentity | None
    ) -> None:
        self._archive = archive
        self._known = known
        self._scratch = scratch
        self._flaws: set[Flaw] = set()

    def run(self, progress: Progress) -> ArchiveVerified:
        sha256, manifest = self._archive.latest_with_hash()
        hub, keys = self._documents(manifest), self._archive.keys
        manifests = [label for label in map(self._label, manifest.labels) if label is not None]
        total = sum(len([*objects_of_label(keys, label)]) for label in manifests)
        steps = ProgressCounter(total, progress)
        steps.begin()
        for label in manifests:
            self._check_label(label, hub, steps)
        steps.finish()
        held = {(label.label, upto) for label in manifests for upto in label.checkpoints()}
        self._bindings(manifest, held)
        documents = self._recorder(manifest, hub, held)
        return ArchiveVerified(
            manifest=sha256,
            labels=len(manifests),
            entries=sum(label.end_seq for label in manifests),
            segments=sum(len(label.segments) for label in manifests),
            stored_bytes=sum(label.stored_bytes for label in manifests) + documents.stored_bytes,
            roots={label.label: label.root for label in manifests},
            hub=hub,
            flaws=tuple(sorted(self._flaws)),
        )

    def _documents(self, manifest: ArchiveManifest) -> HubIdentity | None:
        keys = self._archive.keys
        for expected in documents_of_manifest(keys, manifest):
            self._try(expected.key, partial(self._archive.version, expected.sha256))
        if manifest.escrow is not None:
            self._try(keys.version(manifest.escrow), lambda: self._escrow(manifest))
        hub = self._try(keys.version(manifest.identity), lambda: self._archive.identity(manifest))
        if hub is not None:
            self._try(keys.version(manifest.key_map), lambda: self._key_map(manifest, hub))
        if self._known is None or hub is None:
            return self._known or hub
        follow = partial(newest_identity, self._known, hub)
        return self._try(keys.version(manifest.identity), follow) or self._known

    def _escrow(self, manifest: ArchiveManifest) -> None:
        document = self._archive.document(manifest.escrow or b"", Escrow)
        if document.hub_id != manifest.hub_id:
            raise Untrusted("the escrow is of another hub")

    def _key_map(self, manifest: ArchiveManifest, hub: HubIdentity) -> None:
        expected = cbor.dump([[key.key_id, key.hub_pk] for key in hub.hub_keys])
        if self._archive.version(manifest.key_map) != expected:
            raise Untrusted("the key map does not match the hub identity")

    def _bindings(self, manifest: ArchiveManifest, held: set[Place]) -> None:
        def check() -> None:
            lines = whole_bindings(self._archive.version(manifest.binding))
            lost = held - {(line.label, line.upto_seq) for line in lines}
            if lost:
                label, upto = min(lost)
                raise Untrusted(f"checkpoint {upto} of label {label.hex()} has no binding")

        self._try(self._archive.keys.version(manifest.binding), check)

    def _recorder(
        self, manifest: ArchiveManifest, hub: HubIdentity | None, held: set[Place]
    ) -> RecorderManifest:
        keys = self._archive.keys
        key = keys.version(manifest.recorder) if manifest.recorder else ""
        recorder = self._try(key, lambda: self._archive.recorder(manifest)) or NO_DOCUMENTS
        check = RecorderCheck(hub, held) if hub is not None else None
        for piece, expected in zip(
            recorder.pieces, objects_of_recorder(keys, recorder), strict=True
        ):
            raw = self._try(expected.key, partial(self._present, expected))
            if raw is not None and check is not None:
                self._try(expected.key, partial(check.take, piece.name, raw))
        return recorder

    def _label(self, ref: LabelRef) -> LabelManifest | None:
        key = self._archive.keys.version(ref.sha256)
        return self._try(key, lambda: self._archive.label_of(ref))

    def _check_label(
        self, label: LabelManifest, hub: HubIdentity | None, steps: ProgressCounter
    ) -> None:
        keys = self._archive.keys
        small: dict[str, bytes] = {}
        for expected in objects_of_label(keys, label):
            raw = self._try(expected.key, partial(self._present, expected))
            steps.add()
            if raw is not None:
                small[expected.key] = raw
        for segment in label.segments:
            key = keys.file(layout.chunk(segment.name(label.label)))
            self._try(key, partial(self._segment, label, segment, hub, small))
        if label.index is not None:
            key = keys.version(label.index)
            self._try(key, partial(self._index, label, small.get(key, b"")))

    def _present(self, object_: ArchiveObject) -> bytes | None:
        """Read a small object; of a bulk object verify the size, and with read_all its bytes."""
        if not object_.is_bulk:
            return self._archive.objects.get(object_.key, expect=object_.sha256)
        size = self._archive.objects.size(object_.key)
        if size != object_.size:
            raise Untrusted(f"expected {object_.size} bytes, got {size}")
        if self._scratch is not None:
            self._archive.read_back(object_.key, size, object_.sha256, self._scratch)
        return None

    def _segment(
        self,
        label: LabelManifest,
        segment: ArchivedSegment,
        hub: HubIdentity | None,
        small: dict[str, bytes],
    ) -> None:
        """Verify that summary, peaks and checkpoint of a segment agree, and that the hub has signed
        it."""
        name = segment.name(label.label)
        summary = self._read(small, layout.summary(name), ChunkSummary)
        peaks = self._read(small, layout.peaks(name.label, name.end_seq), PeakSnapshot)
        end = self._read(small, layout.checkpoint(name.label, name.end_seq), Checkpoint)
        roots = {summary.mmr_root_end, end.mmr_root, peaks.to_peaks().root()}
        places = {
            (peaks.label, peaks.upto_seq),
            (end.label_curr, end.upto_seq),
            (summary.label, summary.end_seq),
        }
        claimed = (summary.start_seq, summary.total_bytes, end.epoch, h(summary.encode()))
        expected = (segment.start_seq, segment.size, segment.epoch, segment.summary_sha256)
        if len(roots) != 1 or places != {(name.label, name.end_seq)} or claimed != expected:
            raise Untrusted("manifest, summary, peaks and checkpoint disagree")
        if hub is not None:
            hub.verify_checkpoint(end, DEFAULT_PROFILE, not_before=segment.last_ts)
        if segment.is_pruned:
            self._tombstone(small, label, segment, hub)

    def _tombstone(
        self,
        small: dict[str, bytes],
        label: LabelManifest,
        segment: ArchivedSegment,
        hub: HubIdentity | None,
    ) -> None:
        name = segment.name(label.label)
        tombstone = self._read(small, tombstone_file(name), Tombstone)
        leaves = {piece.sha256 for piece in label.pieces if piece.name == leaf_file(name)}
        claimed = (tombstone.label, tombstone.start_seq, tombstone.end_seq, tombstone.chunk_sha256)
        if claimed != (*name, segment.sha256) or leaves != {tombstone.leaves_sha256}:
            raise Untrusted("the tombstone is of another chunk, or of other leaves")
        if hub is not None:
            tombstone.verify(hub)

    def _index(self, label: LabelManifest, raw: bytes) -> None:
        index = decode_checkpoint_index(raw)
        lost = {segment.end_seq for segment in label.segments} - set(index)
        if lost or not set(index) <= label.checkpoints():
            raise Untrusted(
                "the checkpoint index: expected the checkpoints of the label, got others"
            )

    def _read(self, small: dict[str, bytes], name: str, kind: type[W]) -> W:
        raw = small.get(self._archive.keys.file(name))
        if raw is None:
            raise Untrusted(f"{name} is missing")
        return kind.decode(raw)

    def _try(self, key: str, check: Callable[[], T]) -> T | None:
        try:
            return check()
        except _BAD as error:
            self._flaws.add(Flaw(key, str(error)))
            return None


def check(
    archive: HubArchive,
    *,
    read_all: bool,
    progress: Progress,
    known: HubIdentity | None = None,
) -> ArchiveVerified:
    """Verify one hub of a store; a store that does not answer is not a flaw, and raises.

    ``known`` is the newest identity of the hub that did not come from the store.
    """
    if not read_all:
        return _ArchiveCheck(archive, None, known).run(progress)
    with tempfile.TemporaryDirectory(prefix="veen-archive-") as scratch:
        return _ArchiveCheck(archive, Path(scratch), known).run(progress)
