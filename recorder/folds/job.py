"""Fold jobs: the request in terms of names, the job, its parallel plan, and its result.

Workers compute whole nodes of the same tree, so the merged result does not depend on their number
or on which worker computes which node.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Final

from recorder.archive.store import HubArchive
from recorder.folds.cache import NoCache, StoreCache
from recorder.folds.log import ArchivedLog, NotArchived, NothingArchived
from recorder.folds.source import ArchiveSource, FoldReader, Report, no_report
from veen.digest import ht
from veen.label import DEFAULT_PROFILE, EpochLabels, Profile, routing_key, stream_id
from veen.overlay.fold import (
    BLOCK,
    Fold,
    FoldSource,
    FoldSummary,
    Node,
    Scope,
    SeqRun,
    SignedRoot,
    SummaryAnchor,
    cover,
)
from veen.overlay.overlay import Event, Folded, Overlay
from veen.overlay.snapshot import Prefix, overlay_named
from veen.receipt import Receipt
from veen.wire.objects import WireMap
from veen.wire.schema import Bytes32, RawItem, Version

_NODES_PER_WORKER: Final = 4
"""More than one, so that a slow worker does not delay the others."""
_MAX_HEIGHT: Final = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class FoldJob:
    """What to fold, in a given state of an archive; the same job gives the same bytes anywhere."""

    hub_id: bytes
    manifest: bytes
    """The hash of the ArchiveManifest."""
    label: bytes
    overlay: str
    run: SeqRun
    block: int = BLOCK
    keeps_summaries: bool = False

    def fold(self, source: FoldSource) -> Fold[Any]:
        return Fold(overlay_named(self.overlay), self.label, source, self.block)

    def source(
        self, archive: HubArchive, reader: FoldReader, report: Report = no_report
    ) -> ArchiveSource:
        cache = StoreCache(archive.objects) if self.keeps_summaries else NoCache()
        log = ArchivedLog(archive, self.manifest, self.label, cache=cache, block=self.block)
        return ArchiveSource(log, overlay_named(self.overlay), reader, cache=cache, report=report)


@dataclass(frozen=True, slots=True, kw_only=True)
class FoldResult(WireMap):
    """The result of a fold, and the signed root that it covers."""

    ver: Version = 1
    hub_id: Bytes32
    label: Bytes32
    overlay: str
    schema_set: Bytes32
    from_seq: int
    to_seq: int
    mmr_root: Bytes32
    anchor: SummaryAnchor
    folded: RawItem

    def digest(self) -> bytes:
        return ht("veen/fold-result", self.encode())

    def known(self) -> Overlay[Any]:
        return overlay_named(self.overlay)

    def opened(self) -> Folded[Any]:
        return self.known().decode(self.folded)

    def prefix(self) -> Prefix[Any]:
        """The result as the prefix of a snapshot, which covers all messages up to a position."""
        if self.from_seq != 1:
            raise NotArchived(
                f"a snapshot: expected the whole log from 1 on, got a range from {self.from_seq} on"
            )
        return Prefix(
            overlay=self.known(),
            label=self.label,
            upto_seq=self.to_seq,
            mmr_root=self.mmr_root,
            state=self.opened().state,
        )


def carry_out(job: FoldJob, source: FoldSource) -> FoldResult:
    """Run a fold in this process."""
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


@dataclass(frozen=True, slots=True)
class FoldedNode:
    """The encoded summary of a node, with the receipt that gives its root."""

    node: Node
    summary: bytes
    receipt: bytes


@dataclass(frozen=True, slots=True)
class FoldPlan:
    """The nodes to compute, and the cached summaries around them."""

    due: tuple[Node, ...]
    cached: dict[Node, FoldSummary]


def make(job: FoldJob, source: ArchiveSource, node: Node) -> FoldedNode:
    """Compute one node; this is the task of a worker."""
    fold = job.fold(source)
    folded = fold.node(node)
    receipt = source.log.entry(node.run.to_seq).receipt
    scope, root = Scope(fold.overlay, job.label), SignedRoot.of_receipt(receipt)
    summary = FoldSummary.of(scope, node, root, fold.overlay.encode(folded))
    return FoldedNode(node, summary.encode(), receipt.encode())


def plan(job: FoldJob, source: FoldSource, height: int) -> FoldPlan:
    """Choose the nodes of at most ``height`` that have no cached summary."""
    due: list[Node] = []
    cached: dict[Node, FoldSummary] = {}
    waiting = [piece for piece in cover(job.run, job.block) if isinstance(piece, Node)]
    while waiting:
        node = waiting.pop()
        summary = source.summary(node)
        if summary is not None:
            cached[node] = summary
        elif node.height > height:
            waiting.extend(node.children)
        else:
            due.append(node)
    return FoldPlan(tuple(sorted(due)), cached)


def height_for(job: FoldJob, workers: int) -> int:
    """The height of the nodes that workers compute."""
    blocks = job.run.size // job.block
    return min(
        max(blocks // (_NODES_PER_WORKER * max(workers, 1)), 1).bit_length() - 1, _MAX_HEIGHT
    )


class PreparedSource:
    """A source with the cached summaries of a plan and those that workers computed."""

    def __init__(self, source: FoldSource, plan: FoldPlan, made: Iterable[FoldedNode]) -> None:
        self._source = source
        self._summaries = dict(plan.cached)
        self._roots: dict[int, SignedRoot] = {}
        for node in made:
            self._summaries[node.node] = FoldSummary.decode(node.summary)
            root = SignedRoot.of_receipt(Receipt.decode(node.receipt))
            self._roots[node.node.run.to_seq] = root

    def summary(self, node: Node) -> FoldSummary | None:
        return self._summaries.get(node)

    def keep(self, summary: FoldSummary) -> None:
        self._source.keep(summary)

    def root(self, upto_seq: int) -> SignedRoot:
        return self._roots.get(upto_seq) or self._source.root(upto_seq)

    def events(self, run: SeqRun) -> Iterable[Event]:
        return self._source.events(run)


@dataclass(frozen=True, slots=True, kw_only=True)
class FoldRequest:
    """A fold in terms of stream and overlay names."""

    stream: str
    overlay: str
    profile: Profile = DEFAULT_PROFILE
    epoch: int = 0
    from_seq: int = 1
    to_seq: int | None = None
    """None for the end of the archived stream."""
    block: int = BLOCK
    keeps_summaries: bool = False

    def label(self, hub_id: bytes) -> bytes:
        return EpochLabels(routing_key(hub_id), stream_id(self.stream), self.profile).at(self.epoch)

    def end_seq(self, archive: HubArchive) -> int:
        """The last archived stream_seq."""
        return self._end(archive)[1]

    def job(self, archive: HubArchive) -> FoldJob:
        """The job for the current state of the archive."""
        manifest, end = self._end(archive)
        upto = end if self.to_seq is None else self.to_seq
        if upto > end or self.from_seq > upto:
            raise NotArchived(
                f"{self.stream} is archived from 1 to {end}: "
                f"nothing to fold from {self.from_seq} to {upto}"
            )
        return FoldJob(
            hub_id=archive.keys.hub_id,
            manifest=manifest,
            label=self.label(archive.keys.hub_id),
            overlay=self.overlay,
            run=SeqRun(self.from_seq, upto),
            block=self.block,
            keeps_summaries=self.keeps_summaries,
        )

    def _end(self, archive: HubArchive) -> tuple[bytes, int]:
        sha256, manifest = archive.latest_with_hash()
        ref = manifest.ref(self.label(archive.keys.hub_id))
        if ref is None or not ref.end_seq:
            epoch = f" in epoch {self.epoch}" if self.profile.epoch_sec else ""
            raise NothingArchived(f"the archive holds nothing of stream {self.stream}{epoch}")
        return sha256, ref.end_seq
