"""Proofs of many leaves at one size: what they have in common is looked up once."""

from __future__ import annotations

from veen import mmr
from veen.inclusion import InclusionProof
from veen.mmr import Nodes


class Prover:
    """Makes the same proofs as ``InclusionProof.build``."""

    def __init__(self, nodes: Nodes, size: int) -> None:
        self._nodes = nodes
        self._size = size
        self._places = tuple(mmr.peak_nodes(size))
        self._hashes = mmr.peaks_at(nodes, size).hashes

    def prove(self, seq: int) -> InclusionProof:
        leaf = seq - 1
        own = next(
            number
            for number, (height, index) in enumerate(self._places)
            if leaf >> height == index
        )  # fmt: skip
        node = self._nodes.node
        return InclusionProof(
            stream_seq=seq,
            size=self._size,
            path=tuple(
                [node(height, (leaf >> height) ^ 1) for height in range(self._places[own][0])]
            ),
            peaks=self._hashes[:own] + self._hashes[own + 1 :],
        )
