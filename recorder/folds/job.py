"""A fold as an order: of what, how far and by which overlay; and what it came to.

A fold by many hands: which nodes to make apart, and the merge of what they made.

The hands make whole nodes of the one tree, so however many there are, and whoever makes which,
the merge is the same.

What someone wants folded, by the names that people use.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Final

from recorder.archive.store import HubArchive
from recorder.folds.cache import NoCache, StoreCache
from recorder.folds.log import ArchivedLog, NotArchived, NothingArchived
from recorder.folds.source import ArchiveSource, FoldReader, Report, unheard
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


@dataclass(frozen=True, slots=True, kw_only=True)
class FoldJob:
    """What to fold, in one state of an archive; the same order gives the same bytes anywhere."""

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
    anchor: SummaryAnchor
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


def carry_out(job: FoldJob, source: FoldSource) -> FoldResult:
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


_EACH: Final = 4
"""Nodes for each hand, so that a slow one does not hold up the others."""
_MOST_HEIGHT: Final = 5


@dataclass(frozen=True, slots=True)
class FoldedNode:
    """A node's summary as it travels, with the receipt that gives its root."""

    node: Node
    summary: bytes
    receipt: bytes


@dataclass(frozen=True, slots=True)
class FoldPlan:
    """The nodes to be made, and the summaries that the cache has around them."""

    due: tuple[Node, ...]
    found: dict[Node, FoldSummary]


def make(job: FoldJob, source: ArchiveSource, node: Node) -> FoldedNode:
    """What one hand does."""
    fold = job.fold(source)
    folded = fold.node(node)
    receipt = source.log.entry(node.run.to_seq).receipt
    scope, root = Scope(fold.overlay, job.label), SignedRoot.of_receipt(receipt)
    summary = FoldSummary.of(scope, node, root, fold.overlay.encode(folded))
    return FoldedNode(node, summary.encode(), receipt.encode())


def plan(job: FoldJob, source: FoldSource, height: int) -> FoldPlan:
    """Nodes of at most ``height`` that nobody has a summary of."""
    due: list[Node] = []
    result: dict[Node, FoldSummary] = {}
    waiting = [piece for piece in cover(job.run, job.block) if isinstance(piece, Node)]
    while waiting:
        node = waiting.pop()
        cached = source.summary(node)
        if cached is not None:
            result[node] = cached
        elif node.height > height:
            waiting.extend(node.children)
        else:
            due.append(node)
    return FoldPlan(tuple(sorted(due)), result)


def height_for(job: FoldJob, hands: int) -> int:
    """How large the nodes are to be that are made apart."""
    blocks = job.run.size // job.block
    return min(max(blocks // (_EACH * max(hands, 1)), 1).bit_length() - 1, _MOST_HEIGHT)


class PreparedSource:
    """A source that has the summaries of a plan at hand, and of what was made by it."""

    def __init__(self, source: FoldSource, plan: FoldPlan, made: Iterable[FoldedNode]) -> None:
        self._source = source
        self._summaries = dict(plan.found)
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
    stream: str
    overlay: str
    profile: Profile = DEFAULT_PROFILE
    epoch: int = 0
    from_seq: int = 1
    to_seq: int | None = None
    """None for the end of what is archived."""
    block: int = BLOCK
    keeps_summaries: bool = False

    def label(self, hub_id: bytes) -> bytes:
        return EpochLabels(routing_key(hub_id), stream_id(self.stream), self.profile).at(self.epoch)

    def end_seq(self, archive: HubArchive) -> int:
        """The last stream_seq that is archived."""
        return self._end(archive)[1]

    def job(self, archive: HubArchive) -> FoldJob:
        """The order for it, in the archive as it is now."""
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
        manifest, result = archive.latest_with_hash()
        ref = result.ref(self.label(archive.keys.hub_id))
        if ref is None or not ref.end_seq:
            epoch = f" in epoch {self.epoch}" if self.profile.epoch_sec else ""
            raise NothingArchived(f"the archive holds nothing of stream {self.stream}{epoch}")
        return manifest, ref.end_seq
