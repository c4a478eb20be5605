"""One label on its way into an archive: what is new of it, and that it follows what is there."""

from __future__ import annotations

from collections.abc import Container, Iterator
from dataclasses import dataclass
from pathlib import Path

from recorder.archive import frames
from recorder.archive.manifest import LabelManifest, Piece, Segment, Tail
from recorder.archive.source import Source
from recorder.archive.steps import Steps
from recorder.archive.store import HubArchive
from veen import checkpoint_index, layout
from veen.audit import leaves
from veen.audit.stock import LabelStock
from veen.digest import h
from veen.errors import Untrusted
from veen.layout import ChunkName, OpenChunkName
from veen.manifest import manifest_root


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
        source: Source,
        upload: Upload,
        files: LabelStock,
        known: LabelManifest | None,
        steps: Steps,
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
        raw = checkpoint_index.encode({upto: index[upto] for upto in held if upto in index})
        found = LabelManifest(
            label=self._files.label,
            segments=segments,
            pieces=tuple(self._pieces(held)),
            root=manifest_root(self._files.label, (one.key for one in segments)),
            index=self._upload.document(raw, known) if held else None,
            tail=tail,
        )
        if self._known is not None and found.end_seq < self._known.end_seq:
            raise self._old(f"ends at {found.end_seq}, the archive at {self._known.end_seq}")
        self._put_tail(tail)
        return found

    def _held(self, listed: set[int]) -> set[int]:
        """Checkpoints to keep: those that are published. The hub completes the others later."""
        files = self._files
        here = {(files.label, upto) for upto in files.checkpoints & listed}
        published = {upto for _, upto in self._source.bound(here)}
        ends = {one.end_seq for one in files.chunks | files.tombstones}
        return published | ends | (self._known.checkpoints() if self._known else set())

    def _refuse_other_past(self, tail: Tail | None) -> None:
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

    def _goes_on(self, known: Tail, tail: Tail | None) -> bool:
        """Whether the chunk that was open then begins with what was archived of it."""
        before = self._upload.scratch / "before"
        if tail is not None and tail.start_seq == known.start_seq:
            return frames.begins_with(self._copy, known.size, known.sha256, before)
        sealed = [one for one in self._files.chunks if one.start_seq == known.start_seq]
        gone = [one for one in self._files.tombstones if one.start_seq == known.start_seq]
        if sealed:
            file = self._source.root / layout.chunk(sealed[0])
            return frames.begins_with(file, known.size, known.sha256, before)
        return bool(gone)

    def _segments(self) -> Iterator[Segment]:
        archived = {one.start_seq: one for one in self._known.segments} if self._known else {}
        for name in sorted(self._files.chunks | self._files.tombstones):
            found = archived.get(name.start_seq)
            if found is not None and found.end_seq != name.end_seq:
                raise self._old(f"has a chunk to {name.end_seq}, the archive to {found.end_seq}")
            is_new = found is None or (found.is_pruned and name in self._files.chunks)
            yield self._new_segment(name) if is_new or found is None else found
            self._steps.add()

    def _new_segment(self, name: ChunkName) -> Segment:
        if name not in self._files.chunks:
            return self._source.pruned_segment(name)
        found, file = self._source.segment(name), layout.chunk(name)
        self._put(Piece(name=file, size=found.size, sha256=found.sha256))
        return found

    def _pieces(self, held: set[int]) -> Iterator[Piece]:
        archived = {one.name: one for one in self._known.pieces} if self._known else {}
        for name in sorted({*_names(self._files, held), *archived}):
            yield archived.get(name) or self._put(self._source.piece(name))
            self._steps.add()

    def _copied_tail(self) -> Tail | None:
        ends = (one.end_seq for one in self._files.chunks | self._files.tombstones)
        opened = OpenChunkName(self._files.label, max(ends, default=0) + 1)
        if opened not in self._files.opened:
            return None
        return self._source.tail(opened, self._copy, self._known.end_seq if self._known else 0)

    def _put_tail(self, tail: Tail | None) -> None:
        if tail is not None and tail != (self._known and self._known.tail):
            key = self._keys.tail(self._files.label, tail.start_seq, tail.end_seq)
            self._upload.file(key, self._copy, tail.size, tail.sha256)

    def _put(self, piece: Piece) -> Piece:
        path = self._source.root / piece.name
        self._upload.file(self._keys.file(piece.name), path, piece.size, piece.sha256)
        return piece

    def _old(self, what: str) -> OldCopy:
        label = self._files.label.hex()
        return OldCopy(f"label {label} of the directory {what}: it is an old or another copy")


def files_in(files: LabelStock) -> int:
    """About how many files a push looks at."""
    chunks = files.chunks | files.tombstones
    return len(chunks) + len(_names(files, {one.end_seq for one in chunks}))


def _names(files: LabelStock, held: set[int]) -> set[str]:
    label = files.label
    return {
        *(layout.summary(one) for one in files.chunks | files.tombstones),
        *(layout.peaks(label, upto) for upto in files.peaks),
        *(layout.checkpoint(label, upto) for upto in held),
        *(leaves.tombstone(one) for one in files.tombstones),
        *(leaves.leaves(one) for one in files.tombstones),
    }
