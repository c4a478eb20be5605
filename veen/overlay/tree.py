"""The canonical tree over the places of a label: blocks of one size, paired up and up again.

Its shape depends on the block size alone, so everyone who folds a log makes the same summaries,
however the log is cut into chunks, partitions or runs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Final, Generic, TypeVar

from veen.errors import VeenError

BLOCK: Final = 1_024

T = TypeVar("T")


class BadRange(VeenError, ValueError):
    """Places that no log has, or blocks of no size."""


@dataclass(frozen=True, slots=True, order=True)
class Run:
    """The places from .. to, both included; empty when ``to_seq`` is ``from_seq`` - 1."""

    from_seq: int
    to_seq: int

    def __post_init__(self) -> None:
        if not 1 <= self.from_seq <= self.to_seq + 1:
            raise BadRange(f"no places from {self.from_seq} to {self.to_seq}")

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
            raise BadRange(f"no node {self.index} of height {self.height}, block {self.block}")

    @property
    def run(self) -> Run:
        span = self.block << self.height
        return Run(self.index * span + 1, (self.index + 1) * span)

    @property
    def children(self) -> tuple[Node, Node]:
        left = Node(self.block, self.height - 1, 2 * self.index)
        return left, Node(self.block, self.height - 1, 2 * self.index + 1)


@dataclass(frozen=True, slots=True)
class Steps(Generic[T]):
    """What to make of a whole node, of a part of one block, and of two neighbours."""

    whole: Callable[[Node], T]
    part: Callable[[Run], T]
    join: Callable[[T, T], T]


def over(run: Run, block: int, steps: Steps[T]) -> T:
    """The steps taken over a run that is not empty, in the shape of the tree."""
    return _over(_top(run.to_seq, block), run, steps)


def cover(run: Run, block: int) -> tuple[Node | Run, ...]:
    """The fewest nodes that lie within the run, with the parts of blocks at its ends, in order."""
    if not run.size:
        return ()
    return over(run, block, Steps(_alone, _alone, _concatenated))


def completed(run: Run, block: int) -> Iterator[Node]:
    """Every node whose last place lies in the run, children before parents: what a log that
    has grown by the run has to store."""
    for last in range(-(-run.from_seq // block), run.to_seq // block + 1):
        for height in range((last & -last).bit_length()):
            yield Node(block, height, (last >> height) - 1)


def _over(node: Node, run: Run, steps: Steps[T]) -> T:
    own = node.run
    if run.from_seq <= own.from_seq and own.to_seq <= run.to_seq:
        return steps.whole(node)
    if node.height == 0:
        return steps.part(Run(max(run.from_seq, own.from_seq), min(run.to_seq, own.to_seq)))
    left, right = node.children
    if run.to_seq <= left.run.to_seq:
        return _over(left, run, steps)
    if run.from_seq >= right.run.from_seq:
        return _over(right, run, steps)
    return steps.join(_over(left, run, steps), _over(right, run, steps))


def _top(to_seq: int, block: int) -> Node:
    """The lowest node from the first place on that reaches ``to_seq``."""
    if block < 1:
        raise BadRange(f"blocks of {block}")
    return Node(block, (-(-to_seq // block) - 1).bit_length(), 0)


def _alone(piece: Node | Run) -> tuple[Node | Run, ...]:
    return (piece,)


def _concatenated(
    left: tuple[Node | Run, ...], right: tuple[Node | Run, ...]
) -> tuple[Node | Run, ...]:
    return left + right
