"""Inclusion at a size: what verifies, and that every single change is refused."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from itertools import islice
from random import Random
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from support.broken import changed
from veen.errors import Malformed, Untrusted
from veen.proofs import InclusionProof, ProvenRange
from veen.wire import cbor

if TYPE_CHECKING:
    from support.veen.fixtures import Tree

EDGE_SIZES = (1, 2, 3, 4, 5, 7, 8, 9, 15, 16, 17, 31, 33, 255, 256, 257, 1023, 1024, 1025)
PLACES = st.one_of(st.sampled_from(EDGE_SIZES), st.integers(1, 2000)).flatmap(
    lambda size: st.tuples(
        st.one_of(st.sampled_from((1, size)), st.integers(1, size)), st.just(size)
    )
)
FLIP_PLACES = ((1, 1), (1, 2), (2, 3), (4, 7), (8, 8), (9, 9), (700, 1025), (1024, 1024), (1, 1999))
Changes = Callable[[tuple[Any, ...]], Iterator[tuple[Any, ...]]]
Flips = Callable[[bytes], Iterator[bytes]]


def verify(proof: InclusionProof, tree: Tree, seq: int, size: int) -> None:
    proof.verify(leaf_hash=tree.leaf(seq), stream_seq=seq, size=size, root=tree.root(size))


def assert_refused(proof: InclusionProof, tree: Tree, seq: int, size: int) -> None:
    with pytest.raises((Untrusted, Malformed)):
        verify(proof, tree, seq, size)


def test_every_leaf_of_every_small_size_verifies(tree: Tree) -> None:
    for size in range(1, 70):
        for seq in range(1, size + 1):
            verify(InclusionProof.build(tree, seq, size), tree, seq, size)


@given(PLACES)
def test_a_leaf_verifies_after_the_proof_travelled(tree: Tree, place: tuple[int, int]) -> None:
    proof = InclusionProof.build(tree, *place)
    verify(InclusionProof.decode(proof.encode()), tree, *place)


@pytest.mark.parametrize(("seq", "size"), FLIP_PLACES)
def test_refuses_a_flipped_bit_in_any_hash(tree: Tree, flips: Flips, seq: int, size: int) -> None:
    proof = InclusionProof.build(tree, seq, size)
    for field in ("path", "peaks"):
        hashes = getattr(proof, field)
        for i, hash_ in enumerate(hashes):
            for bad in flips(hash_):
                altered = changed(proof, **{field: (*hashes[:i], bad, *hashes[i + 1 :])})
                assert_refused(altered, tree, seq, size)


@given(PLACES)
def test_refuses_dropped_doubled_and_swapped_hashes(
    tree: Tree, changed_hashes: Changes, place: tuple[int, int]
) -> None:
    proof = InclusionProof.build(tree, *place)
    for path in changed_hashes(proof.path):
        assert_refused(replace(proof, path=path), tree, *place)
    for peaks in changed_hashes(proof.peaks):
        assert_refused(replace(proof, peaks=peaks), tree, *place)


@given(PLACES, st.binary(min_size=32, max_size=32))
def test_refuses_an_extra_hash_anywhere(tree: Tree, place: tuple[int, int], extra: bytes) -> None:
    proof = InclusionProof.build(tree, *place)
    for field in ("path", "peaks"):
        hashes = getattr(proof, field)
        for i in range(len(hashes) + 1):
            altered = changed(proof, **{field: (*hashes[:i], extra, *hashes[i:])})
            assert_refused(altered, tree, *place)


@given(PLACES)
def test_refuses_a_hash_moved_between_path_and_peaks(tree: Tree, place: tuple[int, int]) -> None:
    proof = InclusionProof.build(tree, *place)
    if proof.path:
        moved = replace(proof, path=proof.path[:-1], peaks=(*proof.peaks, proof.path[-1]))
        assert_refused(moved, tree, *place)
    if proof.peaks:
        moved = replace(proof, path=(*proof.path, proof.peaks[0]), peaks=proof.peaks[1:])
        assert_refused(moved, tree, *place)


@given(PLACES, st.integers(0, 2001))
def test_refuses_another_sequence_number(tree: Tree, place: tuple[int, int], other: int) -> None:
    seq, size = place
    if other == seq:
        return
    proof = InclusionProof.build(tree, seq, size)
    renamed = replace(proof, stream_seq=other)
    assert_refused(renamed, tree, seq, size)
    for claim in (proof, renamed):
        with pytest.raises((Untrusted, Malformed)):
            claim.verify(
                leaf_hash=tree.leaf(seq), stream_seq=other, size=size, root=tree.root(size)
            )


@given(PLACES, st.integers(0, 2001))
def test_refuses_another_size(tree: Tree, place: tuple[int, int], other: int) -> None:
    seq, size = place
    if other == size:
        return
    proof = InclusionProof.build(tree, seq, size)
    assert_refused(replace(proof, size=other), tree, seq, size)
    roots = [tree.root(size), *([tree.root(other)] if other else [])]
    for root in roots:
        with pytest.raises((Untrusted, Malformed)):
            proof.verify(leaf_hash=tree.leaf(seq), stream_seq=seq, size=other, root=root)


@given(PLACES, st.integers(1, 2000))
def test_refuses_another_size_signed_with_its_own_root(
    tree: Tree, place: tuple[int, int], other: int
) -> None:
    seq, size = place
    if other != size:
        claim = replace(InclusionProof.build(tree, seq, size), size=other)
        assert_refused(claim, tree, seq, other)


@given(PLACES, st.integers(1, 2000))
def test_refuses_another_leaf(tree: Tree, place: tuple[int, int], wrong: int) -> None:
    seq, size = place
    proof, root = InclusionProof.build(tree, seq, size), tree.root(size)
    if wrong != seq:
        with pytest.raises(Untrusted):
            proof.verify(leaf_hash=tree.leaf(wrong), stream_seq=seq, size=size, root=root)


@given(PLACES)
def test_refuses_another_root_and_another_labels_tree(
    tree: Tree, other_tree: Tree, place: tuple[int, int]
) -> None:
    seq, size = place
    proof, leaf = InclusionProof.build(tree, seq, size), tree.leaf(seq)
    for root in (other_tree.root(size), tree.root(size + 1), bytes(32)):
        with pytest.raises(Untrusted):
            proof.verify(leaf_hash=leaf, stream_seq=seq, size=size, root=root)
    if size > 1:  # of a single leaf there is nothing to prove: its proof is empty
        assert_refused(InclusionProof.build(other_tree, seq, size), tree, seq, size)


def test_refuses_a_node_presented_as_a_leaf(tree: Tree) -> None:
    proof = InclusionProof.build(tree, 3, 4)
    short = replace(proof, path=proof.path[1:])
    with pytest.raises(Untrusted):
        short.verify(leaf_hash=tree.node(1, 1), stream_seq=3, size=4, root=tree.root(4))
    with pytest.raises(Untrusted):
        proof.verify(leaf_hash=tree.node(1, 1), stream_seq=2, size=2, root=tree.root(4))


@pytest.mark.parametrize("key", [4, 5], ids=["path", "peaks"])
def test_refuses_more_than_64_hashes_on_the_wire(tree: Tree, key: int) -> None:
    plain = InclusionProof.build(tree, 1, 1).plain()
    with pytest.raises(Malformed):
        InclusionProof.decode(cbor.encode({**plain, key: [bytes(32)] * 65}))


@pytest.mark.parametrize(("seq", "size"), [(0, 0), (0, 1), (2, 1), (1, 0)])
def test_refuses_a_leaf_that_is_not_of_the_range(tree: Tree, seq: int, size: int) -> None:
    plain = InclusionProof.build(tree, 1, 1).plain()
    with pytest.raises(Malformed):
        InclusionProof.decode(cbor.encode({**plain, 2: seq, 3: size}))
    proof = InclusionProof(stream_seq=seq, size=size, path=(), peaks=())
    with pytest.raises(Untrusted):
        proof.verify(leaf_hash=tree.leaf(1), stream_seq=seq, size=size, root=tree.leaf(1))


@given(st.integers(1, 300), st.data())
def test_many_proofs_of_one_range_fare_as_each_would_alone(
    tree: Tree, size: int, data: st.DataObject
) -> None:
    root = tree.root(size)
    shown = ProvenRange(size, root)
    for seq in data.draw(st.lists(st.integers(1, size), min_size=1, max_size=12)):
        proof = data.draw(
            st.sampled_from(list(_perhaps_changed(InclusionProof.build(tree, seq, size))))
        )
        leaf = tree.leaf(data.draw(st.sampled_from((seq, max(1, seq - 1)))))
        together = partial(shown.verify, proof, leaf_hash=leaf, stream_seq=seq)
        alone = partial(proof.verify, leaf_hash=leaf, stream_seq=seq, size=size, root=root)
        assert _refused(together) == _refused(alone)


@pytest.mark.parametrize("seed", range(4))
def test_all_leaves_of_every_small_range_verify_and_no_change_does(tree: Tree, seed: int) -> None:
    draw = Random(seed)
    for size in range(1, 36):
        shown = ProvenRange(size, tree.root(size))
        for seq in draw.sample(range(1, size + 1), size):
            proof = InclusionProof.build(tree, seq, size)
            shown.verify(proof, leaf_hash=tree.leaf(seq), stream_seq=seq)
            for bad in islice(_perhaps_changed(proof), 2, None):
                assert _refused(
                    partial(shown.verify, bad, leaf_hash=tree.leaf(seq), stream_seq=seq)
                )


def _perhaps_changed(proof: InclusionProof) -> Iterator[InclusionProof]:
    yield proof
    yield proof
    for field in ("path", "peaks"):
        hashes = getattr(proof, field)
        for i, hash_ in enumerate(hashes):
            bad = bytes([hash_[0] ^ 1]) + hash_[1:]
            yield changed(proof, **{field: (*hashes[:i], bad, *hashes[i + 1 :])})
        if len(hashes) > 1:
            yield changed(proof, **{field: tuple(reversed(hashes))})


def _refused(verify: Callable[[], None]) -> bool:
    try:
        verify()
    except Untrusted:
        return True
    return False
