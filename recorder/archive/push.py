"""Incremental copy of a hub's data directory into an archive, each object read back after writing.

For each label only new data is copied, and it must extend what the archive already holds. Recorder
checkpoints are copied with it; one that was lost or changed is an error.
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
from veen.system.environment import Progress, ProgressCounter

_MAX_TRIES: Final = 10


class OldCopy(Untrusted):
    """The directory is behind its archive, or has diverged from it."""


@dataclass(slots=True)
class Upload:
    """Writes missing objects, reads every object back, and counts what was written."""

    archive: HubArchive
    scratch: Path
    objects: int = 0
    sent: int = 0

    def document(self, raw: bytes, known: Container[bytes | None]) -> bytes:
        """Store a document unless its hash is in ``known``; return the hash."""
        sha256 = h(raw)
        if sha256 not in known:
            if not self.archive.has(self.archive.keys.version(sha256), len(raw)):
                self._count(len(raw))
            self.archive.put_version(raw)
        return sha256

    def file(self, key: str, path: Path, size: int, sha256: bytes) -> None:
        """Store a file unless the store has it, and read it back, whoever wrote it."""
        if not self.archive.has(key, size):
            self.archive.objects.put_file(key, path)
            self._count(size)
        self.archive.read_back(key, size, sha256, self.scratch)

    def _count(self, size: int) -> None:
        self.objects += 1
        self.sent += size


class LabelPush:
    """Copies a label; ``known`` is its last archived manifest, whose objects are not read again."""

    def __init__(
        self,
        source: PushSource,
        upload: Upload,
        files: LabelStock,
        known: LabelManifest | None,
        steps: ProgressCounter,
    ) -> None:
        self._source = source
        self._upload = upload
        self._files = files
        self._known = known
        self._steps = steps
        self._keys = upload.archive.keys
        self._copy = upload.scratch / "tail"

    def run(self) -> LabelManifest:
        """Return the current manifest of the label, with all its objects in the store."""
        # The changing parts are read before anything is sent, since a busy label is often sealed.
        index = self._source.index(self._files.label)
        tail = self._copied_tail()
        self._verify_continues(tail)
        held = self._archivable(set(index))
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

    def _archivable(self, listed: set[int]) -> set[int]:
        """The published checkpoints; the hub completes the others later."""
        files = self._files
        here = {(files.label, upto) for upto in files.checkpoints & listed}
        published = {upto for _, upto in self._source.bound(here)}
        ends = {chunk.end_seq for chunk in files.chunks | files.tombstones}
        return published | ends | (self._known.checkpoints() if self._known else set())

    def _verify_continues(self, tail: TailSegment | None) -> None:
        """The root of the last sealed chunk covers all entries before it; a tail covers itself."""
        if self._known is None:
            return
        if self._known.segments:
            last = self._known.segments[-1]
            file = layout.summary(last.name(self._files.label))
            if not (self._source.root / file).exists():
                raise self._old(f"has no {file}")
            if self._source.piece(file).sha256 != last.summary_sha256:
                raise self._old(f"has another {file} than the archive")
        if self._known.tail is not None and not self._extends_tail(self._known.tail, tail):
            start = self._known.tail.start_seq
            raise self._old(f"has other entries from {start} on than the archive, or fewer")

    def _extends_tail(self, known: TailSegment, tail: TailSegment | None) -> bool:
        """Whether the chunk that was open then begins with the archived tail."""
        before = self._upload.scratch / "before"
        if tail is not None and tail.start_seq == known.start_seq:
            return begins_with_frames(self._copy, known.size, known.sha256, before)
        sealed = [chunk for chunk in self._files.chunks if chunk.start_seq == known.start_seq]
        pruned = [
            tombstone
            for tombstone in self._files.tombstones
            if tombstone.start_seq == known.start_seq
        ]
        if sealed:
            file = self._source.root / layout.chunk(sealed[0])
            return begins_with_frames(file, known.size, known.sha256, before)
        return bool(pruned)

    def _segments(self) -> Iterator[ArchivedSegment]:
        archived = {known.start_seq: known for known in self._known.segments} if self._known else {}
        for name in sorted(self._files.chunks | self._files.tombstones):
            segment = archived.get(name.start_seq)
            if segment is not None and segment.end_seq != name.end_seq:
                raise self._old(f"has a chunk to {name.end_seq}, the archive to {segment.end_seq}")
            is_new = segment is None or (segment.is_pruned and name in self._files.chunks)
            yield self._new_segment(name) if is_new or segment is None else segment
            self._steps.add()

    def _new_segment(self, name: ChunkName) -> ArchivedSegment:
        if name not in self._files.chunks:
            return self._source.pruned_segment(name)
        segment, file = self._source.segment(name), layout.chunk(name)
        self._put(ArchivedFile(name=file, size=segment.size, sha256=segment.sha256))
        return segment

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
    """Estimate how many files a push reads."""
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
    """Push the recorder checkpoints ``names``, listed before any label was read, so that the
    checkpoints they cover are archived too."""
    archived = {piece.name: piece for piece in known.pieces}
    lost = sorted(archived.keys() - names)
    if lost:
        raise OldCopy(f"the directory lacks {lost[0]}, which is archived: it is an old copy")
    pieces = (archived.get(name) or _put(source, upload, name) for name in sorted(names))
    return RecorderManifest(pieces=tuple(pieces))


def read_document(name: str, raw: bytes) -> RecorderCheckpoint:
    """Decode the recorder checkpoint in a file of this name.

    Raises Untrusted when it is another or damaged.
    """
    try:
        checkpoint = RecorderCheckpoint.decode(raw)
    except Malformed as error:
        raise Untrusted(f"{name} is damaged: {error}; run veen hub verify") from error
    if layout.parse_recorder_checkpoint(name) != RecorderName.of(
        checkpoint.created_at, checkpoint.checkpoint_id
    ):
        raise Untrusted(
            f"{name}: expected the checkpoint of its name, got another; run veen hub verify"
        )
    return checkpoint


def _put(source: PushSource, upload: Upload, name: str) -> ArchivedFile:
    path, piece = source.root / name, source.piece(name)
    read_document(name, path.read_bytes())
    upload.file(upload.archive.keys.file(name), path, piece.size, piece.sha256)
    return piece


@dataclass(frozen=True, slots=True, kw_only=True)
class Pushed:
    hub_id: bytes
    manifest: bytes
    labels: int
    entries: int
    new_objects: int
    new_bytes: int
    is_escrowed: bool
    """Whether the escrow holds the hub's current key."""


