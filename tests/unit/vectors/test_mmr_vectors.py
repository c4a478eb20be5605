"""Merkle mountain ranges, proofs and attachment roots of veen.json against the library."""

from __future__ import annotations

from dataclasses import replace
from functools import reduce
from operator import itemgetter
from typing import Any

import pytest

from support.vectors import load_vectors
from veen import mmr
from veen.errors import Malformed, Untrusted
from veen.payload import attachment_root
from veen.proofs import (
    LEAF_ON_THE_LEFT,
    LEAF_ON_THE_RIGHT,
    InclusionProof,
    MmrProof,
    ProofStep,
    RangeProof,
)

CASES = load_vectors("veen.json")
NAME = itemgetter("name")
GROWTH = pytest.mark.parametrize("case", CASES["mmr_growth"], ids=NAME)
INCLUSION = pytest.mark.parametrize("case", CASES["inclusion_proofs"], ids=NAME)
RANGE = pytest.mark.parametrize("case", CASES["range_proofs"], ids=NAME)


class Leaves:
    """Every node of a range, folded anew from the leaves under it."""

    def __init__(self, leaves: tuple[bytes, ...]) -> None:
        self._leaves = leaves

    def node(self, height: int, index: int) -> bytes:
        if height == 0:
            return self._leaves[index]
        return mmr.node(self.node(height - 1, 2 * index), self.node(height - 1, 2 * index + 1))


def appended(leaves: tuple[bytes, ...]) -> mmr.Peaks:
    return reduce(mmr.Peaks.append, leaves, mmr.EMPTY)


@pytest.mark.parametrize("case", CASES["mmr_nodes"], ids=NAME)
def test_node(case: dict[str, Any], revived: Any) -> None:
    assert mmr.node(revived(case["left"]), revived(case["right"])).hex() == case["node"]


@pytest.mark.parametrize("case", CASES["mmr_roots"], ids=NAME)
def test_root_of_peaks(case: dict[str, Any], revived: Any) -> None:
    size = 2 ** len(case["peaks"]) - 1
    assert mmr.Peaks(size, revived(case["peaks"])).root().hex() == case["root"]


@GROWTH
def test_appending_leaves_gives_peaks_and_root(case: dict[str, Any], revived: Any) -> None:
    result = appended(revived(case["leaves"]))
    assert result.hashes == revived(case["peaks"])
    assert result.root().hex() == case["root"]


@GROWTH
def test_proof_of_the_last_leaf_encodes_to_its_bytes(case: dict[str, Any], revived: Any) -> None:
    leaves = revived(case["leaves"])
    assert MmrProof.build(Leaves(leaves), len(leaves)).encode().hex() == case["proof"]


@GROWTH
def test_proof_of_the_last_leaf_decodes_from_its_bytes(case: dict[str, Any], revived: Any) -> None:
    steps = tuple(
        ProofStep(dir=LEAF_ON_THE_RIGHT, sib=sibling) for sibling in revived(case["path"])
    )
    leaf, other_peaks = revived(case["leaves"])[-1], revived(case["peaks"])[1:]
    expected = MmrProof(leaf_hash=leaf, path=steps, peaks_after=other_peaks)
    assert MmrProof.decode(revived(case["proof"])) == expected


@GROWTH
def test_proof_of_the_last_leaf_leads_to_the_root(case: dict[str, Any], revived: Any) -> None:
    leaves = revived(case["leaves"])
    MmrProof.decode(revived(case["proof"])).verify(
        leaf_hash=leaves[-1], stream_seq=len(leaves), root=revived(case["root"])
    )


@GROWTH
def test_proof_does_not_hold_at_another_size(case: dict[str, Any], revived: Any) -> None:
    proof, leaves = MmrProof.decode(revived(case["proof"])), revived(case["leaves"])
    for size in {0, len(leaves) - 1, len(leaves) + 1, 2 * len(leaves)}:
        with pytest.raises(Untrusted):
            proof.verify(leaf_hash=leaves[-1], stream_seq=size, root=revived(case["root"]))


@pytest.mark.parametrize("case", [case for case in CASES["mmr_growth"] if case["path"]], ids=NAME)
def test_proof_with_the_leaf_on_the_left_is_refused(case: dict[str, Any], revived: Any) -> None:
    """The last leaf of a range is never a left child, whatever the root."""
    proof, leaves = MmrProof.decode(revived(case["proof"])), revived(case["leaves"])
    mirrored = tuple(replace(step, dir=LEAF_ON_THE_LEFT) for step in proof.path)
    with pytest.raises(Untrusted):
        replace(proof, path=mirrored).verify(
            leaf_hash=leaves[-1], stream_seq=len(leaves), root=revived(case["root"])
        )


@GROWTH
def test_proof_cut_short_anywhere_is_refused(case: dict[str, Any], revived: Any) -> None:
    raw = revived(case["proof"])
    for size in range(len(raw)):
        with pytest.raises(Malformed):
            MmrProof.decode(raw[:size])


@INCLUSION
def test_inclusion_proof_encodes_to_its_bytes(case: dict[str, Any], revived: Any) -> None:
    leaves = revived(case["leaves"])
    proof = InclusionProof.build(Leaves(leaves), case["stream_seq"], len(leaves))
    assert proof.encode().hex() == case["proof"]


@INCLUSION
def test_inclusion_proof_leads_to_the_root(case: dict[str, Any], revived: Any) -> None:
    leaves, seq = revived(case["leaves"]), case["stream_seq"]
    InclusionProof.decode(revived(case["proof"])).verify(
        leaf_hash=leaves[seq - 1], stream_seq=seq, size=len(leaves), root=revived(case["root"])
    )


@INCLUSION
def test_inclusion_proof_holds_for_no_other_leaf(case: dict[str, Any], revived: Any) -> None:
    leaves, seq = revived(case["leaves"]), case["stream_seq"]
    with pytest.raises(Untrusted):
        InclusionProof.decode(revived(case["proof"])).verify(
            leaf_hash=bytes(32), stream_seq=seq, size=len(leaves), root=revived(case["root"])
        )


@RANGE
def test_range_proof_encodes_to_its_bytes(case: dict[str, Any], revived: Any) -> None:
    leaves = revived(case["leaves"])
    proof = RangeProof.build(Leaves(leaves), case["from_seq"], case["to_seq"], len(leaves))
    assert proof.encode().hex() == case["proof"]


@RANGE
def test_range_proof_leads_to_the_root(case: dict[str, Any], revived: Any) -> None:
    leaves = revived(case["leaves"])
    RangeProof.decode(revived(case["proof"])).verify(
        leaves=leaves[case["from_seq"] - 1 : case["to_seq"]],
        size=len(leaves),
        root=revived(case["root"]),
    )


@RANGE
def test_range_proof_with_a_leaf_too_many_is_refused(case: dict[str, Any], revived: Any) -> None:
    leaves = revived(case["leaves"])
    with pytest.raises(Untrusted):
        RangeProof.decode(revived(case["proof"])).verify(
            leaves=(*leaves[case["from_seq"] - 1 : case["to_seq"]], bytes(32)),
            size=len(leaves),
            root=revived(case["root"]),
        )


@pytest.mark.parametrize("case", CASES["att_roots"], ids=NAME)
def test_att_root_is_hashed_for_any_number_of_peaks(case: dict[str, Any], revived: Any) -> None:
    assert attachment_root(revived(case["sealed"])).hex() == case["att_root"]
