"""Copying what a hub has written into an archive: only what is new, each object read back.

One label on its way into an archive: what is new of it, and that it follows what is there.

Recorder checkpoints on their way into an archive, and that none of them was lost or changed.
"""

from __future__ import annotations

import tempfile
from collections.abc import Container, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from recorder.archive import escrow as escrows
from recorder.archive.escrow import Escrow, EscrowSealer
from recorder.archive.manifest import (
    NO_DOCUMENTS,
    ArchivedFile,
    ArchivedSegment,
    ArchiveManifest,
    LabelManifest,
    LabelRef,
    RecorderManifest,
    TailSegment,
)
from recorder.archive.source import DirectoryChanged, Documents, PushSource, begins_with_frames
from recorder.archive.store import HubArchive
from veen.audit.context import LabelStock
from veen.digest import h
from veen.errors import Malformed, Untrusted, VeenError
from veen.hub_identity import HubIdentity
from veen.log import layout
from veen.log.chunk import encode_checkpoint_index, manifest_root
from veen.log.entry import control_label
from veen.log.layout import ChunkName, OpenChunkName, RecorderName, leaf_file, tombstone_file
from veen.objects.port import HeadMoved, HeadUnknown, Store
from veen.recorder_checkpoint import RecorderCheckpoint
from veen.system.environment import ArchiveProgress, ArchiveSteps


class OldCopy(Untrusted):
    """The directory is behind its archive, or has gone another way."""


@dataclass(slots=True)
class Upload:
    """Puts what is not there yet, reads back what it has put, and counts it."""

    archive: HubArchive
    scratch: Path
    objects: int = 0
    sent: int = 0

    def document(self, raw: bytes, known: Container[bytes | None]) -> bytes:
        """Keep a document unless its hash is among those known to be there; its hash."""
        sha256 = h(raw)
        if sha256 not in known:
            if not self.archive.has(self.archive.keys.version(sha256), len(raw)):
                self._count(len(raw))
            self.archive.put_version(raw)
        return sha256

    def file(self, key: str, path: Path, size: int, sha256: bytes) -> None:
        """What counts is what the store gives out: an object is read back, our own or not."""
        if not self.archive.has(key, size):
            self.archive.objects.put_file(key, path)
            self._count(size)
        self.archive.read_back(key, size, sha256, self.scratch)

    def _count(self, size: int) -> None:
        self.objects += 1
        self.sent += size


