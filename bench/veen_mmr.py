"""How the MMR grows: appending, and proving a leaf, from a thousand leaves to a million."""

from __future__ import annotations

import random
from collections.abc import Iterator
from functools import partial

from measure import Comparison, Measurement, compare

from veen import mmr
from veen.digest import h, u64be
from veen.proofs import InclusionProof

SMALL = 1_000
SIZES = (SMALL, 10_000, 100_000, 1_000_000)
APPENDS = 1_024
PROOFS = 64
LEAF = h(b"leaf")
MICROSECONDS = 1e6
# What is O(log n) costs at most twice as much when n is squared.
GROWTH_AT_MOST = 2


class NodeList:
    """A range in memory, each node where ``mmr.position`` says."""

    def __init__(self, size: int) -> None:
        self._nodes: list[bytes] = []
        for leaf in range(size):
            self._append(leaf)

    def node(self, height: int, index: int) -> bytes:
        return self._nodes[mmr.position(height, index)]

    def _append(self, leaf: int) -> None:
        node = h(u64be(leaf))
        self._nodes.append(node)
        for height in range(mmr.trailing_ones(leaf)):
            node = mmr.node(self.node(height, (leaf >> height) - 1), node)
            self._nodes.append(node)


def measure() -> Iterator[Measurement]:
    nodes = NodeList(max(SIZES))
    yield from _appending(nodes)
    yield from _proving(nodes)


def _appending(nodes: NodeList) -> Iterator[Measurement]:
    small = partial(_append_run, mmr.peaks_at(nodes, SMALL))
    for size in SIZES:
        run = partial(_append_run, mmr.peaks_at(nodes, size))
        growth = compare(run, small, calls=8)
        yield Measurement(
            bench=f"mmr_append_with_root_at_{size}",
            value=APPENDS / growth.seconds,
            unit="appends/s",
            against=f"time of the same at {SMALL} leaves",
            ratio=growth.ratio,
            at_most=GROWTH_AT_MOST,
        )


def _proving(nodes: NodeList) -> Iterator[Measurement]:
    large = max(SIZES)
    building = compare(_building(nodes, large), _building(nodes, SMALL), calls=8)
    yield _proof_growth("inclusion_build", building)
    verifying = compare(_verifying(nodes, large), _verifying(nodes, SMALL), calls=8)
    yield _proof_growth("inclusion_verify", verifying)


def _proof_growth(name: str, growth: Comparison) -> Measurement:
    return Measurement(
        bench=f"{name}_at_{max(SIZES)}",
        value=growth.seconds / PROOFS * MICROSECONDS,
        unit="us",
        against=f"time of the same at {SMALL} leaves",
        ratio=growth.ratio,
        at_most=GROWTH_AT_MOST,
    )


def _append_run(peaks: mmr.Peaks) -> None:
    """Appends in a row, each followed by the root that its receipt would carry."""
    for _ in range(APPENDS):
        peaks = peaks.append(LEAF)
        peaks.root()


def _building(nodes: NodeList, size: int) -> partial[list[InclusionProof]]:
    return partial(_build, nodes, _some_leaves(size), size)


def _build(nodes: NodeList, seqs: list[int], size: int) -> list[InclusionProof]:
    return [InclusionProof.build(nodes, seq, size) for seq in seqs]


def _verifying(nodes: NodeList, size: int) -> partial[None]:
    proofs = _building(nodes, size)()
    leaves = [nodes.node(0, proof.stream_seq - 1) for proof in proofs]
    return partial(_verify, proofs, leaves, mmr.peaks_at(nodes, size))


def _verify(proofs: list[InclusionProof], leaves: list[bytes], peaks: mmr.Peaks) -> None:
    root = peaks.root()
    for proof, leaf in zip(proofs, leaves, strict=True):
        proof.verify(leaf_hash=leaf, stream_seq=proof.stream_seq, size=peaks.size, root=root)


def _some_leaves(size: int) -> list[int]:
    """The same leaves in every run, spread evenly by chance."""
    return random.Random(size).sample(range(1, size + 1), PROOFS)