class _Push:
    """An attempt to bring the head of an archive up to date with the directory."""

    def __init__(self, source: PushSource, archive: HubArchive, upload: Upload) -> None:
        self._source = source
        self._archive = archive
        self._upload = upload
        self._head = archive.head()
        value = self._head.value
        self._previous = None if value is None else archive.document(value, ArchiveManifest)
        self._known = _hashes(self._previous) if self._previous else frozenset()

    def run(self, sealer: EscrowSealer | None, progress: Progress) -> Pushed:
        recorder = self._source.recorder_names()
        before = self._source.moment()
        labels = self._labels(progress)
        is_settled = self._source.moment() == before
        refs = tuple(sorted((self._ref(label) for label in labels), key=lambda ref: ref.label))
        # Read after the labels, so that the archive knows the key of every entry.
        documents = self._source.documents()
        self._verify_identity(documents.identity)
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

    def _labels(self, progress: Progress) -> list[LabelManifest]:
        """Push all labels, the control log last, since the entries of the others depend on it."""
        control = control_label(self._archive.keys.hub_id)
        inventory = self._source.inventory()
        names = sorted(inventory.labels, key=lambda label: (label == control, label))
        self._verify_labels(set(names))
        steps = ProgressCounter(sum(map(files_in, inventory.labels.values())), progress)
        steps.begin()
        manifests = []
        for label in names:
            known = self._archive.label(self._previous, label) if self._previous else None
            manifests.append(self._label(label, known, steps))
        steps.finish()
        return [manifest for manifest in manifests if manifest.end_seq]

    def _label(
        self, label: bytes, known: LabelManifest | None, steps: ProgressCounter
    ) -> LabelManifest:
        """Push a label; a file that is renamed meanwhile causes another attempt."""
        for _ in range(_MAX_TRIES):
            files = self._source.inventory().of(label)
            try:
                return LabelPush(self._source, self._upload, files, known, steps).run()
            except (FileNotFoundError, DirectoryChanged):
                continue
            except Untrusted:
                # A directory listing can miss a file that is renamed meanwhile.
                if self._source.inventory().of(label) == files:
                    raise
        raise VeenError(
            f"a file of label {label.hex()} is missing, or the label changes faster than it can "
            "be read; run veen hub verify, or push again"
        )

    def _ref(self, manifest: LabelManifest) -> LabelRef:
        sha256 = self._upload.document(manifest.encode(), self._known)
        return LabelRef(label=manifest.label, end_seq=manifest.end_seq, sha256=sha256)

    def _recorder(self, names: list[str]) -> bytes | None:
        known = self._archive.recorder(self._previous) if self._previous else NO_DOCUMENTS
        manifest = push_recorder(self._source, self._upload, names, known)
        return self._upload.document(manifest.encode(), self._known) if manifest.pieces else None

    def _verify_labels(self, labels: set[bytes]) -> None:
        for ref in self._previous.labels if self._previous else ():
            if ref.label not in labels:
                raise OldCopy(f"the directory has nothing of the archived label {ref.label.hex()}")

    def _verify_identity(self, identity: HubIdentity) -> None:
        """A directory that lacks an archived key is an old copy, or another branch of the hub."""
        if self._previous is None:
            return
        archived = self._archive.identity(self._previous)
        known = [key.key_id for key in archived.hub_keys]
        if [key.key_id for key in identity.hub_keys][: len(known)] != known:
            raise OldCopy(
                "the archive has keys of this hub that the directory lacks: it is an old copy"
            )

    def _escrow(
        self, identity: HubIdentity, sealer: EscrowSealer | None, hub_ts: int
    ) -> bytes | None:
        archived = self._previous.escrow if self._previous else None
        if sealer is None:
            return archived
        keys = escrows.read_seeds(self._source.root / escrows.KEYS, identity)
        seeds = escrows.in_use(keys, identity, hub_ts)
        if archived and sealer.has_sealed(self._archive.document(archived, Escrow), seeds):
            return archived
        return self._upload.document(sealer.seal(identity.hub_id, seeds).encode(), ())

    def _is_escrowed(self, escrow: bytes | None, identity: HubIdentity) -> bool:
        if escrow is None:
            return False
        return identity.current.key_id in self._archive.document(escrow, Escrow).key_ids

    def _manifest(
        self, documents: Documents, binding: bytes, refs: tuple[LabelRef, ...]
    ) -> ArchiveManifest:
        put = self._upload.document
        return ArchiveManifest(
            hub_id=documents.identity.hub_id,
            identity=put(documents.identity_raw, self._known),
            identity_sig=put(documents.signature, self._known),
            key_map=put(documents.key_map, self._known),
            binding=put(binding, self._known),
            labels=refs,
            previous=self._head.value,
        )

    def _swap(self, manifest: ArchiveManifest) -> bytes:
        """Set the new head and return it; without changes, return the current head."""
        old, value = self._previous, self._head.value
        if old is not None and value and replace(manifest, previous=old.previous) == old:
            return value
        sha256 = self._upload.document(manifest.encode(), ())
        try:
            self._archive.heads.swap(self._head, sha256)
        except HeadUnknown:
            # The outcome is unknown: if the head is the hash that we wrote, the swap succeeded.
            if self._archive.head().value != sha256:
                raise
        return sha256


def push(
    source: PushSource, store: Store, *, sealer: EscrowSealer | None, progress: Progress
) -> Pushed:
    """Bring the archive of a hub up to date with its data directory; idempotent.

    Of two concurrent pushes, the later one starts again from what the other has archived.
    """
    archive = HubArchive(store, source.documents().identity.hub_id)
    with tempfile.TemporaryDirectory(prefix="veen-archive-") as scratch:
        upload = Upload(archive, Path(scratch))
        for _ in range(_MAX_TRIES):
            try:
                return _Push(source, archive, upload).run(sealer, progress)
            except HeadMoved:
                continue
    raise HeadMoved(f"other processes keep moving head {archive.keys.head}; try again later")


def _hashes(manifest: ArchiveManifest) -> frozenset[bytes]:
    """The hashes of the documents that a state names directly."""
    labels = (ref.sha256 for ref in manifest.labels)
    named = (manifest.identity, manifest.identity_sig, manifest.key_map, manifest.binding)
    recorder = () if manifest.recorder is None else (manifest.recorder,)
    return frozenset((*named, *recorder, *labels))