class LabelPush:
    """``known`` is the label as it was archived before; what it names is not read again."""

    def __init__(
        self,
        source: PushSource,
        upload: Upload,
        files: LabelStock,
        known: LabelManifest | None,
        steps: ArchiveSteps,
    ) -> None:
        self._source = source
        self._upload = upload
        self._files = files
        self._known = known
        self._steps = steps
        self._keys = upload.archive.keys
        self._copy = upload.scratch / "tail"

    def run(self) -> LabelManifest:
        """The label as it stands; every object that its manifest names is in the store."""
        # What moves is read before anything is sent: a busy label is sealed again and again.
        index = self._source.index(self._files.label)
        tail = self._copied_tail()
        self._refuse_other_past(tail)
        held = self._held(set(index))
        segments = tuple(self._segments())
        known = {self._known.index} if self._known else set()
        raw = encode_checkpoint_index({upto: index[upto] for upto in held if upto in index})
        manifest = LabelManifest(
            label=self._files.label,
            segments=segments,
            pieces=tuple(self._pieces(held)),
            root=manifest_root(self._files.label, (segment.key for segment in segments)),
            index=self._upload.document(raw, known) if held else None,
            tail=tail,
        )
        if self._known is not None and manifest.end_seq < self._known.end_seq:
            raise self._old(f"ends at {manifest.end_seq}, the archive at {self._known.end_seq}")
        self._put_tail(tail)
        return manifest

    def _held(self, listed: set[int]) -> set[int]:
        """Checkpoints to keep: those that are published. The hub completes the others later."""
        files = self._files
        here = {(files.label, upto) for upto in files.checkpoints & listed}
        published = {upto for _, upto in self._source.bound(here)}
        ends = {chunk.end_seq for chunk in files.chunks | files.tombstones}
        return published | ends | (self._known.checkpoints() if self._known else set())

    def _refuse_other_past(self, tail: TailSegment | None) -> None:
        """The root of the last sealed chunk stands for all before it, a tail for itself."""
        if self._known is None:
            return
        if self._known.segments:
            last = self._known.segments[-1]
            file = layout.summary(last.name(self._files.label))
            if not (self._source.root / file).exists():
                raise self._old(f"has no {file}")
            if self._source.piece(file).sha256 != last.summary_sha256:
                raise self._old(f"has another {file} than the archive")
        if self._known.tail is not None and not self._goes_on(self._known.tail, tail):
            start = self._known.tail.start_seq
            raise self._old(f"has other entries from {start} on than the archive, or fewer")

    def _goes_on(self, known: TailSegment, tail: TailSegment | None) -> bool:
        """Whether the chunk that was open then begins with what was archived of it."""
        before = self._upload.scratch / "before"
        if tail is not None and tail.start_seq == known.start_seq:
            return begins_with_frames(self._copy, known.size, known.sha256, before)
        sealed = [chunk for chunk in self._files.chunks if chunk.start_seq == known.start_seq]
        gone = [
            tombstone
            for tombstone in self._files.tombstones
            if tombstone.start_seq == known.start_seq
        ]
        if sealed:
            file = self._source.root / layout.chunk(sealed[0])
            return begins_with_frames(file, known.size, known.sha256, before)
        return bool(gone)

    def _segments(self) -> Iterator[ArchivedSegment]:
        archived = (
            {segment.start_seq: segment for segment in self._known.segments} if self._known else {}
        )
        for name in sorted(self._files.chunks | self._files.tombstones):
            value = archived.get(name.start_seq)
            if value is not None and value.end_seq != name.end_seq:
                raise self._old(f"has a chunk to {name.end_seq}, the archive to {value.end_seq}")
            is_new = value is None or (value.is_pruned and name in self._files.chunks)
            yield self._new_segment(name) if is_new or value is None else value
            self._steps.add()

    def _new_segment(self, name: ChunkName) -> ArchivedSegment:
        if name not in self._files.chunks:
            return self._source.pruned_segment(name)
        result, file = self._source.segment(name), layout.chunk(name)
        self._put(ArchivedFile(name=file, size=result.size, sha256=result.sha256))
        return result

    def _pieces(self, held: set[int]) -> Iterator[ArchivedFile]:
        archived = {piece.name: piece for piece in self._known.pieces} if self._known else {}
        for name in sorted({*_names(self._files, held), *archived}):
            yield archived.get(name) or self._put(self._source.piece(name))
            self._steps.add()

    def _copied_tail(self) -> TailSegment | None:
        ends = (chunk.end_seq for chunk in self._files.chunks | self._files.tombstones)
        opened = OpenChunkName(self._files.label, max(ends, default=0) + 1)
        if opened not in self._files.opened:
            return None
        return self._source.tail(opened, self._copy, self._known.end_seq if self._known else 0)

    def _put_tail(self, tail: TailSegment | None) -> None:
        if tail is not None and tail != (self._known and self._known.tail):
            key = self._keys.tail(self._files.label, tail.start_seq, tail.end_seq)
            self._upload.file(key, self._copy, tail.size, tail.sha256)

    def _put(self, piece: ArchivedFile) -> ArchivedFile:
        path = self._source.root / piece.name
        self._upload.file(self._keys.file(piece.name), path, piece.size, piece.sha256)
        return piece

    def _old(self, what: str) -> OldCopy:
        label = self._files.label.hex()
        return OldCopy(f"label {label} of the directory {what}: it is an old or another copy")


def files_in(files: LabelStock) -> int:
    """About how many files a push looks at."""
    chunks = files.chunks | files.tombstones
    return len(chunks) + len(_names(files, {chunk.end_seq for chunk in chunks}))


def _names(files: LabelStock, held: set[int]) -> set[str]:
    label = files.label
    return {
        *(layout.summary(chunk) for chunk in files.chunks | files.tombstones),
        *(layout.peaks(label, upto) for upto in files.peaks),
        *(layout.checkpoint(label, upto) for upto in held),
        *(tombstone_file(tombstone) for tombstone in files.tombstones),
        *(leaf_file(tombstone) for tombstone in files.tombstones),
    }


