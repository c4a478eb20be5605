"""Inclusion at a size: that a leaf stands in a range which has grown since."""

from __future__ import annotations

from dataclasses import dataclass

from veen import mmr
from veen.errors import Malformed, Untrusted
from veen.limits import MAX_PROOF_PATH
from veen.schema import Bytes32, Version
from veen.wire import WireMap


@dataclass(frozen=True, slots=True, kw_only=True)
class InclusionProof(WireMap):
    """Siblings from the leaf up to its peak, and the other peaks by increasing height."""

    ver: Version = 1
    stream_seq: int
    size: int
    path: tuple[Bytes32, ...]
    peaks: tuple[Bytes32, ...]

    def rule(self) -> None:
        if not 1 <= self.stream_seq <= self.size:
            raise Malformed(f"leaf {self.stream_seq} of {self.size}")
        if len(self.path) > MAX_PROOF_PATH or len(self.peaks) > MAX_PROOF_PATH:
            raise Malformed(f"a proof of more than {MAX_PROOF_PATH} steps or peaks")

    @classmethod
    def build(cls, nodes: mmr.Nodes, stream_seq: int, size: int) -> InclusionProof:
        leaf = stream_seq - 1
        own = _own_height(stream_seq, size)
        others = (peak for peak in mmr.peak_nodes(size) if peak[0] != own)
        return cls(
            stream_seq=stream_seq,
            size=size,
            path=tuple(nodes.node(height, (leaf >> height) ^ 1) for height in range(own)),
            peaks=tuple(nodes.node(height, index) for height, index in others),
        )

    def verify(self, *, leaf_hash: bytes, stream_seq: int, size: int, root: bytes) -> None:
        """Refuse unless ``leaf_hash`` is leaf ``stream_seq`` of the range of that size and root.

        ``size`` and ``root`` come from one signed object.
        """
        Shown(size, root).verify(self, leaf_hash=leaf_hash, stream_seq=stream_seq)

    def verify_form(self, stream_seq: int, size: int) -> None:
        """Refuse unless this is as long as a proof of that leaf at that size must be."""
        if (self.stream_seq, self.size) != (stream_seq, size):
            raise Untrusted(f"a proof of leaf {self.stream_seq} of {self.size}, not of this one")
        if not 1 <= stream_seq <= size:
            raise Untrusted(f"leaf {stream_seq} of {size}")
        height = _own_height(stream_seq, size)
        if len(self.path) != height or len(self.peaks) != size.bit_count() - 1:
            raise Untrusted(f"{len(self.path)} steps and {len(self.peaks)} peaks at size {size}")


class Shown:
    """What proofs have shown of one range: where the next one meets it, it need climb no further.

    ``size`` and ``root`` come from one signed object.
    """

    def __init__(self, size: int, root: bytes) -> None:
        self._size = size
        self._root = root
        self._nodes: dict[tuple[int, int], bytes] = {}
        """With every node that was shown, all that is hashed with it up to its peak."""
        self._peaks: tuple[bytes, ...] = ()

    def verify(self, proof: InclusionProof, *, leaf_hash: bytes, stream_seq: int) -> None:
        """Refuse unless ``leaf_hash`` is leaf ``stream_seq`` of the range."""
        proof.verify_form(stream_seq, self._size)
        leaf, found = stream_seq - 1, leaf_hash
        climbed: dict[tuple[int, int], bytes] = {}
        for height, sibling in enumerate(proof.path):
            index = leaf >> height
            if (height, index) in self._nodes:
                self._meet(proof, height, found)
                break
            climbed[height, index], climbed[height, index ^ 1] = found, sibling
            found = mmr.node(sibling, found) if index & 1 else mmr.node(found, sibling)
        else:
            self._reach(proof, found)
        self._nodes |= climbed

    def _meet(self, proof: InclusionProof, height: int, found: bytes) -> None:
        """Refuse a proof that goes on otherwise than what was shown."""
        leaf, nodes = proof.stream_seq - 1, self._nodes
        rest = (nodes[at, leaf >> at ^ 1] for at in range(height, len(proof.path)))
        if (found, *proof.path[height:]) != (nodes[height, leaf >> height], *rest):
            raise self._otherwise(proof)
        place = self._place(proof)
        if proof.peaks != self._peaks[:place] + self._peaks[place + 1 :]:
            raise self._otherwise(proof)

    def _reach(self, proof: InclusionProof, peak: bytes) -> None:
        place = self._place(proof)
        peaks = (*proof.peaks[:place], peak, *proof.peaks[place:])
        if peaks != self._peaks and mmr.Peaks(self._size, peaks).root() != self._root:
            raise self._otherwise(proof)
        self._peaks = peaks

    def _place(self, proof: InclusionProof) -> int:
        """How many peaks are lower than the one above the leaf."""
        return (self._size & (1 << len(proof.path)) - 1).bit_count()

    def _otherwise(self, proof: InclusionProof) -> Untrusted:
        return Untrusted(f"leaf {proof.stream_seq} is not in the range of size {self._size}")


def _own_height(stream_seq: int, size: int) -> int:
    """The height of the peak above a leaf: where the leaf turns off from the end of the range."""
    return (stream_seq - 1 ^ size).bit_length() - 1
