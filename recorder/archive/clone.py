"""Copying an archive from one store to another: the same keys, the same bytes, the same head."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from recorder.archive.gc import ArchiveObject, objects_of_manifest, past_states
from recorder.archive.manifest import ArchiveManifest
from recorder.archive.push import OldCopy
from recorder.archive.store import HubArchive
from veen.objects.port import HeadUnknown, ObjectMissing, Store
from veen.system.environment import Progress, ProgressCounter


@dataclass(frozen=True, slots=True, kw_only=True)
class Cloned:
    hub_id: bytes
    manifest: bytes
    objects: int
    new_objects: int
    new_bytes: int
    lost: int
    """Objects that only earlier states refer to and that the store no longer has."""


class _Clone:
    def __init__(self, source: HubArchive, target: HubArchive, scratch: Path) -> None:
        self._source = source
        self._target = target
        self._scratch = scratch
        self._scratch_file = scratch / "copy"
        self._new = self._bytes = 0

    def run(self, progress: Progress) -> Cloned:
        sha256, manifest = self._source.latest_with_hash()
        self._source.identity(manifest)
        head = self._target.head()
        past = list(past_states(self._source, manifest))
        if head.value not in {None, sha256, *(known for known, _ in past)}:
            raise OldCopy("the target store has a state of this hub that the source store lacks")
        expected = dict.fromkeys(objects_of_manifest(self._source, sha256, manifest))
        steps = ProgressCounter(len(expected), progress)
        steps.begin()
        for object_ in expected:
            self._copy_object(object_)
            steps.add()
        seen = {object_.key for object_ in expected}
        lost = sum(self._copy_past_state(known, state, seen, steps) for known, state in past)
        if head.value != sha256:
            try:
                self._target.heads.swap(head, sha256)
            except HeadUnknown:
                if self._target.head().value != sha256:
                    raise
        return Cloned(
            hub_id=manifest.hub_id,
            manifest=sha256,
            objects=len(seen),
            new_objects=self._new,
            new_bytes=self._bytes,
            lost=lost,
        )

    def _copy_past_state(
        self, sha256: bytes, manifest: ArchiveManifest, seen: set[str], steps: ProgressCounter
    ) -> int:
        """Copy what is left of an earlier state; return how many objects are missing."""
        lost = 0
        try:
            for object_ in self._unseen(sha256, manifest, seen):
                try:
                    self._copy_object(object_)
                except ObjectMissing:
                    lost += 1
                steps.add()
        except ObjectMissing:
            lost += 1
        return lost

    def _unseen(
        self, sha256: bytes, manifest: ArchiveManifest, seen: set[str]
    ) -> Iterator[ArchiveObject]:
        for object_ in objects_of_manifest(self._source, sha256, manifest):
            if object_.key not in seen:
                seen.add(object_.key)
                yield object_

    def _copy_object(self, object_: ArchiveObject) -> None:
        """Copy an object unless the target has it; either way it is read back."""
        try:
            size = self._target.objects.size(object_.key)
        except ObjectMissing:
            self._source.objects.get_file(object_.key, self._scratch_file, expect=object_.sha256)
            self._target.objects.put_file(object_.key, self._scratch_file)
            size = self._scratch_file.stat().st_size
            self._new += 1
            self._bytes += size
        self._target.read_back(object_.key, size, object_.sha256, self._scratch)


def clone(store: Store, to: Store, hub_id: bytes, *, progress: Progress) -> Cloned:
    """Bring another store to the same state; after an interruption a second run continues."""
    with tempfile.TemporaryDirectory(prefix="veen-archive-") as scratch:
        source, target = HubArchive(store, hub_id), HubArchive(to, hub_id)
        return _Clone(source, target, Path(scratch)).run(progress)
