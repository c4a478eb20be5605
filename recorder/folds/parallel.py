"""A fold by many hands: which nodes to make apart, and the merge of what they made.

The hands make whole nodes of the one tree, so however many there are, and whoever makes which,
the merge is the same.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from recorder.folds.job import FoldJob
from recorder.folds.source import ArchiveSource
from veen.overlay.event import Event
from veen.overlay.fold import Source
from veen.overlay.summary import Scope, SignedRoot, Summary
from veen.overlay.tree import Node, Run, cover
from veen.receipt import Receipt

_EACH: Final = 4
"""Nodes for each hand, so that a slow one does not hold up the others."""
_MOST_HEIGHT: Final = 5


@dataclass(frozen=True, slots=True)
class Made:
    """A node's summary as it travels, with the receipt that gives its root."""

    node: Node
    summary: bytes
    receipt: bytes


@dataclass(frozen=True, slots=True)
class Plan:
    """The nodes to be made, and the summaries that the cache has around them."""

    due: tuple[Node, ...]
    found: dict[Node, Summary]


def make(job: FoldJob, source: ArchiveSource, node: Node) -> Made:
    """What one hand does."""
    fold = job.fold(source)
    folded = fold.node(node)
    receipt = source.log.entry(node.run.to_seq).receipt
    scope, root = Scope(fold.overlay, job.label), SignedRoot.of_receipt(receipt)
    summary = Summary.of(scope, node, root, fold.overlay.encode(folded))
    return Made(node, summary.encode(), receipt.encode())


def plan(job: FoldJob, source: Source, height: int) -> Plan:
    """Nodes of at most ``height`` that nobody has a summary of."""
    due: list[Node] = []
    found: dict[Node, Summary] = {}
    waiting = [piece for piece in cover(job.run, job.block) if isinstance(piece, Node)]
    while waiting:
        node = waiting.pop()
        cached = source.summary(node)
        if cached is not None:
            found[node] = cached
        elif node.height > height:
            waiting.extend(node.children)
        else:
            due.append(node)
    return Plan(tuple(sorted(due)), found)


def height_for(job: FoldJob, hands: int) -> int:
    """How large the nodes are to be that are made apart."""
    blocks = job.run.size // job.block
    return min(max(blocks // (_EACH * max(hands, 1)), 1).bit_length() - 1, _MOST_HEIGHT)


class PreparedSource:
    """A source that has the summaries of a plan at hand, and of what was made by it."""

    def __init__(self, source: Source, plan: Plan, made: Iterable[Made]) -> None:
        self._source = source
        self._summaries = dict(plan.found)
        self._roots: dict[int, SignedRoot] = {}
        for one in made:
            self._summaries[one.node] = Summary.decode(one.summary)
            root = SignedRoot.of_receipt(Receipt.decode(one.receipt))
            self._roots[one.node.run.to_seq] = root

    def summary(self, node: Node) -> Summary | None:
        return self._summaries.get(node)

    def keep(self, summary: Summary) -> None:
        self._source.keep(summary)

    def root(self, upto_seq: int) -> SignedRoot:
        return self._roots.get(upto_seq) or self._source.root(upto_seq)

    def events(self, run: Run) -> Iterable[Event]:
        return self._source.events(run)
