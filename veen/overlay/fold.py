"""Folding a label with cached summaries of a canonical tree (spec 11.3).

The tree has blocks of a fixed size, paired up level by level. Its shape depends on the block size
alone, so every fold of a log makes the same summaries, however the log is cut into chunks,
partitions or runs. A fold over any run uses O(log n) nodes and reads at most two partial blocks;
summaries it has to make are stored in the cache.

The digest of a summary detects damage, not malice: a writer of the cache can write a summary that
verifies. An auditor folds without the cache.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from enum import IntEnum
from typing import Any, Final, Generic, Protocol, TypeVar

from veen.checkpoint import Checkpoint
from veen.digest import h, ht
from veen.errors import Malformed, Untrusted, VeenError
from veen.overlay.overlay import Event, Folded, Overlay, S, fold_events
from veen.receipt import Receipt
from veen.wire.objects import WireArray, WireMap
from veen.wire.schema import Bytes32, Version

BLOCK: Final = 1_024

T = TypeVar("T")
Condition = Callable[[Folded[S]], bool]


class BadRange(VeenError, ValueError):
    """An invalid range of stream_seq or block size."""


@dataclass(frozen=True, slots=True, order=True)
class SeqRun:
    """The stream_seq from .. to, both included; empty if ``to_seq`` is ``from_seq`` - 1."""

    from_seq: int
    to_seq: int

    def __post_init__(self) -> None:
        if not 1 <= self.from_seq <= self.to_seq + 1:
            raise BadRange(f"expected a range of stream_seq, got {self.from_seq} to {self.to_seq}")

    @property
    def size(self) -> int:
        return self.to_seq - self.from_seq + 1


@dataclass(frozen=True, slots=True, order=True)
class Node:
    """The ``index``-th run of 2^height blocks, counted from 0."""

    block: int
    height: int
    index: int

    def __post_init__(self) -> None:
        if self.block < 1 or self.height < 0 or self.index < 0:
            raise BadRange(
                f"no fold node {self.index} of height {self.height} with blocks of {self.block}"
            )

    @property
    def run(self) -> SeqRun:
        span = self.block << self.height
        return SeqRun(self.index * span + 1, (self.index + 1) * span)

    @property
    def children(self) -> tuple[Node, Node]:
        left = Node(self.block, self.height - 1, 2 * self.index)
        return left, Node(self.block, self.height - 1, 2 * self.index + 1)


@dataclass(frozen=True, slots=True)
class TreeSteps(Generic[T]):
    """The operations of a walk: for a whole node, for a partial block, and to join two."""

    whole: Callable[[Node], T]
    part: Callable[[SeqRun], T]
    join: Callable[[T, T], T]


def over(run: SeqRun, block: int, steps: TreeSteps[T]) -> T:
    """Apply the steps to a run that is not empty, in the shape of the tree."""
    return _over(_top(run.to_seq, block), run, steps)


def cover(run: SeqRun, block: int) -> tuple[Node | SeqRun, ...]:
    """The fewest nodes within the run, with the partial blocks at its ends, in order."""
    if not run.size:
        return ()
    return over(run, block, TreeSteps(_alone, _alone, _concatenated))


def completed(run: SeqRun, block: int) -> Iterator[Node]:
    """Every node that ends in the run, children before parents: the nodes completed when a log
    grows by the run."""
    for last in range(-(-run.from_seq // block), run.to_seq // block + 1):
        for height in range((last & -last).bit_length()):
            yield Node(block, height, (last >> height) - 1)


def _over(node: Node, run: SeqRun, steps: TreeSteps[T]) -> T:
    own = node.run
    if run.from_seq <= own.from_seq and own.to_seq <= run.to_seq:
        return steps.whole(node)
    if node.height == 0:
        return steps.part(SeqRun(max(run.from_seq, own.from_seq), min(run.to_seq, own.to_seq)))
    left, right = node.children
    if run.to_seq <= left.run.to_seq:
        return _over(left, run, steps)
    if run.from_seq >= right.run.from_seq:
        return _over(right, run, steps)
    return steps.join(_over(left, run, steps), _over(right, run, steps))


def _top(to_seq: int, block: int) -> Node:
    """The lowest node that covers 1 to ``to_seq``."""
    if block < 1:
        raise BadRange(f"expected a block size of at least 1, got {block}")
    return Node(block, (-(-to_seq // block) - 1).bit_length(), 0)


def _alone(piece: Node | SeqRun) -> tuple[Node | SeqRun, ...]:
    return (piece,)


def _concatenated(
    left: tuple[Node | SeqRun, ...], right: tuple[Node | SeqRun, ...]
) -> tuple[Node | SeqRun, ...]:
    return left + right


class AnchorKind(IntEnum):
    RECEIPT = 1
    CHECKPOINT = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class SummaryAnchor(WireArray):
    """The hub-signed object that has the root of a label at a size, by its hash."""

    kind: int
    upto_seq: int
    object_hash: Bytes32

    def rule(self) -> None:
        if self.kind not in tuple(AnchorKind):
            raise Malformed(f"fold anchor: unknown kind {self.kind}")


@dataclass(frozen=True, slots=True)
class SignedRoot:
    """The root of a label at a size, from an object whose signature the caller has verified."""

    mmr_root: bytes
    anchor: SummaryAnchor

    @classmethod
    def of_receipt(cls, receipt: Receipt) -> SignedRoot:
        anchor = SummaryAnchor(
            kind=int(AnchorKind.RECEIPT),
            upto_seq=receipt.stream_seq,
            object_hash=h(receipt.encode()),
        )
        return cls(receipt.mmr_root, anchor)

    @classmethod
    def of_checkpoint(cls, checkpoint: Checkpoint) -> SignedRoot:
        anchor = SummaryAnchor(
            kind=int(AnchorKind.CHECKPOINT),
            upto_seq=checkpoint.upto_seq,
            object_hash=h(checkpoint.encode()),
        )
        return cls(checkpoint.mmr_root, anchor)


@dataclass(frozen=True, slots=True)
class Scope:
    """The overlay and the label of a fold."""

    overlay: Overlay[Any]
    label: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class FoldSummary(WireMap):
    ver: Version = 1
    overlay: str
    schema_set: Bytes32
    label: Bytes32
    block: int
    from_seq: int
    to_seq: int
    mmr_root: Bytes32
    anchor: SummaryAnchor
    payload: bytes
    digest: Bytes32 = bytes(32)

    def rule(self) -> None:
        if self.block < 1 or not 1 <= self.from_seq <= self.to_seq:
            raise Malformed(
                f"fold summary: invalid range {self.from_seq} to {self.to_seq} with blocks of "
                f"{self.block}"
            )

    @classmethod
    def of(cls, scope: Scope, node: Node, root: SignedRoot, payload: bytes) -> FoldSummary:
        bare = cls(
            overlay=scope.overlay.name,
            schema_set=scope.overlay.schema_set(),
            label=scope.label,
            block=node.block,
            from_seq=node.run.from_seq,
            to_seq=node.run.to_seq,
            mmr_root=root.mmr_root,
            anchor=root.anchor,
            payload=payload,
        )
        return replace(bare, digest=bare.expected_digest())

    def expected_digest(self) -> bytes:
        return ht("veen/overlay-summary", replace(self, digest=bytes(32)).encode())

    def verify(self, scope: Scope, node: Node, mmr_root: bytes) -> None:
        """Raise Untrusted unless this is the summary of ``node`` in a log with that root."""
        run = node.run
        claims = {
            "overlay": (self.overlay, scope.overlay.name),
            "schema_set": (self.schema_set, scope.overlay.schema_set()),
            "label": (self.label, scope.label),
            "block": (self.block, node.block),
            "from_seq": (self.from_seq, run.from_seq),
            "to_seq": (self.to_seq, run.to_seq),
            "anchor": (self.anchor.upto_seq, run.to_seq),
            "mmr_root": (self.mmr_root, mmr_root),
            "digest": (self.digest, self.expected_digest()),
        }
        for name, (claimed, expected) in claims.items():
            if claimed != expected:
                raise Untrusted(f"the summary of {run.from_seq} to {run.to_seq} has another {name}")


class FoldSource(Protocol):
    """The source of a fold: the cache, signed roots and events of a label."""

    def summary(self, node: Node) -> FoldSummary | None:
        """The cached summary of a node, unverified, or None."""

    def keep(self, summary: FoldSummary) -> None:
        """Cache a summary. Its bytes are deterministic if the root comes from the same
        object."""

    def root(self, upto_seq: int) -> SignedRoot:
        """The root of the label at that size, from a verified object of the hub, such as the
        receipt of the last message."""

    def events(self, run: SeqRun) -> Iterable[Event]:
        """Every event of the run in order, verified against the log and opened."""


@dataclass(frozen=True, slots=True)
class Fold(Generic[S]):
    overlay: Overlay[S]
    label: bytes
    source: FoldSource
    block: int = BLOCK

    def over(self, run: SeqRun) -> Folded[S]:
        """The fold of a run."""
        if not run.size:
            return self.overlay.empty()
        return over(run, self.block, TreeSteps(self.node, self._part, self.overlay.merge))

    def node(self, node: Node) -> Folded[S]:
        """The fold of a node, from the cache, or computed and cached."""
        cached = self.source.summary(node)
        return self._make(node) if cached is None else self._opened(cached, node)

    def first(self, condition: Condition[S], upto_seq: int) -> int | None:
        """The end of the shortest prefix up to ``upto_seq`` for which ``condition`` is true.

        A condition must be monotonic: true for every longer prefix, too.
        """
        before = self.overlay.empty()
        for piece in cover(SeqRun(1, upto_seq), self.block):
            folded = self.node(piece) if isinstance(piece, Node) else self._part(piece)
            after = self.overlay.merge(before, folded)
            if condition(after):
                return self._within(piece, before, condition)
            before = after
        return None

    def _within(self, piece: Node | SeqRun, before: Folded[S], condition: Condition[S]) -> int:
        """The end of the shortest prefix, known to be in ``piece``, after ``before``."""
        while isinstance(piece, Node) and piece.height:
            left, right = piece.children
            after = self.overlay.merge(before, self.node(left))
            if condition(after):
                piece = left
            else:
                piece, before = right, after
        events = self._read(piece.run if isinstance(piece, Node) else piece)

        def holds(at: int) -> bool:
            here = fold_events(self.overlay, events[: at + 1])
            return condition(self.overlay.merge(before, here))

        return events[bisect_left(range(len(events)), True, key=holds)].stream_seq

    def _make(self, node: Node) -> Folded[S]:
        if node.height:
            left, right = node.children
            folded = self.overlay.merge(self.node(left), self.node(right))
        else:
            folded = self._part(node.run)
        root = self.source.root(node.run.to_seq)
        scope = Scope(self.overlay, self.label)
        self.source.keep(FoldSummary.of(scope, node, root, self.overlay.encode(folded)))
        return folded

    def _opened(self, summary: FoldSummary, node: Node) -> Folded[S]:
        root = self.source.root(node.run.to_seq)
        summary.verify(Scope(self.overlay, self.label), node, root.mmr_root)
        try:
            return self.overlay.decode(summary.payload)
        except Malformed as error:
            raise Untrusted(f"the summary up to {node.run.to_seq} holds no state") from error

    def _part(self, run: SeqRun) -> Folded[S]:
        return fold_events(self.overlay, self._read(run))

    def _read(self, run: SeqRun) -> Sequence[Event]:
        events = tuple(self.source.events(run))
        places = [event.stream_seq for event in events]
        if places != list(range(run.from_seq, run.to_seq + 1)):
            raise Untrusted(f"events from {run.from_seq} to {run.to_seq} are missing")
        return events
