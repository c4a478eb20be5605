"""Copying what a hub has written into an archive: only what is new, each object read back."""

from __future__ import annotations

import tempfile
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from recorder.archive import escrow as escrows
from recorder.archive.escrow import Escrow, Sealer
from recorder.archive.label_push import LabelPush, OldCopy, Upload, files_in
from recorder.archive.manifest import NO_DOCUMENTS, ArchiveManifest, LabelManifest, LabelRef
from recorder.archive.recorder_push import push_recorder
from recorder.archive.source import Documents, Moved, Source
from recorder.archive.steps import Progress, Steps
from recorder.archive.store import HubArchive
from veen.control import control_label
from veen.errors import Untrusted, VeenError
from veen.hub_identity import HubIdentity
from veen.objects.opened import Store
from veen.objects.port import HeadMoved, HeadUnknown

_TRIES: Final = 10


@dataclass(frozen=True, slots=True, kw_only=True)
class Pushed:
    hub_id: bytes
    manifest: bytes
    labels: int
    entries: int
    new_objects: int
    new_bytes: int
    is_escrowed: bool
    """Whether the escrow holds the key with which the hub goes on."""


class _Push:
    """One attempt to bring the head of an archive to what the directory holds."""

    def __init__(self, source: Source, archive: HubArchive, upload: Upload) -> None:
        self._source = source
        self._archive = archive
        self._upload = upload
        self._head = archive.head()
        value = self._head.value
        self._previous = None if value is None else archive.document(value, ArchiveManifest)
        self._known = _hashes(self._previous) if self._previous else frozenset()

    def run(self, sealer: Sealer | None, progress: Progress) -> Pushed:
        recorder = self._source.recorder_names()
        before = self._source.moment()
        labels = self._labels(progress)
        is_settled = self._source.moment() == before
        refs = tuple(sorted((self._ref(one) for one in labels), key=lambda ref: ref.label))
        # Read after the labels: no entry is signed by a key that the archive does not know.
        documents = self._source.documents()
        self._refuse_older(documents.identity)
        escrow = self._escrow(documents.identity, sealer, before.last_ts)
        held = {(one.label, upto) for one in labels for upto in one.checkpoints()}
        manifest = replace(
            self._manifest(documents, self._source.bindings(held), refs),
            escrow=escrow,
            recorder=self._recorder(recorder),
            unsettled_from=None if is_settled else before.last_ts,
        )
        return Pushed(
            hub_id=manifest.hub_id,
            manifest=self._swap(manifest),
            labels=len(refs),
            entries=sum(ref.end_seq for ref in refs),
            new_objects=self._upload.objects,
            new_bytes=self._upload.sent,
            is_escrowed=self._is_escrowed(escrow, documents.identity),
        )

    def _labels(self, progress: Progress) -> list[LabelManifest]:
        """The control log comes last: it holds what the entries of all others stand on."""
        control = control_label(self._archive.keys.hub_id)
        stock = self._source.stock()
        names = sorted(stock.labels, key=lambda one: (one == control, one))
        self._refuse_lost(set(names))
        steps = Steps(progress, sum(map(files_in, stock.labels.values())))
        steps.begin()
        found = []
        for label in names:
            known = self._archive.label(self._previous, label) if self._previous else None
            found.append(self._label(label, known, steps))
        steps.finish()
        return [one for one in found if one.end_seq]

    def _label(self, label: bytes, known: LabelManifest | None, steps: Steps) -> LabelManifest:
        """The label as it is now; what is renamed while we look makes us look again."""
        for _ in range(_TRIES):
            files = self._source.stock().of(label)
            try:
                return LabelPush(self._source, self._upload, files, known, steps).run()
            except (FileNotFoundError, Moved):
                continue
            except Untrusted:
                # A listing can miss a file that is renamed meanwhile.
                if self._source.stock().of(label) == files:
                    raise
        raise VeenError(
            f"a file of label {label.hex()} is missing, or the label changes faster than it can "
            "be read: run `veen hub verify`, or push again"
        )

    def _ref(self, manifest: LabelManifest) -> LabelRef:
        sha256 = self._upload.document(manifest.encode(), self._known)
        return LabelRef(label=manifest.label, end_seq=manifest.end_seq, sha256=sha256)

    def _recorder(self, names: list[str]) -> bytes | None:
        known = self._archive.recorder(self._previous) if self._previous else NO_DOCUMENTS
        found = push_recorder(self._source, self._upload, names, known)
        return self._upload.document(found.encode(), self._known) if found.pieces else None

    def _refuse_lost(self, labels: set[bytes]) -> None:
        for ref in self._previous.labels if self._previous else ():
            if ref.label not in labels:
                raise OldCopy(f"the directory has nothing of the archived label {ref.label.hex()}")

    def _refuse_older(self, identity: HubIdentity) -> None:
        """A directory that lacks an archived key was put back, or is another branch of the hub."""
        if self._previous is None:
            return
        archived = self._archive.identity(self._previous)
        known = [key.key_id for key in archived.hub_keys]
        if [key.key_id for key in identity.hub_keys][: len(known)] != known:
            raise OldCopy("the archive knows keys of this hub that the directory does not")

    def _escrow(self, identity: HubIdentity, sealer: Sealer | None, hub_ts: int) -> bytes | None:
        kept = self._previous.escrow if self._previous else None
        if sealer is None:
            return kept
        found = escrows.read_seeds(self._source.root / escrows.KEYS, identity)
        seeds = escrows.in_use(found, identity, hub_ts)
        if kept and sealer.has_sealed(self._archive.document(kept, Escrow), seeds):
            return kept
        return self._upload.document(sealer.seal(identity.hub_id, seeds).encode(), ())

    def _is_escrowed(self, escrow: bytes | None, identity: HubIdentity) -> bool:
        if escrow is None:
            return False
        return identity.current.key_id in self._archive.document(escrow, Escrow).key_ids

    def _manifest(
        self, documents: Documents, binding: bytes, refs: tuple[LabelRef, ...]
    ) -> ArchiveManifest:
        keep = self._upload.document
        return ArchiveManifest(
            hub_id=documents.identity.hub_id,
            identity=keep(documents.identity_raw, self._known),
            identity_sig=keep(documents.signature, self._known),
            key_map=keep(documents.key_map, self._known),
            binding=keep(binding, self._known),
            labels=refs,
            previous=self._head.value,
        )

    def _swap(self, manifest: ArchiveManifest) -> bytes:
        """The new head; where nothing changed, the one that is there."""
        old, value = self._previous, self._head.value
        if old is not None and value and replace(manifest, previous=old.previous) == old:
            return value
        sha256 = self._upload.document(manifest.encode(), ())
        try:
            self._archive.heads.swap(self._head, sha256)
        except HeadUnknown:
            # The head is the hash of what we wrote: if it says so, it is done.
            if self._archive.head().value != sha256:
                raise
        return sha256


def push(source: Source, store: Store, *, sealer: Sealer | None, progress: Progress) -> Pushed:
    """Bring the archive of a hub up to its data directory; a second time changes nothing.

    Of two that push at once, the later one looks again at what the other has left to do.
    """
    archive = HubArchive(store, source.documents().identity.hub_id)
    with tempfile.TemporaryDirectory(prefix="veen-archive-") as scratch:
        upload = Upload(archive, Path(scratch))
        for _ in range(_TRIES):
            try:
                return _Push(source, archive, upload).run(sealer, progress)
            except HeadMoved:
                continue
    raise HeadMoved(f"others push to head {archive.keys.head} all the time: try again")


def _hashes(manifest: ArchiveManifest) -> frozenset[bytes]:
    """The documents that a state names itself."""
    labels = (ref.sha256 for ref in manifest.labels)
    named = (manifest.identity, manifest.identity_sig, manifest.key_map, manifest.binding)
    recorder = () if manifest.recorder is None else (manifest.recorder,)
    return frozenset((*named, *recorder, *labels))
