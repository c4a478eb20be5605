"""Restoring a data directory from an archive, completely or up to a hub_ts."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from recorder.archive import escrow as escrows
from recorder.archive.escrow import Seeds
from recorder.archive.manifest import (
    ArchivedFile,
    ArchivedSegment,
    ArchiveManifest,
    LabelManifest,
    TailSegment,
)
from recorder.archive.push import read_document
from recorder.archive.source import EntryFrame, Place, walk_frames
from recorder.archive.store import HubArchive
from recorder.archive.verify import places
from veen.errors import Untrusted, VeenError
from veen.hub_identity import whole_bindings
from veen.limits import Limits
from veen.log import layout
from veen.log.chunk import decode_checkpoint_index, encode_checkpoint_index
from veen.log.layout import OpenChunkName, leaf_file, tombstone_file
from veen.system import durable
from veen.system.environment import Progress, ProgressCounter


class CannotCut(VeenError):
    """The archive does not hold what this prefix needs."""


@dataclass(frozen=True, slots=True)
class RestorePlan:
    """Sealed chunks that are restored as they are, and the chunk that is open after the cut."""

    segments: tuple[ArchivedSegment, ...]
    opened: ArchivedSegment | TailSegment | None


def stored_until(label: LabelManifest, at: int | None) -> RestorePlan:
    """Select the parts of a label with entries up to hub_ts ``at``; times never go back."""
    segments = [segment for segment in label.segments if at is None or segment.last_ts <= at]
    rest = label.parts[len(segments) :]
    opened = rest[0] if rest and (at is None or rest[0].first_ts <= at) else None
    if isinstance(opened, ArchivedSegment) and opened.is_pruned:
        raise CannotCut(
            f"{layout.chunk(opened.name(label.label))} was pruned before it was archived: "
            f"cut before hub_ts {opened.first_ts} or from {opened.last_ts} on"
        )
    return RestorePlan(tuple(segments), opened)


def pieces_until(
    label: LabelManifest, segments: tuple[ArchivedSegment, ...], end_seq: int
) -> list[ArchivedFile]:
    """Select the files that belong to the entries up to ``end_seq``."""
    names = [segment.name(label.label) for segment in segments]
    ranged = {kind(name) for name in names for kind in (layout.summary, tombstone_file, leaf_file)}
    return [
        piece
        for piece in label.pieces
        if piece.name in ranged or 0 < _upto(label.label, piece.name) <= end_seq
    ]


def _upto(label: bytes, name: str) -> int:
    """The tree size of a checkpoint or a peaks snapshot; 0 for other files."""
    checkpoint = layout.parse_checkpoint(name.replace("log/peaks-", "log/checkpoint-", 1))
    return checkpoint.upto_seq if checkpoint is not None and checkpoint.label == label else 0


class Occupied(VeenError):
    """The target of a restore exists already."""


@dataclass(frozen=True, slots=True)
class RestoredLabel:
    label: bytes
    end_seq: int
    last_ts: int
    checkpoints: frozenset[int]


@dataclass(frozen=True, slots=True, kw_only=True)
class RestoredArchive:
    hub_id: bytes
    manifest: bytes
    labels: tuple[RestoredLabel, ...]
    made_at: int
    """When the last recorder checkpoint was made; 0 without any."""

    @property
    def last_ts(self) -> int:
        """The hub_ts of the last entry; later receipts of the hub are not in the archive."""
        return max((label.last_ts for label in self.labels), default=0)

    @property
    def hub_time(self) -> int:
        """The latest time of anything that the hub signed here."""
        return max(self.last_ts, self.made_at)


Finish = Callable[[Path, RestoredArchive], None]
"""Called before the directory is renamed to its final name."""


class _Restore:
    def __init__(self, archive: HubArchive, root: Path, limits: Limits, at: int | None) -> None:
        self._archive = archive
        self._root = root
        self._limits = limits
        self._at = at

    def run(self, sha256: bytes, manifest: ArchiveManifest, progress: Progress) -> RestoredArchive:
        for folder in ("log", layout.RECORDER, escrows.KEYS):
            durable.make_directory(self._root / folder)
        labels = list(self._archive.labels(manifest))
        steps = ProgressCounter(sum(label.stored_bytes for label in labels), progress)
        steps.begin()
        all_labels = [self._label(label, steps) for label in labels]
        steps.finish()
        restored = tuple(label for label in all_labels if label.end_seq)
        self._documents(
            manifest, {(label.label, upto) for label in restored for upto in label.checkpoints}
        )
        made_at = self._recorder(manifest, {label.label: label.end_seq for label in restored})
        return RestoredArchive(
            hub_id=manifest.hub_id, manifest=sha256, labels=restored, made_at=made_at
        )

    def seeds(self, seeds: Seeds) -> None:
        for identifier, seed in sorted(seeds.items()):
            durable.write(self._root / escrows.KEYS / escrows.file_name(identifier), seed)

    def _label(self, label: LabelManifest, steps: ProgressCounter) -> RestoredLabel:
        plan = stored_until(label, self._at)
        end_seq = plan.segments[-1].end_seq if plan.segments else 0
        last_ts = plan.segments[-1].last_ts if plan.segments else 0
        if plan.opened is not None:
            last = self._opened(label.label, plan.opened)
            end_seq, last_ts = last.stream_seq, last.hub_ts
            steps.add(plan.opened.size)
        pieces = pieces_until(label, plan.segments, end_seq)
        for piece in pieces:
            self._archive.fetch_piece(piece, self._root)
            steps.add(piece.size)
        names = {piece.name for piece in pieces}
        for segment in plan.segments:
            name = segment.name(label.label)
            # As the directory was: pruned chunks stay pruned.
            if tombstone_file(name) not in names:
                target = self._root / layout.chunk(name)
                self._archive.fetch_segment(label.label, segment, target)
                steps.add(segment.size)
        checkpoints = {upto for upto in label.checkpoints() if upto <= end_seq}
        self._index(label, checkpoints)
        return RestoredLabel(label.label, end_seq, last_ts, frozenset(checkpoints))

    def _opened(self, label: bytes, part: ArchivedSegment | TailSegment) -> EntryFrame:
        """Restore the open chunk, cut after the last entry that belongs to it."""
        path = self._root / layout.open_chunk(OpenChunkName(label, part.start_seq))
        if isinstance(part, TailSegment):
            self._archive.fetch_tail(label, part, path)
        else:
            self._archive.fetch_segment(label, part, path)
        last = None
        with path.open("rb") as file:
            for frame in walk_frames(file, label, part.start_seq, self._limits):
                if self._at is not None and frame.hub_ts > self._at:
                    break
                last = frame
        if last is None:
            raise Untrusted(f"{path.name}: the manifest names entries that the archive lacks")
        with path.open("r+b") as file:
            durable.cut(file.fileno(), last.end)
        return last

    def _index(self, label: LabelManifest, checkpoints: set[int]) -> None:
        if label.index is None:
            return
        index = decode_checkpoint_index(self._archive.version(label.index))
        entries = {upto: index[upto] for upto in index if upto in checkpoints}
        if entries:
            path = self._root / layout.checkpoint_index(label.label)
            durable.write(path, encode_checkpoint_index(entries))

    def _recorder(self, manifest: ArchiveManifest, ends: dict[bytes, int]) -> int:
        """Restore the recorder checkpoints that cover nothing after the cut.

        Returns when the last was made.
        """
        made_at = 0
        for piece in self._archive.recorder(manifest).pieces:
            raw = self._archive.objects.get(
                self._archive.keys.file(piece.name), expect=piece.sha256
            )
            document = read_document(piece.name, raw)
            is_covered = all(upto <= ends.get(label, 0) for label, upto in places(document))
            if self._at is None or (is_covered and document.created_at <= self._at):
                durable.write(self._root / piece.name, raw)
                made_at = document.created_at
        return made_at

    def _documents(self, manifest: ArchiveManifest, held: set[Place]) -> None:
        lines = whole_bindings(self._archive.version(manifest.binding))
        content = b"".join(line.encode() for line in lines if (line.label, line.upto_seq) in held)
        durable.write(self._root / layout.CHECKPOINT_BINDING, content)
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
    finish: Finish = lambda _root, _restored: None,
) -> RestoredArchive:
    """Build a hub's data directory beside ``to``, and rename it once it is complete.

    With ``at``, each label is restored up to this hub_ts, as a consistent prefix of the hub.
    """
    sha256, manifest = archive.latest_with_hash()
    identity = archive.identity(manifest)
    _verify_settled(manifest, at)
    if to.exists() and any(to.iterdir()):
        raise Occupied(
            f"{to}: expected a directory that does not exist or is empty; choose another"
        )
    keys, building = seeds(manifest), _building(to)
    try:
        work = _Restore(archive, building, limits, at)
        restored = work.run(sha256, manifest, progress)
        work.seeds(escrows.in_use(keys, identity, restored.hub_time))
        finish(building, restored)
        durable.sync_directory(building)
        durable.rename(building, to)
    except BaseException:
        shutil.rmtree(building, ignore_errors=True)
        raise
    return restored


def _verify_settled(manifest: ArchiveManifest, at: int | None) -> None:
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
            f"{path} exists: another restore is running, or was interrupted; then delete it and "
            "try again"
        ) from None
    return path
