"""The Merkle Mountain Range against a full recomputation from its definition (spec 5.1)."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from hashlib import sha256
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from veen import mmr
from veen.errors import Untrusted
from veen.mmr import EMPTY, Peaks

if TYPE_CHECKING:
    from support.veen.fixtures import Tree

SIZES = 2000


@cache
def a_leaf(seq: int) -> bytes:
    return sha256(b"leaf %d" % seq).digest()


@cache
def perfect(start: int, count: int) -> bytes:
    """The root of the perfect binary tree over ``count`` leaves after the first ``start``."""
    if count == 1:
        return a_leaf(start + 1)
    half = count // 2
    pair = perfect(start, half) + perfect(start + half, half)
    return sha256(b"veen/mmr-node\x00" + pair).digest()


def mountains(size: int) -> Iterator[tuple[int, int]]:
    """(start, count) of the perfect trees of a range, the largest and oldest first."""
    start = 0
    while start < size:
        count = 1
        while 2 * count <= size - start:
            count *= 2
        yield start, count
        start += count


def oracle_peaks(size: int) -> tuple[bytes, ...]:
    return tuple(reversed([perfect(start, count) for start, count in mountains(size)]))


def oracle_root(size: int) -> bytes:
    peaks = oracle_peaks(size)
    return peaks[0] if len(peaks) == 1 else sha256(b"veen/mmr-root\x00" + b"".join(peaks)).digest()


def written_nodes(size: int) -> list[tuple[int, int]]:
    """(height, index) of every node in the order in which appending completes them."""
    result = []
    for leaf in range(size):
        height, index = 0, leaf
        result.append((height, index))
        while index % 2 == 1:
            height, index = height + 1, index // 2
            result.append((height, index))
    return result


def test_append_gives_the_peaks_and_root_of_every_size() -> None:
    peaks = EMPTY
    for size in range(1, SIZES + 1):
        peaks = peaks.append(a_leaf(size))
        assert (peaks.size, peaks.hashes) == (size, oracle_peaks(size))
        assert peaks.root() == oracle_root(size)


def test_growing_gives_the_peaks_and_the_nodes_that_each_leaf_completes() -> None:
    peaks = EMPTY
    for seq in range(1, SIZES + 1):
        peaks, nodes = mmr.grow(peaks, a_leaf(seq))
        spans = [1 << height for height in completed(seq)]
        assert peaks == Peaks(seq, oracle_peaks(seq))
        assert nodes == [perfect(seq - span, span) for span in spans]


def test_peaks_of_a_list_are_those_of_appending() -> None:
    for size in (0, *range(1, 130), 1023, 1024, 1025, SIZES):
        assert mmr.peaks_of(a_leaf(seq) for seq in range(1, size + 1)) == oracle_peaks(size)


def test_peak_nodes_name_the_mountains_of_every_size() -> None:
    for size in range(SIZES + 1):
        named = [(index << height, 1 << height) for height, index in mmr.peak_nodes(size)]
        assert named == list(mountains(size))[::-1]


def test_peaks_at_reads_the_peaks_of_every_earlier_size(tree: Tree) -> None:
    peaks = EMPTY
    for size in range(1, SIZES + 1):
        peaks = peaks.append(tree.leaf(size))
        assert mmr.peaks_at(tree, size) == peaks


def test_each_node_stands_where_appending_writes_it() -> None:
    for place, (height, index) in enumerate(written_nodes(SIZES)):
        assert mmr.position(height, index) == place


def test_a_leaf_completes_the_nodes_written_with_it() -> None:
    start = 0
    for seq in range(1, SIZES + 1):
        end = start + len(completed(seq))
        assert mmr.completed_by(seq) == range(start, end)
        start = end


def completed(seq: int) -> list[int]:
    """The heights of the nodes whose last leaf is ``seq``."""
    return [height for height in range(SIZES.bit_length()) if seq % (1 << height) == 0]


@given(st.integers(0, SIZES), st.integers(0, SIZES))
def test_subtrees_cover_a_gap_once_in_order_with_the_largest_nodes(first: int, two: int) -> None:
    start, end = sorted((first, two))
    at = start
    for height, index in mmr.subtrees(start, end):
        assert index << height == at
        at += 1 << height
        larger_fits = at - (1 << height) + (2 << height) <= end
        starts_larger = (at - (1 << height)) % (2 << height) == 0
        assert not (larger_fits and starts_larger)
    assert at == end


@given(st.integers(0, SIZES), st.integers(0, SIZES))
def test_grafting_subtrees_is_appending_their_leaves(first: int, two: int) -> None:
    start, end = sorted((first, two))
    peaks = Peaks(start, oracle_peaks(start))
    for height, index in mmr.subtrees(start, end):
        peaks = peaks.graft(height, perfect(index << height, 1 << height))
    assert peaks == Peaks(end, oracle_peaks(end))


def test_no_subtree_is_grafted_where_none_of_its_height_starts() -> None:
    for size in range(1, 130):
        peaks = Peaks(size, oracle_peaks(size))
        for height in range(8):
            if size % (1 << height):
                with pytest.raises(Untrusted):
                    peaks.graft(height, bytes(32))


def test_an_empty_range_has_no_root() -> None:
    with pytest.raises(Untrusted):
        EMPTY.root()


@given(st.integers(-2, 70), st.integers(0, 8))
def test_peaks_have_the_count_that_their_size_calls_for(size: int, count: int) -> None:
    if size >= 0 and size.bit_count() == count:
        assert Peaks(size, (bytes(32),) * count).size == size
    else:
        with pytest.raises(Untrusted):
            Peaks(size, (bytes(32),) * count)


@given(st.integers(0, 2**64 - 1))
def test_trailing_ones_are_those_of_the_binary_digits(n: int) -> None:
    digits = f"{n:b}" if n else ""
    assert mmr.trailing_ones(n) == len(digits) - len(digits.rstrip("1"))
