"""mmr_proof: that a leaf was the last of its label when the root was signed (spec 5.2 - 5.4)."""

from __future__ import annotations

from dataclasses import dataclass

from veen import mmr
from veen.errors import Malformed, Untrusted
from veen.limits import MAX_PROOF_PATH
from veen.schema import Bytes32, Version
from veen.wire import WireMap

LEAF_ON_THE_LEFT, LEAF_ON_THE_RIGHT = 0, 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Step(WireMap):
    dir: int
    sib: Bytes32

    def rule(self) -> None:
        if self.dir not in (LEAF_ON_THE_LEFT, LEAF_ON_THE_RIGHT):
            raise Malformed(f"direction {self.dir}")


@dataclass(frozen=True, slots=True, kw_only=True)
class MmrProof(WireMap):
    ver: Version = 1
    leaf_hash: Bytes32
    path: tuple[Step, ...]
    peaks_after: tuple[Bytes32, ...]

    def rule(self) -> None:
        if len(self.path) > MAX_PROOF_PATH or len(self.peaks_after) > MAX_PROOF_PATH:
            raise Malformed(f"a proof of more than {MAX_PROOF_PATH} steps or peaks")

    @classmethod
    def build(cls, nodes: mmr.Nodes, stream_seq: int) -> MmrProof:
        """The proof that belongs to the receipt of ``stream_seq``."""
        leaf = stream_seq - 1
        own, *after = mmr.peak_nodes(stream_seq)
        path = (nodes.node(height, (leaf >> height) - 1) for height in range(own[0]))
        return cls(
            leaf_hash=nodes.node(0, leaf),
            path=tuple(Step(dir=LEAF_ON_THE_RIGHT, sib=sibling) for sibling in path),
            peaks_after=tuple(nodes.node(height, index) for height, index in after),
        )

    def verify(self, *, leaf_hash: bytes, stream_seq: int, root: bytes) -> None:
        """Refuse unless ``leaf_hash`` is leaf ``stream_seq`` of a range of that size and root.

        Leaf, size and root come from the message and a signed object, never from the proof.
        """
        if stream_seq < 1:
            raise Untrusted("stream_seq 0 has no proof")
        if self.leaf_hash != leaf_hash:
            raise Untrusted("the proof is of another leaf")
        self._verify_shape(stream_seq)
        peak = leaf_hash
        for step in self.path:
            peak = mmr.node(step.sib, peak)
        if mmr.Peaks(stream_seq, (peak, *self.peaks_after)).root() != root:
            raise Untrusted(f"the proof does not lead to the root at {stream_seq}")

    def _verify_shape(self, stream_seq: int) -> None:
        """The last leaf is a right child all the way up to the youngest peak."""
        height = mmr.trailing_ones(stream_seq - 1)
        if [step.dir for step in self.path] != [LEAF_ON_THE_RIGHT] * height:
            raise Untrusted(f"the path is not that of the last of {stream_seq} leaves")
        if len(self.peaks_after) != stream_seq.bit_count() - 1:
            raise Untrusted(f"{len(self.peaks_after)} other peaks at size {stream_seq}")
        if len(set(self.peaks_after)) != len(self.peaks_after):
            raise Untrusted("a peak stands twice in the proof")
