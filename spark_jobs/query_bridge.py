"""What stands for the chunks that come after a span of time, so that they need not be read.

All of the leaves must lead to the root of the checkpoint, those behind the span too. Of these a few
complete nodes are enough. The left part of such a node is told by the peaks at an end of a chunk
within it, and its right part by the leaves of one chunk. Nothing of that is believed: a root that
is reached over wrong nodes is another one.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from spark_jobs.query_nodes import Top
from veen import mmr
from veen.errors import Untrusted
from veen.mmr import Peaks


class Cut(NamedTuple):
    """The leaves after a place, up to another."""

    after: int
    upto: int


class Gap(NamedTuple):
    """A complete node that is not read as a whole: it begins after ``start``.

    ``chunk`` is which chunk has the leaves of ``cut``; what is before them, is in the peaks there.
    """

    height: int
    start: int
    chunk: int
    cut: Cut

    def within(self, peaks: Peaks) -> Peaks:
        """The part of the peaks before the cut that is of this node."""
        size = self.cut.after - self.start
        return Peaks(size, peaks.hashes[: size.bit_count()])

    def top(self, within: Peaks, tops: Sequence[Top]) -> Top:
        for one in tops:
            within = within.graft(*one)
        if within.size != 1 << self.height:
            raise Untrusted(f"the leaves up to {self.cut.upto} are not all there")
        return Top(self.height, within.hashes[0])


def gaps(start: int, ends: Sequence[int]) -> Iterator[Gap]:
    """The nodes over all leaves after ``start``, which is an end of a chunk, as are ``ends``."""
    for height, index in mmr.subtrees(start, ends[-1]):
        first, last = index << height, (index + 1) << height
        chunk = bisect_left(ends, last)
        before = ends[chunk - 1] if chunk else start
        yield Gap(height, first, chunk, Cut(max(first, before), last))
