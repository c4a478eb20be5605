"""A fold as an order: of what, how far and by which overlay; and what it came to."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from recorder.archive.store import HubArchive
from recorder.folds.cache import NoCache, StoreCache
from recorder.folds.log import ArchivedLog, NotArchived
from recorder.folds.reader import FoldReader
from recorder.folds.source import ArchiveSource, Report, unheard
from veen.digest import ht
from veen.overlay.fold import Fold, Source
from veen.overlay.overlay import Folded, Overlay
from veen.overlay.registry import overlay_named
from veen.overlay.snapshot import Prefix
from veen.overlay.summary import Anchor
from veen.overlay.tree import BLOCK, Run
from veen.schema import Bytes32, RawItem, Version
from veen.wire import WireMap


@dataclass(frozen=True, slots=True, kw_only=True)
class FoldJob:
    """What to fold, in one state of an archive; the same order gives the same bytes anywhere."""

    hub_id: bytes
    manifest: bytes
    """The hash of the ArchiveManifest."""
    label: bytes
    overlay: str
    run: Run
    block: int = BLOCK
    keeps_summaries: bool = False

    def fold(self, source: Source) -> Fold[Any]:
        return Fold(overlay_named(self.overlay), self.label, source, self.block)

    def source(
        self, archive: HubArchive, reader: FoldReader, report: Report = unheard
    ) -> ArchiveSource:
        cache = StoreCache(archive.objects) if self.keeps_summaries else NoCache()
        log = ArchivedLog(archive, self.manifest, self.label, cache=cache, block=self.block)
        return ArchiveSource(log, overlay_named(self.overlay), reader, cache=cache, report=report)


@dataclass(frozen=True, slots=True, kw_only=True)
class FoldResult(WireMap):
    """What a run has come to, and the signed root that it speaks for."""

    ver: Version = 1
    hub_id: Bytes32
    label: Bytes32
    overlay: str
    schema_set: Bytes32
    from_seq: int
    to_seq: int
    mmr_root: Bytes32
    anchor: Anchor
    folded: RawItem

    def digest(self) -> bytes:
        return ht("veen/fold-result", self.encode())

    def known(self) -> Overlay[Any]:
        return overlay_named(self.overlay)

    def opened(self) -> Folded[Any]:
        return self.known().decode(self.folded)

    def prefix(self) -> Prefix[Any]:
        """The same for a snapshot, which is of all messages up to a place."""
        if self.from_seq != 1:
            raise NotArchived(f"a snapshot is of the whole log, not of {self.from_seq} on")
        return Prefix(
            overlay=self.known(),
            label=self.label,
            upto_seq=self.to_seq,
            mmr_root=self.mmr_root,
            state=self.opened().state,
        )


def carry_out(job: FoldJob, source: Source) -> FoldResult:
    """Fold in this process, from whatever the source has."""
    fold = job.fold(source)
    folded = fold.over(job.run)
    root = source.root(job.run.to_seq)
    return FoldResult(
        hub_id=job.hub_id,
        label=job.label,
        overlay=job.overlay,
        schema_set=fold.overlay.schema_set(),
        from_seq=job.run.from_seq,
        to_seq=job.run.to_seq,
        mmr_root=root.mmr_root,
        anchor=root.anchor,
        folded=fold.overlay.encode(folded),
    )
