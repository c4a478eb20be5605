"""Building a data directory from an archive alone, whole or up to a hub_ts."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from recorder.archive import escrow as escrows
from recorder.archive import frames
from recorder.archive.cut import CannotCut, kept_until, pieces_until
from recorder.archive.escrow import Seeds
from recorder.archive.manifest import ArchiveManifest, LabelManifest, Segment, Tail
from recorder.archive.recorder_check import places
from recorder.archive.recorder_push import read_document
from recorder.archive.source import Place, bindings
from recorder.archive.steps import Progress, Steps
from recorder.archive.store import HubArchive
from veen import checkpoint_index, durable, layout
from veen.audit import leaves
from veen.errors import Untrusted, VeenError
from veen.layout import OpenChunkName
from veen.limits import Limits


class Occupied(VeenError):
    """Where a directory is to be restored, something is."""


@dataclass(frozen=True, slots=True)
class RestoredLabel:
    label: bytes
    end_seq: int
    last_ts: int
    checkpoints: frozenset[int]


@dataclass(frozen=True, slots=True, kw_only=True)
class Restored:
    hub_id: bytes
    manifest: bytes
    labels: tuple[RestoredLabel, ...]
    made_at: int
    """When the last recorder checkpoint was made; 0 where there is none."""

    @property
    def last_ts(self) -> int:
        """The hub_ts of the last entry; what the hub receipted later is not there."""
        return max((one.last_ts for one in self.labels), default=0)

    @property
    def hub_time(self) -> int:
        """The latest time that anything here was signed for."""
        return max(self.last_ts, self.made_at)


Finish = Callable[[Path, Restored], None]
"""What else is to be done before the directory gets its name."""


class _Restore:
    def __init__(self, archive: HubArchive, root: Path, limits: Limits, at: int | None) -> None:
        self._archive = archive
        self._root = root
        self._limits = limits
        self._at = at

    def run(self, sha256: bytes, manifest: ArchiveManifest, progress: Progress) -> Restored:
        for folder in ("log", layout.RECORDER, escrows.KEYS):
            durable.make_directory(self._root / folder)
        labels = list(self._archive.labels(manifest))
        steps = Steps(progress, sum(one.stored_bytes for one in labels))
        steps.begin()
        found = [self._label(one, steps) for one in labels]
        steps.finish()
        kept = tuple(one for one in found if one.end_seq)
        self._documents(manifest, {(one.label, upto) for one in kept for upto in one.checkpoints})
        made_at = self._recorder(manifest, {one.label: one.end_seq for one in kept})
        return Restored(hub_id=manifest.hub_id, manifest=sha256, labels=kept, made_at=made_at)

    def seeds(self, seeds: Seeds) -> None:
        for identifier, seed in sorted(seeds.items()):
            durable.write(self._root / escrows.KEYS / escrows.file_name(identifier), seed)

    def _label(self, label: LabelManifest, steps: Steps) -> RestoredLabel:
        kept = kept_until(label, self._at)
        end_seq = kept.segments[-1].end_seq if kept.segments else 0
        last_ts = kept.segments[-1].last_ts if kept.segments else 0
        if kept.opened is not None:
            last = self._opened(label.label, kept.opened)
            end_seq, last_ts = last.stream_seq, last.hub_ts
            steps.add(kept.opened.size)
        pieces = pieces_until(label, kept.segments, end_seq)
        for piece in pieces:
            self._archive.fetch_piece(piece, self._root)
            steps.add(piece.size)
        names = {one.name for one in pieces}
        for segment in kept.segments:
            name = segment.name(label.label)
            # As the directory was: what retention took away stays away.
            if leaves.tombstone(name) not in names:
                target = self._root / layout.chunk(name)
                self._archive.fetch_segment(label.label, segment, target)
                steps.add(segment.size)
        here = {upto for upto in label.checkpoints() if upto <= end_seq}
        self._index(label, here)
        return RestoredLabel(label.label, end_seq, last_ts, frozenset(here))

    def _opened(self, label: bytes, part: Segment | Tail) -> frames.Frame:
        """The chunk that grows on from here, cut after the last entry that belongs to it."""
        path = self._root / layout.open_chunk(OpenChunkName(label, part.start_seq))
        if isinstance(part, Tail):
            self._archive.fetch_tail(label, part, path)
        else:
            self._archive.fetch_segment(label, part, path)
        last = None
        with path.open("rb") as file:
            for one in frames.walk(file, label, part.start_seq, self._limits):
                if self._at is not None and one.hub_ts > self._at:
                    break
                last = one
        if last is None:
            raise Untrusted(f"{path.name}: the archive tells of entries that it does not hold")
        with path.open("r+b") as file:
            durable.cut(file.fileno(), last.end)
        return last

    def _index(self, label: LabelManifest, here: set[int]) -> None:
        if label.index is None:
            return
        index = checkpoint_index.decode(self._archive.version(label.index))
        kept = {upto: index[upto] for upto in index if upto in here}
        if kept:
            path = self._root / layout.checkpoint_index(label.label)
            durable.write(path, checkpoint_index.encode(kept))

    def _recorder(self, manifest: ArchiveManifest, ends: dict[bytes, int]) -> int:
        """The recorder checkpoints that speak of nothing after the cut; when the last was made."""
        made_at = 0
        for piece in self._archive.recorder(manifest).pieces:
            raw = self._archive.objects.get(
                self._archive.keys.file(piece.name), expect=piece.sha256
            )
            found = read_document(piece.name, raw)
            reaches = all(upto <= ends.get(label, 0) for label, upto in places(found))
            if self._at is None or (reaches and found.created_at <= self._at):
                durable.write(self._root / piece.name, raw)
                made_at = found.created_at
        return made_at

    def _documents(self, manifest: ArchiveManifest, held: set[Place]) -> None:
        lines = bindings(self._archive.version(manifest.binding))
        kept = b"".join(one.encode() for one in lines if (one.label, one.upto_seq) in held)
        durable.write(self._root / layout.CHECKPOINT_BINDING, kept)
        for name, sha256 in (
            (layout.IDENTITY, manifest.identity),
            (layout.IDENTITY_SIG, manifest.identity_sig),
            (layout.KEY_MAP, manifest.key_map),
        ):
            durable.write(self._root / name, self._archive.version(sha256))


def restore(
    archive: HubArchive,
    to: Path,
    *,
    seeds: Callable[[ArchiveManifest], Seeds],
    limits: Limits,
    progress: Progress,
    at: int | None = None,
    finish: Finish = lambda _root, _found: None,
) -> Restored:
    """Build the directory of a hub beside ``to``, and give it its name once it is whole.

    With ``at``, of every label only the entries up to this hub_ts: one prefix of the whole hub.
    """
    sha256, manifest = archive.latest_with_hash()
    identity = archive.identity(manifest)
    _refuse_unsettled(manifest, at)
    if to.exists() and any(to.iterdir()):
        raise Occupied(f"{to} is not empty: restore to a directory that is not there yet")
    keys, building = seeds(manifest), _building(to)
    try:
        work = _Restore(archive, building, limits, at)
        found = work.run(sha256, manifest, progress)
        work.seeds(escrows.in_use(keys, identity, found.hub_time))
        finish(building, found)
        durable.sync_directory(building)
        durable.rename(building, to)
    except BaseException:
        shutil.rmtree(building, ignore_errors=True)
        raise
    return found


def _refuse_unsettled(manifest: ArchiveManifest, at: int | None) -> None:
    since = manifest.unsettled_from
    if at is not None and since is not None and at >= since:
        raise CannotCut(
            f"the hub wrote during the last push: cut before hub_ts {since}, or push again"
        )


def _building(to: Path) -> Path:
    path = to.with_name(f"{to.name}.restoring")
    durable.make_directory(path.parent)
    try:
        path.mkdir(durable.DIR_MODE)
    except FileExistsError:
        raise Occupied(
            f"{path} is there: another restore runs, or was cut off; then delete it and try again"
        ) from None
    return path
