"""The nodes of a stream's range that proofs need: a chunk has those within it, the driver the rest.

A chunk is cut into its largest complete nodes. Below each of them a path is found in the chunk
alone; above them there are few nodes, and all of them follow from their tops.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from veen import mmr
from veen.inclusion import InclusionProof
from veen.mmr import Peaks

Place = tuple[int, int]
"""The height of a node, and its index there."""


class Top(NamedTuple):
    """A complete node of a range, with nothing of what is below it."""

    height: int
    hash: bytes


@dataclass(frozen=True, slots=True)
class Tree:
    """A complete node with all below it: ``levels`` from its leaves up to itself."""

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
    """The nodes of a range from the tops of its chunks up; it begins with the peaks of what was
    not read, which are the only nodes of it that later leaves have in their proofs.
    """

    def __init__(self, peaks: Peaks) -> None:
        self.peaks = peaks
        self.nodes: dict[Place, bytes] = dict(
            zip(mmr.peak_nodes(peaks.size), peaks.hashes, strict=True)
        )

    def graft(self, top: Top) -> None:
        """Append a complete node, which must begin where the range ends."""
        height, index = top.height, self.peaks.size >> top.height
        merged, found = mmr.trailing_ones(index), top.hash
        self.nodes[height, index] = found
        hashes = self.peaks.hashes[:merged]
        self.peaks = self.peaks.graft(*top)
        for step, peak in enumerate(hashes, 1):
            found = mmr.node(peak, found)
            self.nodes[height + step, index >> step] = found


@dataclass(frozen=True, slots=True)
class Siblings:
    """The port ``veen.mmr.Nodes`` for the proof of one leaf."""

    seq: int
    path: tuple[bytes, ...]
    upper: Mapping[Place, bytes]

    def node(self, height: int, index: int) -> bytes:
        is_below = height < len(self.path) and index == ((self.seq - 1) >> height) ^ 1
        return self.path[height] if is_below else self.upper[height, index]


def proof(
    seq: int, size: int, path: tuple[bytes, ...], upper: Mapping[Place, bytes]
) -> InclusionProof:
    """The same proof as that of whoever has every node."""
    return InclusionProof.build(Siblings(seq, path, upper), seq, size)
