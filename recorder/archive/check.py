"""Whether an archive is complete and of one hub, by its manifests and small objects alone.

No segment is read: the store says how large it is, and its manifest, summary, peaks and signed
checkpoint must agree on the rest. ``read_all`` also reads every byte; whether the entries say
what the hub signed is for an audit. Signatures are judged by the newest identity of the hub that
is known from elsewhere: by the archive's own alone, nobody can tell whether a key has retired.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TypeVar

from recorder.archive import reach
from recorder.archive.escrow import Escrow
from recorder.archive.manifest import (
    NO_DOCUMENTS,
    ArchiveManifest,
    LabelManifest,
    LabelRef,
    RecorderManifest,
    Segment,
)
from recorder.archive.reach import Wanted
from recorder.archive.recorder_check import RecorderCheck
from recorder.archive.source import Place, bindings
from recorder.archive.steps import Progress, Steps
from recorder.archive.store import HubArchive
from veen import cbor, checkpoint_index, layout
from veen.audit import leaves
from veen.checkpoint import Checkpoint
from veen.chunk import ChunkSummary, PeakSnapshot
from veen.client.trust import newest
from veen.digest import h
from veen.errors import Malformed, Untrusted
from veen.hub_identity import HubIdentity
from veen.objects.port import ObjectMissing
from veen.profile import DEFAULT_PROFILE
from veen.tombstone import Tombstone
from veen.wire import WireObject

T = TypeVar("T")
W = TypeVar("W", bound=WireObject)
_BAD = (ObjectMissing, Untrusted, Malformed)


@dataclass(frozen=True, slots=True, order=True)
class Flaw:
    key: str
    what: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Checked:
    manifest: bytes
    labels: int
    entries: int
    segments: int
    stored_bytes: int
    roots: dict[bytes, bytes]
    """The manifest root of each label."""
    hub: HubIdentity | None
    """By which signatures were judged; None where neither the archive nor anyone else has one."""
    flaws: tuple[Flaw, ...]

    @property
    def ok(self) -> bool:
        return not self.flaws


class _Check:
    """Everything that is wrong is told, and nothing stops at the first flaw."""

    def __init__(
        self, archive: HubArchive, scratch: Path | None, known: HubIdentity | None
    ) -> None:
        self._archive = archive
        self._known = known
        self._scratch = scratch
        self._flaws: set[Flaw] = set()

    def run(self, progress: Progress) -> Checked:
        sha256, manifest = self._archive.latest_with_hash()
        hub, keys = self._documents(manifest), self._archive.keys
        found = [one for one in map(self._label, manifest.labels) if one is not None]
        steps = Steps(progress, sum(len([*reach.of_label(keys, one)]) for one in found))
        steps.begin()
        for label in found:
            self._check_label(label, hub, steps)
        steps.finish()
        held = {(label.label, upto) for label in found for upto in label.checkpoints()}
        self._bindings(manifest, held)
        documents = self._recorder(manifest, hub, held)
        return Checked(
            manifest=sha256,
            labels=len(found),
            entries=sum(one.end_seq for one in found),
            segments=sum(len(one.segments) for one in found),
            stored_bytes=sum(one.stored_bytes for one in found) + documents.stored_bytes,
            roots={one.label: one.root for one in found},
            hub=hub,
            flaws=tuple(sorted(self._flaws)),
        )

    def _documents(self, manifest: ArchiveManifest) -> HubIdentity | None:
        keys = self._archive.keys
        for wanted in reach.documents(keys, manifest):
            self._try(wanted.key, partial(self._archive.version, wanted.sha256))
        if manifest.escrow is not None:
            self._try(keys.version(manifest.escrow), lambda: self._escrow(manifest))
        hub = self._try(keys.version(manifest.identity), lambda: self._archive.identity(manifest))
        if hub is not None:
            self._try(keys.version(manifest.key_map), lambda: self._key_map(manifest, hub))
        if self._known is None or hub is None:
            return self._known or hub
        follow = partial(newest, self._known, hub)
        return self._try(keys.version(manifest.identity), follow) or self._known

    def _escrow(self, manifest: ArchiveManifest) -> None:
        found = self._archive.document(manifest.escrow or b"", Escrow)
        if found.hub_id != manifest.hub_id:
            raise Untrusted("the escrow is of another hub")

    def _key_map(self, manifest: ArchiveManifest, hub: HubIdentity) -> None:
        due = cbor.dump([[key.key_id, key.hub_pk] for key in hub.hub_keys])
        if self._archive.version(manifest.key_map) != due:
            raise Untrusted("the key map is not that of the identity")

    def _bindings(self, manifest: ArchiveManifest, held: set[Place]) -> None:
        def check() -> None:
            lines = bindings(self._archive.version(manifest.binding))
            lost = held - {(line.label, line.upto_seq) for line in lines}
            if lost:
                label, upto = min(lost)
                raise Untrusted(f"checkpoint {upto} of label {label.hex()} is not bound")

        self._try(self._archive.keys.version(manifest.binding), check)

    def _recorder(
        self, manifest: ArchiveManifest, hub: HubIdentity | None, held: set[Place]
    ) -> RecorderManifest:
        keys = self._archive.keys
        key = keys.version(manifest.recorder) if manifest.recorder else ""
        found = self._try(key, lambda: self._archive.recorder(manifest)) or NO_DOCUMENTS
        check = RecorderCheck(hub, held) if hub is not None else None
        for piece, wanted in zip(found.pieces, reach.of_recorder(keys, found), strict=True):
            raw = self._try(wanted.key, partial(self._present, wanted))
            if raw is not None and check is not None:
                self._try(wanted.key, partial(check.take, piece.name, raw))
        return found

    def _label(self, ref: LabelRef) -> LabelManifest | None:
        key = self._archive.keys.version(ref.sha256)
        return self._try(key, lambda: self._archive.label_of(ref))

    def _check_label(self, label: LabelManifest, hub: HubIdentity | None, steps: Steps) -> None:
        keys = self._archive.keys
        small: dict[str, bytes] = {}
        for wanted in reach.of_label(keys, label):
            raw = self._try(wanted.key, partial(self._present, wanted))
            steps.add()
            if raw is not None:
                small[wanted.key] = raw
        for segment in label.segments:
            key = keys.file(layout.chunk(segment.name(label.label)))
            self._try(key, partial(self._segment, label, segment, hub, small))
        if label.index is not None:
            key = keys.version(label.index)
            self._try(key, partial(self._index, label, small.get(key, b"")))

    def _present(self, wanted: Wanted) -> bytes | None:
        """A small object, read; of a large one that it is there, and only read_all reads it."""
        if not wanted.is_bulk:
            return self._archive.objects.get(wanted.key, expect=wanted.sha256)
        found = self._archive.objects.size(wanted.key)
        if found != wanted.size:
            raise Untrusted(f"{found} bytes, {wanted.size} are due")
        if self._scratch is not None:
            self._archive.read_back(wanted.key, found, wanted.sha256, self._scratch)
        return None

    def _segment(
        self,
        label: LabelManifest,
        segment: Segment,
        hub: HubIdentity | None,
        small: dict[str, bytes],
    ) -> None:
        """Summary, peaks and checkpoint tell the same of a segment, and the hub has signed it."""
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
        said = (summary.start_seq, summary.total_bytes, end.epoch, h(summary.encode()))
        due = (segment.start_seq, segment.size, segment.epoch, segment.summary_sha256)
        if len(roots) != 1 or places != {(name.label, name.end_seq)} or said != due:
            raise Untrusted("manifest, summary, peaks and checkpoint disagree")
        if hub is not None:
            hub.verify_checkpoint(end, DEFAULT_PROFILE, not_before=segment.last_ts)
        if segment.is_pruned:
            self._tombstone(small, label, segment, hub)

    def _tombstone(
        self,
        small: dict[str, bytes],
        label: LabelManifest,
        segment: Segment,
        hub: HubIdentity | None,
    ) -> None:
        name = segment.name(label.label)
        found = self._read(small, leaves.tombstone(name), Tombstone)
        left = {one.sha256 for one in label.pieces if one.name == leaves.leaves(name)}
        said = (found.label, found.start_seq, found.end_seq, found.chunk_sha256)
        if said != (*name, segment.sha256) or left != {found.leaves_sha256}:
            raise Untrusted("the tombstone tells of another chunk, or of other leaves")
        if hub is not None:
            found.verify(hub)

    def _index(self, label: LabelManifest, raw: bytes) -> None:
        index = checkpoint_index.decode(raw)
        lost = {one.end_seq for one in label.segments} - set(index)
        if lost or not set(index) <= label.checkpoints():
            raise Untrusted("the checkpoint index is not that of the label")

    def _read(self, small: dict[str, bytes], name: str, wanted: type[W]) -> W:
        raw = small.get(self._archive.keys.file(name))
        if raw is None:
            raise Untrusted(f"{name} is not to be had")
        return wanted.decode(raw)

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
) -> Checked:
    """Check one hub of a store. A store that does not answer is no flaw, and raises.

    ``known`` is the newest identity of the hub that did not come from the store.
    """
    if not read_all:
        return _Check(archive, None, known).run(progress)
    with tempfile.TemporaryDirectory(prefix="veen-archive-") as scratch:
        return _Check(archive, Path(scratch), known).run(progress)
