"""The Merkle nodes that inclusion proofs need: those within a chunk, and those above the chunks.

A chunk is cut into its largest complete nodes. A path below such a node is computed from the chunk
alone; the nodes above are few, and all follow from the tops of the chunks.

All leaves must lead to the root of the checkpoint, including those after the span of time. A few
complete nodes represent them, so that their chunks need not be read: the left part of such a node
follows from the peaks at the end of a chunk within it, and its right part from the leaves of one
chunk. None of this is trusted: wrong nodes lead to another root.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from veen import mmr
from veen.errors import Untrusted
from veen.mmr import Peaks
from veen.proofs import InclusionProof

Place = tuple[int, int]
"""The height of a node, and its index at that height."""


class Top(NamedTuple):
    """A complete node of a range, without the nodes below it."""

    height: int
    hash: bytes


@dataclass(frozen=True, slots=True)
class Tree:
    """A complete node with all nodes below it: ``levels`` from its leaves up to itself."""

    height: int
    index: int
    levels: tuple[Sequence[bytes], ...]

    @classmethod
    def over(cls, height: int, index: int, leaves: Sequence[bytes]) -> Tree:
        levels = [leaves]
        while len(levels[-1]) > 1:
            below = iter(levels[-1])
            levels.append([mmr.node(left, right) for left, right in zip(below, below, strict=True)])
        return cls(height, index, tuple(levels))

    @property
    def top(self) -> Top:
        return Top(self.height, self.levels[-1][0])

    @property
    def seqs(self) -> range:
        first = (self.index << self.height) + 1
        return range(first, first + (1 << self.height))

    def path(self, seq: int) -> tuple[bytes, ...]:
        """The siblings from a leaf up to this node."""
        leaf = seq - self.seqs.start
        return tuple(
            level[(leaf >> height) ^ 1] for height, level in enumerate(self.levels[: self.height])
        )


def trees(start_seq: int, leaves: Sequence[bytes]) -> Iterator[Tree]:
    """The largest complete nodes over leaves that begin at ``start_seq``, from left to right."""
    before = start_seq - 1
    for height, index in mmr.subtrees(before, before + len(leaves)):
        first = (index << height) - before
        yield Tree.over(height, index, leaves[first : first + (1 << height)])


class Upper:
    """The nodes of a range from the tops of its chunks upwards.

    It starts with the peaks of the part that was not read, the only nodes of that part in the
    proofs of later leaves.
    """

    def __init__(self, peaks: Peaks) -> None:
        self.peaks = peaks
        self.nodes: dict[Place, bytes] = dict(
            zip(mmr.peak_nodes(peaks.size), peaks.hashes, strict=True)
        )

    def graft(self, top: Top) -> None:
        """Append a complete node, which must begin where the range ends."""
        height, index = top.height, self.peaks.size >> top.height
        merged, node = mmr.trailing_ones(index), top.hash
        self.nodes[height, index] = node
        hashes = self.peaks.hashes[:merged]
        self.peaks = self.peaks.graft(*top)
        for step, peak in enumerate(hashes, 1):
            node = mmr.node(peak, node)
            self.nodes[height + step, index >> step] = node


@dataclass(frozen=True, slots=True)
class Siblings:
    """The port ``veen.mmr.Nodes`` for the proof of a leaf."""

    seq: int
    path: tuple[bytes, ...]
    upper: Mapping[Place, bytes]

    def node(self, height: int, index: int) -> bytes:
        is_below = height < len(self.path) and index == ((self.seq - 1) >> height) ^ 1
        return self.path[height] if is_below else self.upper[height, index]


def proof(
    seq: int, size: int, path: tuple[bytes, ...], upper: Mapping[Place, bytes]
) -> InclusionProof:
    """The same proof as one built with every node."""
    return InclusionProof.build(Siblings(seq, path, upper), seq, size)


class Cut(NamedTuple):
    """The leaves after a position, up to another."""

    after: int
    upto: int


class NodeGap(NamedTuple):
    """A complete node that is not read as a whole; it begins after ``start``.

    ``chunk`` is the chunk with the leaves of ``cut``; the peaks at its start cover what is before
    them.
    """

    height: int
    start: int
    chunk: int
    cut: Cut

    def within(self, peaks: Peaks) -> Peaks:
        """The part of the peaks before the cut that belongs to this node."""
        size = self.cut.after - self.start
        return Peaks(size, peaks.hashes[: size.bit_count()])

    def top(self, within: Peaks, tops: Sequence[Top]) -> Top:
        for top in tops:
            within = within.graft(*top)
        if within.size != 1 << self.height:
            raise Untrusted(f"leaves up to {self.cut.upto} are missing")
        return Top(self.height, within.hashes[0])


def gaps(start: int, ends: Sequence[int]) -> Iterator[NodeGap]:
    """The nodes over all leaves after ``start``; it and ``ends`` are ends of chunks."""
    for height, index in mmr.subtrees(start, ends[-1]):
        first, last = index << height, (index + 1) << height
        chunk = bisect_left(ends, last)
        before = ends[chunk - 1] if chunk else start
        yield NodeGap(height, first, chunk, Cut(max(first, before), last))
