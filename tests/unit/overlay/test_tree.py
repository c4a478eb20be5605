"""The canonical tree: what covers a run, how many nodes that takes, and what a log completes."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from veen.overlay.fold import BLOCK, BadRange, Node, SeqRun, completed, cover

blocks = st.integers(1, 50)
runs = st.tuples(st.integers(1, 3_000), st.integers(0, 3_000)).map(
    lambda p: SeqRun(p[0], sum(p) - 1)
)


def run_of(piece: Node | SeqRun) -> SeqRun:
    return piece.run if isinstance(piece, Node) else piece


@given(run=runs, block=blocks)
def test_a_cover_holds_every_place_once_and_in_order(run: SeqRun, block: int) -> None:
    places = [
        seq
        for piece in cover(run, block)
        for seq in range(run_of(piece).from_seq, run_of(piece).to_seq + 1)
    ]
    assert places == list(range(run.from_seq, run.to_seq + 1))


@given(run=runs, block=blocks)
def test_a_cover_has_at_most_two_parts_each_within_one_block(run: SeqRun, block: int) -> None:
    pieces = cover(run, block)
    parts = [piece for piece in pieces if isinstance(piece, SeqRun)]
    assert len(parts) <= 2
    assert all(part in (pieces[0], pieces[-1]) for part in parts)
    for part in parts:
        assert (part.from_seq - 1) // block == (part.to_seq - 1) // block
        assert part.size < block


@given(run=runs, block=blocks)
def test_no_two_nodes_of_a_cover_could_be_one(run: SeqRun, block: int) -> None:
    nodes = [piece for piece in cover(run, block) if isinstance(piece, Node)]
    parents = [(node.height + 1, node.index // 2) for node in nodes]
    assert len(set(parents)) == len(parents)


@given(from_seq=st.integers(1, 2**62), size=st.integers(0, 2**62))
def test_a_cover_of_any_run_is_short(from_seq: int, size: int) -> None:
    pieces = cover(SeqRun(from_seq, from_seq + size - 1), BLOCK)
    assert len(pieces) <= 2 * max(1, size // BLOCK).bit_length() + 2


@given(end=st.integers(0, 150), step=st.integers(0, 60), block=st.integers(1, 9))
def test_growing_completes_exactly_the_nodes_that_are_new(end: int, step: int, block: int) -> None:
    def whole(upto: int) -> set[Node]:
        nodes = (Node(block, height, index) for height in range(10) for index in range(upto))
        return {node for node in nodes if node.run.to_seq <= upto}

    new = list(completed(SeqRun(end + 1, end + step), block))
    assert len(new) == len(set(new))
    assert set(new) == whole(end + step) - whole(end)
    for node in new:
        if node.height:
            left, right = node.children
            assert new.index(right) < new.index(node)
            assert left not in new[new.index(node) :]


@given(block=blocks, height=st.integers(1, 20), index=st.integers(0, 1_000))
def test_children_are_the_halves_of_a_node(block: int, height: int, index: int) -> None:
    node = Node(block, height, index)
    left, right = node.children
    assert left.run.from_seq == node.run.from_seq
    assert left.run.to_seq + 1 == right.run.from_seq
    assert right.run.to_seq == node.run.to_seq
    assert left.run.size == right.run.size


def test_an_empty_run_is_covered_by_nothing() -> None:
    assert cover(SeqRun(1, 0), 4) == cover(SeqRun(9, 8), 4) == ()


@pytest.mark.parametrize(("first", "last"), [(0, 5), (-1, 1), (3, 1), (0, -1)])
def test_places_that_no_log_has_are_refused(first: int, last: int) -> None:
    with pytest.raises(BadRange):
        SeqRun(first, last)


@pytest.mark.parametrize("block", [0, -1])
def test_blocks_of_no_size_are_refused(block: int) -> None:
    with pytest.raises(BadRange):
        cover(SeqRun(1, 10), block)
    with pytest.raises(BadRange):
        Node(block, 0, 0)
