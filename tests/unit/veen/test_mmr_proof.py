"""mmr_proof: every sequence number verifies, every single change is refused (spec 5.2 - 5.4)."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from support.broken import changed
from veen.errors import Malformed, Untrusted
from veen.proofs import MmrProof, ProofStep
from veen.wire import cbor

if TYPE_CHECKING:
    from support.veen.fixtures import Tree

EDGES = (1, 2, 3, 4, 5, 7, 8, 9, 15, 16, 17, 63, 64, 65, 1000, 1023, 1024, 1025, 2000)
Changes = Callable[[tuple[Any, ...]], Iterator[tuple[Any, ...]]]
Flips = Callable[[bytes], Iterator[bytes]]


def assert_refused(proof: MmrProof, leaf_hash: bytes, stream_seq: int, root: bytes) -> None:
    with pytest.raises((Untrusted, Malformed)):
        proof.verify(leaf_hash=leaf_hash, stream_seq=stream_seq, root=root)


def assert_all_refused(tree: Tree, seq: int, changed: Iterator[MmrProof]) -> None:
    for proof in changed:
        assert_refused(proof, tree.leaf(seq), seq, tree.root(seq))


def test_every_sequence_number_builds_and_verifies(tree: Tree) -> None:
    for seq in range(1, 2001):
        proof = MmrProof.build(tree, seq)
        proof.verify(leaf_hash=tree.leaf(seq), stream_seq=seq, root=tree.root(seq))


def test_path_and_peaks_are_as_many_as_the_sequence_number_says(tree: Tree) -> None:
    for seq in range(1, 2001):
        proof = MmrProof.build(tree, seq)
        assert len(proof.path) == (seq & -seq).bit_length() - 1
        assert len(proof.peaks_after) == seq.bit_count() - 1
        assert all(step.dir == 1 for step in proof.path)


@given(seq=st.integers(1, 2**63))
def test_a_proof_survives_its_encoding(tree: Tree, seq: int) -> None:
    proof = MmrProof.build(tree, seq % 4096 + 1)
    assert MmrProof.decode(proof.encode()) == proof


@pytest.mark.parametrize("seq", EDGES)
def test_refuses_a_flipped_bit_in_any_hash(tree: Tree, flips: Flips, seq: int) -> None:
    proof = MmrProof.build(tree, seq)

    def changed() -> Iterator[MmrProof]:
        for bad in flips(proof.leaf_hash):
            yield replace(proof, leaf_hash=bad)
        for i, step in enumerate(proof.path):
            for bad in flips(step.sib):
                path = (*proof.path[:i], replace(step, sib=bad), *proof.path[i + 1 :])
                yield replace(proof, path=path)
        for i, peak in enumerate(proof.peaks_after):
            for bad in flips(peak):
                peaks = (*proof.peaks_after[:i], bad, *proof.peaks_after[i + 1 :])
                yield replace(proof, peaks_after=peaks)

    assert_all_refused(tree, seq, changed())


@given(seq=st.one_of(st.sampled_from(EDGES), st.integers(1, 2000)))
def test_refuses_dropped_doubled_and_swapped_parts(
    tree: Tree, changed_hashes: Changes, seq: int
) -> None:
    proof = MmrProof.build(tree, seq)
    paths = (replace(proof, path=path) for path in changed_hashes(proof.path))
    peaks = (replace(proof, peaks_after=peaks) for peaks in changed_hashes(proof.peaks_after))
    assert_all_refused(tree, seq, paths)
    assert_all_refused(tree, seq, peaks)


@given(
    seq=st.one_of(st.sampled_from(EDGES), st.integers(1, 2000)),
    extra=st.binary(min_size=32, max_size=32),
)
def test_refuses_an_extra_part_anywhere(tree: Tree, seq: int, extra: bytes) -> None:
    proof = MmrProof.build(tree, seq)

    def changed() -> Iterator[MmrProof]:
        for side in (0, 1):
            step = ProofStep(dir=side, sib=extra)
            for i in range(len(proof.path) + 1):
                yield replace(proof, path=(*proof.path[:i], step, *proof.path[i:]))
        for i in range(len(proof.peaks_after) + 1):
            yield replace(
                proof, peaks_after=(*proof.peaks_after[:i], extra, *proof.peaks_after[i:])
            )

    assert_all_refused(tree, seq, changed())


@given(seq=st.one_of(st.sampled_from(EDGES), st.integers(1, 2000)))
def test_refuses_a_flipped_direction(tree: Tree, seq: int) -> None:
    proof = MmrProof.build(tree, seq)
    for i, step in enumerate(proof.path):
        path = (*proof.path[:i], replace(step, dir=0), *proof.path[i + 1 :])
        assert_refused(replace(proof, path=path), tree.leaf(seq), seq, tree.root(seq))


@given(seq=st.integers(1, 300), other=st.integers(0, 300))
def test_refuses_another_sequence_number_with_its_own_root(
    tree: Tree, seq: int, other: int
) -> None:
    if seq == other:
        return
    root = tree.root(other) if other else tree.root(seq)
    assert_refused(MmrProof.build(tree, seq), tree.leaf(seq), other, root)


@given(seq=st.integers(1, 2000), other=st.integers(0, 2000))
def test_refuses_another_sequence_number_of_another_shape(tree: Tree, seq: int, other: int) -> None:
    shape, other_shape = ((n & -n, n.bit_count()) for n in (seq, other))
    if shape != other_shape:
        assert_refused(MmrProof.build(tree, seq), tree.leaf(seq), other, tree.root(seq))


def test_a_root_alone_does_not_say_the_size_so_sizes_come_from_signed_objects(tree: Tree) -> None:
    proof = MmrProof.build(tree, 5)
    proof.verify(leaf_hash=tree.leaf(5), stream_seq=9, root=tree.root(5))


@given(seq=st.integers(1, 2000), wrong=st.integers(1, 2000))
def test_refuses_another_leaf(tree: Tree, seq: int, wrong: int) -> None:
    proof, leaf = MmrProof.build(tree, seq), tree.leaf(wrong)
    if seq != wrong:
        assert_refused(proof, leaf, seq, tree.root(seq))
        assert_refused(replace(proof, leaf_hash=leaf), leaf, seq, tree.root(seq))


@given(seq=st.integers(1, 2000))
def test_refuses_another_root_and_another_labels_tree(
    tree: Tree, other_tree: Tree, seq: int
) -> None:
    proof = MmrProof.build(tree, seq)
    assert_refused(proof, tree.leaf(seq), seq, tree.root(seq + 1))
    assert_refused(proof, tree.leaf(seq), seq, other_tree.root(seq))
    assert_refused(MmrProof.build(other_tree, seq), tree.leaf(seq), seq, tree.root(seq))


def test_refuses_a_node_presented_as_a_leaf(tree: Tree) -> None:
    proof = MmrProof.build(tree, 8)
    inner = tree.node(1, 3)
    short = replace(proof, leaf_hash=inner, path=proof.path[1:])
    assert_refused(short, tree.leaf(8), 8, tree.root(8))
    assert_refused(short, inner, 8, tree.root(8))


@pytest.mark.parametrize("field", ["path", "peaks_after"])
def test_refuses_more_than_64_parts_on_the_wire(tree: Tree, field: str) -> None:
    part = ProofStep(dir=1, sib=bytes(32)) if field == "path" else bytes(32)
    plain = MmrProof.build(tree, 1).plain()
    key, element = (3, {1: 1, 2: bytes(32)}) if field == "path" else (4, bytes(32))
    with pytest.raises(Malformed):
        MmrProof.decode(cbor.encode({**plain, key: [element] * 65}))
    with pytest.raises(Malformed):
        changed(MmrProof.build(tree, 1), **{field: (part,) * 65}).encode()


@pytest.mark.parametrize("direction", [2, 23, 24, 2**64 - 1])
def test_refuses_a_direction_other_than_left_or_right(direction: int) -> None:
    with pytest.raises(Malformed):
        ProofStep.decode(cbor.encode({1: direction, 2: bytes(32)}))
