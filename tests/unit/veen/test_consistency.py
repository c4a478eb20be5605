"""Consistency between two sizes: every old peak is bound, every single change refused."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from support.broken import changed
from veen.errors import Malformed, Untrusted
from veen.proofs import RangeProof, consistency, verify_consistency

if TYPE_CHECKING:
    from support.veen.fixtures import Tree

Sizes = tuple[int, int]
EDGES = (1, 2, 3, 4, 5, 7, 8, 9, 15, 16, 17, 255, 256, 257, 1023, 1024, 1025, 2000)
NEW_SIZES = st.one_of(st.sampled_from(EDGES), st.integers(1, 2000))
SIZES = NEW_SIZES.flatmap(
    lambda new: st.tuples(st.one_of(st.sampled_from((0, new)), st.integers(0, new)), st.just(new))
)
FLIP_SIZES = ((0, 1), (0, 7), (1, 1), (3, 4), (7, 8), (8, 9), (255, 1025), (1024, 1024), (5, 2000))
HASH_FIELDS = ("peaks_before", "subtrees_after")
Changes = Callable[[tuple[Any, ...]], Iterator[tuple[Any, ...]]]
Flips = Callable[[bytes], Iterator[bytes]]


def verify(proof: RangeProof, tree: Tree, sizes: Sizes, **changes: Any) -> None:
    old, new = sizes
    claim = {
        "old_size": old,
        "old_root": tree.root(old) if old else bytes(32),
        "new_size": new,
        "new_root": tree.root(new),
    }
    verify_consistency(proof, **{**claim, **changes})


def assert_refused(proof: RangeProof, tree: Tree, sizes: Sizes, **changes: Any) -> None:
    with pytest.raises((Untrusted, Malformed)):
        verify(proof, tree, sizes, **changes)


def test_every_pair_of_small_sizes_is_consistent(tree: Tree) -> None:
    for new in range(1, 66):
        for old in range(new + 1):
            verify(consistency(tree, old, new), tree, (old, new))


@given(SIZES)
def test_a_prefix_is_consistent_after_the_proof_travelled(tree: Tree, sizes: Sizes) -> None:
    verify(RangeProof.decode(consistency(tree, *sizes).encode()), tree, sizes)


@pytest.mark.parametrize("sizes", FLIP_SIZES)
def test_refuses_a_flipped_bit_in_any_hash(tree: Tree, flips: Flips, sizes: Sizes) -> None:
    proof = consistency(tree, *sizes)
    for field in HASH_FIELDS:
        hashes = getattr(proof, field)
        for i, hash_ in enumerate(hashes):
            for bad in flips(hash_):
                altered = changed(proof, **{field: (*hashes[:i], bad, *hashes[i + 1 :])})
                assert_refused(altered, tree, sizes)


@given(SIZES)
def test_refuses_dropped_doubled_and_swapped_hashes(
    tree: Tree, changed_hashes: Changes, sizes: Sizes
) -> None:
    proof = consistency(tree, *sizes)
    for field in HASH_FIELDS:
        for hashes in changed_hashes(getattr(proof, field)):
            assert_refused(changed(proof, **{field: hashes}), tree, sizes)


@given(SIZES, st.binary(min_size=32, max_size=32))
def test_refuses_an_extra_hash_anywhere(tree: Tree, sizes: Sizes, extra: bytes) -> None:
    proof = consistency(tree, *sizes)
    for field in HASH_FIELDS:
        hashes = getattr(proof, field)
        for i in range(len(hashes) + 1):
            altered = changed(proof, **{field: (*hashes[:i], extra, *hashes[i:])})
            assert_refused(altered, tree, sizes)


@given(SIZES, st.sampled_from(["from_seq", "to_seq", "size"]), st.integers(0, 2001))
def test_refuses_another_number_in_the_proof(
    tree: Tree, sizes: Sizes, field: str, other: int
) -> None:
    proof = consistency(tree, *sizes)
    if getattr(proof, field) != other:
        assert_refused(changed(proof, **{field: other}), tree, sizes)


@given(SIZES, st.integers(0, 2000))
def test_refuses_another_old_size(tree: Tree, sizes: Sizes, other: int) -> None:
    proof = consistency(tree, *sizes)
    if other != sizes[0]:
        assert_refused(proof, tree, sizes, old_size=other)
        assert_refused(proof, tree, (other, sizes[1]))


@given(SIZES, st.integers(1, 2000))
def test_refuses_another_new_size(tree: Tree, sizes: Sizes, other: int) -> None:
    proof = consistency(tree, *sizes)
    if other != sizes[1]:
        assert_refused(proof, tree, sizes, new_size=other)
        assert_refused(proof, tree, (sizes[0], other))
        assert_refused(replace(proof, size=other), tree, (sizes[0], other))


@given(SIZES)
def test_refuses_another_root(tree: Tree, other_tree: Tree, sizes: Sizes) -> None:
    proof = consistency(tree, *sizes)
    for wrong in (other_tree.root(sizes[1]), tree.root(sizes[1] + 1), bytes(32)):
        assert_refused(proof, tree, sizes, new_root=wrong)
        if sizes[0]:
            assert_refused(proof, tree, sizes, old_root=wrong)


@given(NEW_SIZES)
def test_refuses_two_roots_for_one_size(tree: Tree, other_tree: Tree, size: int) -> None:
    for source in (tree, other_tree):
        proof = consistency(source, size, size)
        assert_refused(proof, tree, (size, size), old_root=other_tree.root(size))
        assert_refused(proof, tree, (size, size), new_root=other_tree.root(size))


@given(SIZES.filter(lambda sizes: sizes[0] > 0))
def test_refuses_a_fork_that_shares_only_a_part_of_the_old_range(
    tree: Tree, other_tree: Tree, sizes: Sizes
) -> None:
    proof = consistency(other_tree, *sizes)
    assert_refused(proof, tree, sizes)
    assert_refused(proof, tree, sizes, new_root=other_tree.root(sizes[1]))
    spliced = replace(proof, peaks_before=consistency(tree, *sizes).peaks_before)
    assert_refused(spliced, tree, sizes, new_root=other_tree.root(sizes[1]))


@given(SIZES.filter(lambda sizes: sizes[0] < sizes[1]))
def test_refuses_an_old_size_above_the_new_one(tree: Tree, sizes: Sizes) -> None:
    new, old = sizes
    if new:
        for size in (old, new):
            proof = consistency(tree, size, size)
            assert_refused(proof, tree, (old, new))
            assert_refused(replace(proof, size=new), tree, (old, new))


def test_refuses_an_old_size_above_the_new_one_with_one_root_for_both(tree: Tree) -> None:
    shrunk = replace(consistency(tree, 5, 5), size=3)
    assert_refused(shrunk, tree, (5, 3), new_root=tree.root(5))


def test_refuses_a_proof_that_carries_leaves(tree: Tree) -> None:
    run = RangeProof.build(tree, 4, 6, 9)
    for old in (3, 4, 6):
        assert_refused(run, tree, (old, 9))


def test_an_old_size_of_nothing_binds_the_whole_new_range(tree: Tree, other_tree: Tree) -> None:
    for new in range(1, 66):
        proof = consistency(other_tree, 0, new)
        assert_refused(proof, tree, (0, new))
