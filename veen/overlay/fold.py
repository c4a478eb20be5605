"""Folding a label: cached summaries where there are any, events where there are none (spec 11.3).

A fold over any run looks at O(log n) nodes and reads at most two parts of blocks; what it has to
make for itself it gives back to the cache.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Generic, Protocol

from veen.errors import Malformed, Untrusted
from veen.overlay.event import Event
from veen.overlay.overlay import Folded, Overlay, S, fold_events
from veen.overlay.summary import Scope, SignedRoot, Summary
from veen.overlay.tree import BLOCK, Node, Run, Steps, cover, over

Condition = Callable[[Folded[S]], bool]


class Source(Protocol):
    """Where a fold of one label by one overlay finds what it needs."""

    def summary(self, node: Node) -> Summary | None:
        """The cached summary of a node, believed only once it is verified; None if there is
        none."""

    def keep(self, summary: Summary) -> None:
        """Cache a summary that had to be made; its bytes are the same whoever makes it, as long
        as the root comes from the same object."""

    def root(self, upto_seq: int) -> SignedRoot:
        """The root of the label at that size, from a verified object of the hub: the receipt of
        the last message, which there always is."""

    def events(self, run: Run) -> Iterable[Event]:
        """Every event of the run in order, verified against the log and opened."""


@dataclass(frozen=True, slots=True)
class Fold(Generic[S]):
    overlay: Overlay[S]
    label: bytes
    source: Source
    block: int = BLOCK

    def over(self, run: Run) -> Folded[S]:
        """What the run has come to."""
        if not run.size:
            return self.overlay.empty()
        return over(run, self.block, Steps(self.node, self._part, self.overlay.merge))

    def node(self, node: Node) -> Folded[S]:
        """What a whole node has come to, from the cache or made and cached."""
        cached = self.source.summary(node)
        return self._make(node) if cached is None else self._opened(cached, node)

    def first(self, condition: Condition[S], upto_seq: int) -> int | None:
        """The end of the shortest prefix for which ``condition`` holds, up to ``upto_seq``.

        A condition that holds for a prefix has to hold for every longer one.
        """
        before = self.overlay.empty()
        for piece in cover(Run(1, upto_seq), self.block):
            found = self.node(piece) if isinstance(piece, Node) else self._part(piece)
            after = self.overlay.merge(before, found)
            if condition(after):
                return self._within(piece, before, condition)
            before = after
        return None

    def _within(self, piece: Node | Run, before: Folded[S], condition: Condition[S]) -> int:
        """The same, known to lie in ``piece``, which ``before`` comes before."""
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
        self.source.keep(Summary.of(scope, node, root, self.overlay.encode(folded)))
        return folded

    def _opened(self, summary: Summary, node: Node) -> Folded[S]:
        root = self.source.root(node.run.to_seq)
        summary.verify(Scope(self.overlay, self.label), node, root.mmr_root)
        try:
            return self.overlay.decode(summary.payload)
        except Malformed as error:
            raise Untrusted(f"the summary up to {node.run.to_seq} holds no state") from error

    def _part(self, run: Run) -> Folded[S]:
        return fold_events(self.overlay, self._read(run))

    def _read(self, run: Run) -> Sequence[Event]:
        events = tuple(self.source.events(run))
        places = [event.stream_seq for event in events]
        if places != list(range(run.from_seq, run.to_seq + 1)):
            raise Untrusted(f"the events of {run.from_seq} to {run.to_seq} are not all there")
        return events
