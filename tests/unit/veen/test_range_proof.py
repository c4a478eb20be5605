"""Range proof: which runs of leaves verify, and that every single change is refused."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from support.broken import changed
from veen.errors import Malformed, Untrusted
from veen.proofs import RangeProof
from veen.wire import cbor

if TYPE_CHECKING:
    from support.veen.fixtures import Tree

Span = tuple[int, int, int]
EDGE_SIZES = (1, 2, 3, 4, 5, 7, 8, 9, 15, 16, 17, 63, 64, 65, 255, 256, 257)
SIZES = st.one_of(st.sampled_from(EDGE_SIZES), st.integers(1, 300))
SPANS = SIZES.flatmap(
    lambda size: st.tuples(st.integers(1, size), st.integers(1, size)).map(
        lambda ends: (min(ends), max(ends), size)
    )
)
FLIP_SPANS = ((1, 1, 1), (1, 1, 2), (2, 2, 2), (3, 5, 7), (8, 9, 17), (100, 200, 257), (5, 5, 2000))
HASH_FIELDS = ("peaks_before", "subtrees_after")
Changes = Callable[[tuple[Any, ...]], Iterator[tuple[Any, ...]]]
Flips = Callable[[bytes], Iterator[bytes]]


def verify(proof: RangeProof, tree: Tree, span: Span) -> None:
    first, last, size = span
    proof.verify(leaves=tree.leaves(first, last), size=size, root=tree.root(size))


def assert_refused(proof: RangeProof, tree: Tree, span: Span) -> None:
    with pytest.raises((Untrusted, Malformed)):
        verify(proof, tree, span)


def test_every_run_of_every_small_size_verifies(tree: Tree) -> None:
    for size in range(1, 26):
        for first in range(1, size + 1):
            for last in range(first - 1, size + 1):
                verify(RangeProof.build(tree, first, last, size), tree, (first, last, size))


@given(SPANS)
def test_a_run_verifies_after_the_proof_travelled(tree: Tree, span: Span) -> None:
    verify(RangeProof.decode(RangeProof.build(tree, *span).encode()), tree, span)


@given(SPANS)
def test_the_peaks_before_have_the_root_held_for_the_leaf_before(tree: Tree, span: Span) -> None:
    first = span[0]
    if first > 1:
        assert RangeProof.build(tree, *span).before().root() == tree.root(first - 1)


@pytest.mark.parametrize("span", FLIP_SPANS)
def test_refuses_a_flipped_bit_in_any_hash(tree: Tree, flips: Flips, span: Span) -> None:
    proof = RangeProof.build(tree, *span)
    for field in HASH_FIELDS:
        hashes = getattr(proof, field)
        for i, hash_ in enumerate(hashes):
            for bad in flips(hash_):
                altered = changed(proof, **{field: (*hashes[:i], bad, *hashes[i + 1 :])})
                assert_refused(altered, tree, span)


@given(SPANS)
def test_refuses_dropped_doubled_and_swapped_hashes(
    tree: Tree, changed_hashes: Changes, span: Span
) -> None:
    proof = RangeProof.build(tree, *span)
    for field in HASH_FIELDS:
        for hashes in changed_hashes(getattr(proof, field)):
            assert_refused(changed(proof, **{field: hashes}), tree, span)


@given(SPANS, st.binary(min_size=32, max_size=32))
def test_refuses_an_extra_hash_anywhere(tree: Tree, span: Span, extra: bytes) -> None:
    proof = RangeProof.build(tree, *span)
    for field in HASH_FIELDS:
        hashes = getattr(proof, field)
        for i in range(len(hashes) + 1):
            altered = changed(proof, **{field: (*hashes[:i], extra, *hashes[i:])})
            assert_refused(altered, tree, span)


@given(SPANS, st.sampled_from(["from_seq", "to_seq", "size"]), st.integers(0, 301))
def test_refuses_another_number_in_the_proof(
    tree: Tree, span: Span, field: str, other: int
) -> None:
    proof = RangeProof.build(tree, *span)
    if getattr(proof, field) != other:
        assert_refused(changed(proof, **{field: other}), tree, span)


@given(SPANS, st.data())
def test_refuses_changed_leaves(tree: Tree, span: Span, data: st.DataObject) -> None:
    first, last, size = span
    proof, leaves = RangeProof.build(tree, *span), tree.leaves(first, last)
    i = data.draw(st.integers(0, len(leaves) - 1))
    j = data.draw(st.integers(0, len(leaves) - 1))
    swapped = list(leaves)
    swapped[i], swapped[j] = swapped[j], swapped[i]
    flipped = [*leaves[:i], bytes([leaves[i][0] ^ 1]) + leaves[i][1:], *leaves[i + 1 :]]
    cases = [flipped, leaves[:i] + leaves[i + 1 :], leaves[: i + 1] + leaves[i:], []]
    cases += [[*leaves, tree.leaf(last + 1)], [tree.leaf(first - 1), *leaves]]
    for altered in (*cases, *([swapped] if i != j else [])):
        with pytest.raises(Untrusted):
            proof.verify(leaves=altered, size=size, root=tree.root(size))


@given(SPANS, st.integers(0, 301))
def test_refuses_another_size_or_root(tree: Tree, other_tree: Tree, span: Span, other: int) -> None:
    first, last, size = span
    proof, leaves = RangeProof.build(tree, *span), tree.leaves(first, last)
    claims = [(size, other_tree.root(size)), (size, tree.root(size + 1)), (size, bytes(32))]
    if other != size:
        claims += [(other, tree.root(size)), (other, tree.root(other or 1))]
    for claimed_size, root in claims:
        with pytest.raises(Untrusted):
            proof.verify(leaves=leaves, size=claimed_size, root=root)


@given(SPANS)
def test_refuses_the_proof_of_another_labels_tree(tree: Tree, other_tree: Tree, span: Span) -> None:
    proof = RangeProof.build(other_tree, *span)
    if proof.peaks_before or proof.subtrees_after:
        assert_refused(proof, tree, span)
    with pytest.raises(Untrusted):
        RangeProof.build(tree, *span).verify(
            leaves=other_tree.leaves(span[0], span[1]), size=span[2], root=tree.root(span[2])
        )


@pytest.mark.parametrize("span", [(0, 1, 1), (1, 2, 1), (3, 1, 4), (2, 0, 4), (0, 0, 0)])
def test_refuses_numbers_that_name_no_run_on_the_wire(tree: Tree, span: Span) -> None:
    plain = RangeProof.build(tree, 1, 1, 1).plain()
    with pytest.raises(Malformed):
        RangeProof.decode(cbor.encode({**plain, 2: span[0], 3: span[1], 4: span[2]}))


@pytest.mark.parametrize(("key", "count"), [(5, 65), (6, 129)], ids=["before", "after"])
def test_refuses_more_hashes_than_a_range_has_on_the_wire(tree: Tree, key: int, count: int) -> None:
    plain = RangeProof.build(tree, 1, 1, 1).plain()
    with pytest.raises(Malformed):
        RangeProof.decode(cbor.encode({**plain, key: [bytes(32)] * count}))


def test_refuses_leaves_beyond_the_size_that_the_root_is_signed_for(tree: Tree) -> None:
    proof = RangeProof(from_seq=1, to_seq=5, size=3, peaks_before=(), subtrees_after=())
    with pytest.raises((Untrusted, Malformed)):
        proof.verify(leaves=tree.leaves(1, 5), size=3, root=tree.root(5))
