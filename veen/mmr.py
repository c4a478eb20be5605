"""The Merkle Mountain Range over one label's leaves (spec 5.1).

A node is named by its height and its index at that height: node (h, i) covers the leaves
i * 2^h + 1 .. (i + 1) * 2^h, counted from 1. Peaks are listed by increasing height, so the
youngest comes first. A root does not commit to a size: sizes come from signed objects.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Protocol

from veen.digest import ht
from veen.errors import Untrusted

Combine = Callable[[bytes, bytes], bytes]


class Nodes(Protocol):
    def node(self, height: int, index: int) -> bytes:
        """The hash of a complete node of the range."""


@dataclass(frozen=True, slots=True)
class Peaks:
    """The size and peaks of a range: all that is needed to append to it."""

    size: int
    hashes: tuple[bytes, ...]

    def __post_init__(self) -> None:
        if self.size < 0 or len(self.hashes) != self.size.bit_count():
            raise Untrusted(f"{len(self.hashes)} peaks do not fit {self.size} leaves")

    def append(self, leaf: bytes) -> Peaks:
        return grow(self, leaf)[0]

    def graft(self, height: int, subtree: bytes) -> Peaks:
        """Append a complete subtree of 2^height leaves, which must start where this ends."""
        span = 1 << height
        if self.size % span:
            raise Untrusted(f"no subtree of height {height} starts at leaf {self.size + 1}")
        merged = trailing_ones(self.size >> height)
        for peak in self.hashes[:merged]:
            subtree = node(peak, subtree)
        return Peaks(self.size + span, (subtree, *self.hashes[merged:]))

    def root(self) -> bytes:
        if not self.hashes:
            raise Untrusted("an empty range has no root")
        if len(self.hashes) == 1:
            return self.hashes[0]
        return ht("veen/mmr-root", *self.hashes)


EMPTY = Peaks(0, ())


def node(left: bytes, right: bytes) -> bytes:
    return ht("veen/mmr-node", left, right)


def peaks_of(leaves: Iterable[bytes], combine: Combine = node) -> tuple[bytes, ...]:
    """The peaks over ``leaves``, by increasing height."""
    peaks: tuple[bytes, ...] = ()
    for size, leaf in enumerate(leaves):
        merged = trailing_ones(size)
        youngest = leaf
        for peak in peaks[:merged]:
            youngest = combine(peak, youngest)
        peaks = (youngest, *peaks[merged:])
    return peaks


def trailing_ones(n: int) -> int:
    return (n ^ (n + 1)).bit_length() - 1


def peak_nodes(size: int) -> Iterator[tuple[int, int]]:
    """(height, index) of each peak of a range of ``size`` leaves, by increasing height."""
    for height in range(size.bit_length()):
        if size >> height & 1:
            yield height, (size >> height) - 1


def subtrees(start: int, end: int) -> Iterator[tuple[int, int]]:
    """The largest complete nodes that cover the leaves start + 1 .. end, from left to right."""
    while start < end:
        height = (end - start).bit_length() - 1
        if start:
            height = min(height, (start & -start).bit_length() - 1)
        yield height, start >> height
        start += 1 << height


def position(height: int, index: int) -> int:
    """The position of a node in the order in which nodes are completed."""
    last_leaf = ((index + 1) << height) - 1
    return 2 * last_leaf - last_leaf.bit_count() + height


def completed_by(seq: int) -> range:
    """The positions of the nodes that leaf ``seq`` completes: the leaf, then its ancestors."""
    first = position(0, seq - 1)
    return range(first, first + trailing_ones(seq - 1) + 1)


def grow(peaks: Peaks, leaf: bytes) -> tuple[Peaks, list[bytes]]:
    """The peaks after one more leaf, and the nodes it completes in the order of position."""
    merged = trailing_ones(peaks.size)
    completed = [leaf]
    for peak in peaks.hashes[:merged]:
        completed.append(node(peak, completed[-1]))
    return Peaks(peaks.size + 1, (completed[-1], *peaks.hashes[merged:])), completed


def peaks_at(nodes: Nodes, size: int) -> Peaks:
    """The peaks the range had when it held ``size`` leaves."""
    return Peaks(size, tuple(nodes.node(height, index) for height, index in peak_nodes(size)))
