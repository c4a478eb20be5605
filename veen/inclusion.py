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
        own = _own_peak(stream_seq, size)
        others = (peak for peak in mmr.peak_nodes(size) if peak != own)
        return cls(
            stream_seq=stream_seq,
            size=size,
            path=tuple(nodes.node(height, (leaf >> height) ^ 1) for height in range(own[0])),
            peaks=tuple(nodes.node(height, index) for height, index in others),
        )

    def verify(self, *, leaf_hash: bytes, stream_seq: int, size: int, root: bytes) -> None:
        """Refuse unless ``leaf_hash`` is leaf ``stream_seq`` of the range of that size and root.

        ``size`` and ``root`` come from one signed object.
        """
        if (self.stream_seq, self.size) != (stream_seq, size):
            raise Untrusted(f"a proof of leaf {self.stream_seq} of {self.size}, not of this one")
        if not 1 <= stream_seq <= size:
            raise Untrusted(f"leaf {stream_seq} of {size}")
        own = _own_peak(stream_seq, size)
        if len(self.path) != own[0] or len(self.peaks) != size.bit_count() - 1:
            raise Untrusted(f"{len(self.path)} steps and {len(self.peaks)} peaks at size {size}")
        place = list(mmr.peak_nodes(size)).index(own)
        peak = self._climb(leaf_hash)
        hashes = (*self.peaks[:place], peak, *self.peaks[place:])
        if mmr.Peaks(size, hashes).root() != root:
            raise Untrusted(f"leaf {stream_seq} is not in the range of size {size}")

    def _climb(self, leaf_hash: bytes) -> bytes:
        found = leaf_hash
        for height, sibling in enumerate(self.path):
            is_right = (self.stream_seq - 1) >> height & 1
            found = mmr.node(sibling, found) if is_right else mmr.node(found, sibling)
        return found


def _own_peak(stream_seq: int, size: int) -> tuple[int, int]:
    """The peak above a leaf."""
    leaf = stream_seq - 1
    return next(
        (height, index) for height, index in mmr.peak_nodes(size) if leaf >> height == index
    )