def push_recorder(
    source: PushSource, upload: Upload, names: list[str], known: RecorderManifest
) -> RecorderManifest:
    """Those of ``names``, which were there before any label was read: their checkpoints are too."""
    archived = {piece.name: piece for piece in known.pieces}
    lost = sorted(archived.keys() - names)
    if lost:
        raise OldCopy(f"the directory has no {lost[0]}, the archive has: it is an old copy")
    pieces = (archived.get(name) or _put(source, upload, name) for name in sorted(names))
    return RecorderManifest(pieces=tuple(pieces))


def read_document(name: str, raw: bytes) -> RecorderCheckpoint:
    """The document in a file of this name; Untrusted when it is another or none."""
    try:
        checkpoint = RecorderCheckpoint.decode(raw)
    except Malformed as error:
        raise Untrusted(f"{name} is damaged: {error}: run `veen hub verify`") from error
    if layout.parse_recorder_checkpoint(name) != RecorderName.of(
        checkpoint.created_at, checkpoint.checkpoint_id
    ):
        raise Untrusted(f"{name} holds another document than its name says: run `veen hub verify`")
    return checkpoint


def _put(source: PushSource, upload: Upload, name: str) -> ArchivedFile:
    path, piece = source.root / name, source.piece(name)
    read_document(name, path.read_bytes())
    upload.file(upload.archive.keys.file(name), path, piece.size, piece.sha256)
    return piece


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

    def __init__(self, source: PushSource, archive: HubArchive, upload: Upload) -> None:
        self._source = source
        self._archive = archive
        self._upload = upload
        self._head = archive.head()
        value = self._head.value
        self._previous = None if value is None else archive.document(value, ArchiveManifest)
        self._known = _hashes(self._previous) if self._previous else frozenset()

    def run(self, sealer: EscrowSealer | None, progress: ArchiveProgress) -> Pushed:
        recorder = self._source.recorder_names()
        before = self._source.moment()
        labels = self._labels(progress)
        is_settled = self._source.moment() == before
        refs = tuple(sorted((self._ref(label) for label in labels), key=lambda ref: ref.label))
        # Read after the labels: no entry is signed by a key that the archive does not know.
        documents = self._source.documents()
        self._refuse_older(documents.identity)
        escrow = self._escrow(documents.identity, sealer, before.last_ts)
        held = {(label.label, upto) for label in labels for upto in label.checkpoints()}
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

    def _labels(self, progress: ArchiveProgress) -> list[LabelManifest]:
        """The control log comes last: it holds what the entries of all others stand on."""
        control = control_label(self._archive.keys.hub_id)
        inventory = self._source.inventory()
        names = sorted(inventory.labels, key=lambda item: (item == control, item))
        self._refuse_lost(set(names))
        steps = ArchiveSteps(progress, sum(map(files_in, inventory.labels.values())))
        steps.begin()
        result = []
        for label in names:
            known = self._archive.label(self._previous, label) if self._previous else None
            result.append(self._label(label, known, steps))
        steps.finish()
        return [item for item in result if item.end_seq]

    def _label(
        self, label: bytes, known: LabelManifest | None, steps: ArchiveSteps
    ) -> LabelManifest:
        """The label as it is now; what is renamed while we look makes us look again."""
        for _ in range(_TRIES):
            files = self._source.inventory().of(label)
            try:
                return LabelPush(self._source, self._upload, files, known, steps).run()
            except (FileNotFoundError, DirectoryChanged):
                continue
            except Untrusted:
                # A listing can miss a file that is renamed meanwhile.
                if self._source.inventory().of(label) == files:
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
        manifest = push_recorder(self._source, self._upload, names, known)
        return self._upload.document(manifest.encode(), self._known) if manifest.pieces else None

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

    def _escrow(
        self, identity: HubIdentity, sealer: EscrowSealer | None, hub_ts: int
    ) -> bytes | None:
        stored = self._previous.escrow if self._previous else None
        if sealer is None:
            return stored
        result = escrows.read_seeds(self._source.root / escrows.KEYS, identity)
        seeds = escrows.in_use(result, identity, hub_ts)
        if stored and sealer.has_sealed(self._archive.document(stored, Escrow), seeds):
            return stored
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


def push(
    source: PushSource, store: Store, *, sealer: EscrowSealer | None, progress: ArchiveProgress
) -> Pushed:
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
