"""Nodes that stand for chunks: whatever the chunks are, they lead to the root of all leaves."""

from __future__ import annotations

from functools import cache
from itertools import accumulate

from hypothesis import given, settings
from hypothesis import strategies as some

from spark_jobs.query_bridge import gaps
from spark_jobs.query_nodes import Top, Upper, proof, trees
from veen import mmr
from veen.digest import h
from veen.inclusion import InclusionProof
from veen.mmr import Peaks

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
    return [one.top for one in trees(after + 1, leaves)]


@settings(deadline=None)
@given(sizes=SIZES, near=some.integers(1, 29))
def test_leads_to_the_root_of_all_leaves(sizes: list[int], near: int) -> None:
    ends = list(accumulate(sizes))
    start, beyond = ends[:near][-1], ends[near:]
    if not beyond:
        return
    upper = Upper(peaks_at(start))
    found = list(gaps(start, beyond))
    for one in found:
        first = beyond[one.chunk - 1] if one.chunk else start
        assert first <= one.cut.after < one.cut.upto <= beyond[one.chunk]
        upper.graft(one.top(one.within(peaks_at(one.cut.after)), tops(*one.cut)))
    assert upper.peaks == peaks_at(ends[-1])
    assert [one.chunk for one in found] == sorted(one.chunk for one in found)
    assert len(found) <= 2 * ends[-1].bit_length()


@settings(deadline=None)
@given(sizes=SIZES)
def test_proofs_of_what_was_read_are_those_of_whoever_has_every_node(sizes: list[int]) -> None:
    ends = list(accumulate(sizes))
    read = [leaf(seq) for seq in range(1, ends[0] + 1)]
    upper, own = Upper(mmr.EMPTY), list(trees(1, read))
    for tree in own:
        upper.graft(tree.top)
    for one in gaps(ends[0], ends[1:]):
        upper.graft(one.top(one.within(peaks_at(one.cut.after)), tops(*one.cut)))
    whole = Upper(mmr.EMPTY)
    for seq in range(1, ends[-1] + 1):
        whole.graft(Top(0, leaf(seq)))
    for seq in range(1, ends[0] + 1):
        tree = next(tree for tree in own if seq in tree.seqs)
        found: InclusionProof = proof(seq, ends[-1], tree.path(seq), upper.nodes)
        assert found == proof(seq, ends[-1], (), whole.nodes)
