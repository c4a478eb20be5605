"""Nodes that stand for chunks: whatever the chunks are, they lead to the root of all leaves."""

from __future__ import annotations

from functools import cache
from itertools import accumulate

from hypothesis import given, settings
from hypothesis import strategies as some

from spark_jobs.query_nodes import Top, Upper, gaps, proof, trees
from veen import mmr
from veen.digest import h
from veen.mmr import Peaks
from veen.proofs import InclusionProof

SIZES = some.lists(some.integers(1, 24), min_size=2, max_size=25)


@cache
def leaf(seq: int) -> bytes:
    return h(seq.to_bytes(4, "big"))


@cache
def peaks_at(size: int) -> Peaks:
    """The long way: one leaf after another."""
    return peaks_at(size - 1).append(leaf(size)) if size else mmr.EMPTY


def tops(after: int, upto: int) -> list[Top]:
    leaves = [leaf(seq) for seq in range(after + 1, upto + 1)]
    return [tree.top for tree in trees(after + 1, leaves)]


@settings(deadline=None)
@given(sizes=SIZES, near=some.integers(1, 29))
def test_leads_to_the_root_of_all_leaves(sizes: list[int], near: int) -> None:
    ends = list(accumulate(sizes))
    start, beyond = ends[:near][-1], ends[near:]
    if not beyond:
        return
    upper = Upper(peaks_at(start))
    result = list(gaps(start, beyond))
    for item in result:
        first = beyond[item.chunk - 1] if item.chunk else start
        assert first <= item.cut.after < item.cut.upto <= beyond[item.chunk]
        upper.graft(item.top(item.within(peaks_at(item.cut.after)), tops(*item.cut)))
    assert upper.peaks == peaks_at(ends[-1])
    assert [item.chunk for item in result] == sorted(item.chunk for item in result)
    assert len(result) <= 2 * ends[-1].bit_length()


@settings(deadline=None)
@given(sizes=SIZES)
def test_proofs_of_what_was_read_are_those_of_whoever_has_every_node(sizes: list[int]) -> None:
    ends = list(accumulate(sizes))
    read = [leaf(seq) for seq in range(1, ends[0] + 1)]
    upper, own = Upper(mmr.EMPTY), list(trees(1, read))
    for tree in own:
        upper.graft(tree.top)
    for gap in gaps(ends[0], ends[1:]):
        upper.graft(gap.top(gap.within(peaks_at(gap.cut.after)), tops(*gap.cut)))
    whole = Upper(mmr.EMPTY)
    for seq in range(1, ends[-1] + 1):
        whole.graft(Top(0, leaf(seq)))
    for seq in range(1, ends[0] + 1):
        tree = next(tree for tree in own if seq in tree.seqs)
        result: InclusionProof = proof(seq, ends[-1], tree.path(seq), upper.nodes)
        assert result == proof(seq, ends[-1], (), whole.nodes)
