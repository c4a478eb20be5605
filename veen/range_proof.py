"""Range proof: that leaves from .. to, all of them in order, stand in a range of a later size.

With an empty run of leaves it is the consistency proof between two sizes.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from veen import mmr
from veen.errors import Malformed, Untrusted
from veen.limits import MAX_PROOF_PATH
from veen.mmr import Peaks
from veen.schema import Bytes32, Version
from veen.wire import WireMap


@dataclass(frozen=True, slots=True, kw_only=True)
class RangeProof(WireMap):
    """The peaks before the leaves, and the complete subtrees after them up to the size."""

    ver: Version = 1
    from_seq: int
    to_seq: int
    size: int
    peaks_before: tuple[Bytes32, ...]
    subtrees_after: tuple[Bytes32, ...]

    def rule(self) -> None:
        if not 1 <= self.from_seq <= self.to_seq + 1 <= self.size + 1:
            raise Malformed(f"leaves {self.from_seq} to {self.to_seq} of {self.size}")
        if len(self.peaks_before) > MAX_PROOF_PATH or len(self.subtrees_after) > 2 * MAX_PROOF_PATH:
            raise Malformed("a proof with more parts than a range can have")

    @classmethod
    def build(cls, nodes: mmr.Nodes, from_seq: int, to_seq: int, size: int) -> RangeProof:
        after = mmr.subtrees(to_seq, size)
        return cls(
            from_seq=from_seq,
            to_seq=to_seq,
            size=size,
            peaks_before=mmr.peaks_at(nodes, from_seq - 1).hashes,
            subtrees_after=tuple(nodes.node(height, index) for height, index in after),
        )

    def before(self) -> Peaks:
        """The peaks just before the first leaf; of a wrong number of them, Untrusted."""
        return Peaks(self.from_seq - 1, self.peaks_before)

    def verify(self, *, leaves: Iterable[bytes], size: int, root: bytes) -> None:
        """Refuse unless ``leaves`` are exactly from .. to of the range of that size and root.

        ``size`` and ``root`` come from one signed object.
        """
        peaks = self.before()
        for leaf in leaves:
            peaks = peaks.append(leaf)
        self.verify_after(peaks, size=size, root=root)

    def verify_after(self, peaks: Peaks, *, size: int, root: bytes) -> None:
        """The same, for leaves that have been appended to ``before()`` one by one."""
        if size != self.size or self.to_seq > size:
            raise Untrusted(f"a proof up to {self.to_seq} of {self.size}, not of {size}")
        if peaks.size != self.to_seq:
            raise Untrusted(f"the leaves end at {peaks.size}, not at {self.to_seq}")
        if self.after(peaks).root() != root:
            raise Untrusted(f"the leaves do not lead to the root at {size}")

    def after(self, peaks: Peaks) -> Peaks:
        """The peaks at the size, from those at to_seq; believed only with their signed root."""
        expected = tuple(mmr.subtrees(self.to_seq, self.size))
        if len(self.subtrees_after) != len(expected):
            raise Untrusted(
                f"{len(self.subtrees_after)} subtrees after {self.to_seq} up to {self.size}"
            )
        for (height, _), subtree in zip(expected, self.subtrees_after, strict=True):
            peaks = peaks.graft(height, subtree)
        return peaks


def consistency(nodes: mmr.Nodes, old_size: int, new_size: int) -> RangeProof:
    """The proof that the range of ``new_size`` begins with the range of ``old_size``."""
    return RangeProof.build(nodes, old_size + 1, old_size, new_size)


def verify_consistency(
    proof: RangeProof, *, old_size: int, old_root: bytes, new_size: int, new_root: bytes
) -> None:
    """Refuse unless the second range extends the first; every old peak is bound.

    Both pairs of size and root come from signed objects.
    """
    if (proof.from_seq, proof.to_seq) != (old_size + 1, old_size):
        raise Untrusted(f"not a proof of consistency with size {old_size}")
    old = proof.before()
    if old_size and old.root() != old_root:
        raise Untrusted(f"the old peaks do not have the root at {old_size}")
    proof.verify_after(old, size=new_size, root=new_root)
