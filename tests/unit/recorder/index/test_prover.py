"""Proofs that share what they have in common are those that are made one by one."""

from __future__ import annotations

from hashlib import sha256

from recorder.index.proofs import Prover
from veen import mmr
from veen.proofs import InclusionProof

MOST = 40


class Nodes:
    def __init__(self, leaves: int) -> None:
        self._nodes: list[bytes] = []
        peaks = mmr.EMPTY
        for number in range(leaves):
            peaks, completed = mmr.grow(peaks, sha256(b"%d" % number).digest())
            self._nodes += completed

    def node(self, height: int, index: int) -> bytes:
        return self._nodes[mmr.position(height, index)]


def test_gives_the_proofs_of_every_leaf_at_every_size() -> None:
    nodes = Nodes(MOST)
    for size in range(1, MOST + 1):
        prover = Prover(nodes, size)
        for seq in range(1, size + 1):
            assert prover.prove(seq) == InclusionProof.build(nodes, seq, size)
