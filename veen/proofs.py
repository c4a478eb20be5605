"""Merkle proofs over the MMR of a label: inclusion, range and consistency (spec 5.2 - 5.4).

- ``MmrProof``: a leaf was the last of its label when the root was signed.
- ``InclusionProof``: the inclusion proof of a leaf at a later size; ``ProvenRange`` verifies many.
- ``RangeProof``: the leaves from .. to, all of them in order, are in a range of a later size. With
  an empty run of leaves it is the consistency proof between two sizes.

Leaf, size and root come from the message and a signed object, never from the proof.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from veen import mmr
from veen.errors import Malformed, Untrusted
from veen.limits import MAX_PROOF_PATH
from veen.mmr import Peaks
from veen.wire.objects import WireMap
from veen.wire.schema import Bytes32, Version

LEAF_ON_THE_LEFT, LEAF_ON_THE_RIGHT = 0, 1


@dataclass(frozen=True, slots=True, kw_only=True)
class InclusionProof(WireMap):
    """An inclusion proof: the siblings of a leaf up to its peak, and the other peaks by height."""

    ver: Version = 1
    stream_seq: int
    size: int
    path: tuple[Bytes32, ...]
    peaks: tuple[Bytes32, ...]

    def rule(self) -> None:
        if not 1 <= self.stream_seq <= self.size:
            raise Malformed(
                f"inclusion proof: expected a leaf from 1 to {self.size}, got {self.stream_seq}"
            )
        if len(self.path) > MAX_PROOF_PATH or len(self.peaks) > MAX_PROOF_PATH:
            raise Malformed(f"proof: expected at most {MAX_PROOF_PATH} steps and peaks, got more")

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
        """Raise Untrusted unless ``leaf_hash`` is leaf ``stream_seq`` at that size and root.

        ``size`` and ``root`` come from one signed object.
        """
        ProvenRange(size, root).verify(self, leaf_hash=leaf_hash, stream_seq=stream_seq)

    def verify_form(self, stream_seq: int, size: int) -> None:
        """Raise Untrusted unless the proof has the length for that leaf at that size."""
        if (self.stream_seq, self.size) != (stream_seq, size):
            raise Untrusted(
                f"inclusion proof: expected leaf {stream_seq} of {size}, got leaf "
                f"{self.stream_seq} of {self.size}"
            )
        if not 1 <= stream_seq <= size:
            raise Untrusted(f"inclusion proof: expected a leaf from 1 to {size}, got {stream_seq}")
        height = _own_height(stream_seq, size)
        if len(self.path) != height or len(self.peaks) != size.bit_count() - 1:
            raise Untrusted(
                f"inclusion proof: {len(self.path)} steps and {len(self.peaks)} peaks do not fit "
                f"size {size}"
            )


class ProvenRange:
    """Verifies many proofs of a range; each is hashed only up to a node already verified.

    ``size`` and ``root`` come from one signed object.
    """

    def __init__(self, size: int, root: bytes) -> None:
        self._size = size
        self._root = root
        self._nodes: dict[tuple[int, int], bytes] = {}
        """Verified nodes; with a node, all its siblings up to its peak are here."""
        self._peaks: tuple[bytes, ...] = ()

    def verify(self, proof: InclusionProof, *, leaf_hash: bytes, stream_seq: int) -> None:
        """Raise Untrusted unless ``leaf_hash`` is leaf ``stream_seq`` of the range."""
        proof.verify_form(stream_seq, self._size)
        leaf, hash_ = stream_seq - 1, leaf_hash
        new: dict[tuple[int, int], bytes] = {}
        for height, sibling in enumerate(proof.path):
            index = leaf >> height
            if (height, index) in self._nodes:
                self._verify_known(proof, height, hash_)
                break
            new[height, index], new[height, index ^ 1] = hash_, sibling
            hash_ = mmr.node(sibling, hash_) if index & 1 else mmr.node(hash_, sibling)
        else:
            self._verify_peaks(proof, hash_)
        self._nodes |= new

    def _verify_known(self, proof: InclusionProof, height: int, hash_: bytes) -> None:
        """Raise Untrusted for a proof that differs from the verified nodes above."""
        leaf, nodes = proof.stream_seq - 1, self._nodes
        rest = (nodes[at, leaf >> at ^ 1] for at in range(height, len(proof.path)))
        if (hash_, *proof.path[height:]) != (nodes[height, leaf >> height], *rest):
            raise self._not_in_range(proof)
        position = self._peak_position(proof)
        if proof.peaks != self._peaks[:position] + self._peaks[position + 1 :]:
            raise self._not_in_range(proof)

    def _verify_peaks(self, proof: InclusionProof, peak: bytes) -> None:
        position = self._peak_position(proof)
        peaks = (*proof.peaks[:position], peak, *proof.peaks[position:])
        if peaks != self._peaks and mmr.Peaks(self._size, peaks).root() != self._root:
            raise self._not_in_range(proof)
        self._peaks = peaks

    def _peak_position(self, proof: InclusionProof) -> int:
        """The number of peaks lower than the peak above the leaf."""
        return (self._size & (1 << len(proof.path)) - 1).bit_count()

    def _not_in_range(self, proof: InclusionProof) -> Untrusted:
        return Untrusted(
            f"inclusion proof: expected a leaf of the range of size {self._size}, got leaf "
            f"{proof.stream_seq}"
        )


def _own_height(stream_seq: int, size: int) -> int:
    """The height of the peak above a leaf: the highest bit in which leaf and size differ."""
    return (stream_seq - 1 ^ size).bit_length() - 1


@dataclass(frozen=True, slots=True, kw_only=True)
class ProofStep(WireMap):
    dir: int
    sib: Bytes32

    def rule(self) -> None:
        if self.dir not in (LEAF_ON_THE_LEFT, LEAF_ON_THE_RIGHT):
            raise Malformed(f"proof step: expected direction 0 or 1, got {self.dir}")


@dataclass(frozen=True, slots=True, kw_only=True)
class MmrProof(WireMap):
    ver: Version = 1
    leaf_hash: Bytes32
    path: tuple[ProofStep, ...]
    peaks_after: tuple[Bytes32, ...]

    def rule(self) -> None:
        if len(self.path) > MAX_PROOF_PATH or len(self.peaks_after) > MAX_PROOF_PATH:
            raise Malformed(f"proof: expected at most {MAX_PROOF_PATH} steps and peaks, got more")

    @classmethod
    def build(cls, nodes: mmr.Nodes, stream_seq: int) -> MmrProof:
        """The proof that belongs to the receipt of ``stream_seq``."""
        leaf = stream_seq - 1
        own, *after = mmr.peak_nodes(stream_seq)
        path = (nodes.node(height, (leaf >> height) - 1) for height in range(own[0]))
        return cls(
            leaf_hash=nodes.node(0, leaf),
            path=tuple(ProofStep(dir=LEAF_ON_THE_RIGHT, sib=sibling) for sibling in path),
            peaks_after=tuple(nodes.node(height, index) for height, index in after),
        )

    def verify(self, *, leaf_hash: bytes, stream_seq: int, root: bytes) -> None:
        """Raise Untrusted unless ``leaf_hash`` is the last of ``stream_seq`` leaves with that root.

        Leaf, size and root come from the message and a signed object, never from the proof.
        """
        if stream_seq < 1:
            raise Untrusted("inclusion proof: expected stream_seq from 1, got 0")
        if self.leaf_hash != leaf_hash:
            raise Untrusted("inclusion proof: it is about another leaf")
        self._verify_shape(stream_seq)
        peak = leaf_hash
        for step in self.path:
            peak = mmr.node(step.sib, peak)
        if mmr.Peaks(stream_seq, (peak, *self.peaks_after)).root() != root:
            raise Untrusted(f"inclusion proof: it does not give the root at {stream_seq}")

    def _verify_shape(self, stream_seq: int) -> None:
        """Raise Untrusted unless the path is that of a right child up to the youngest peak."""
        height = mmr.trailing_ones(stream_seq - 1)
        if [step.dir for step in self.path] != [LEAF_ON_THE_RIGHT] * height:
            raise Untrusted(
                f"inclusion proof: the path is not that of leaf {stream_seq}, the last one"
            )
        if len(self.peaks_after) != stream_seq.bit_count() - 1:
            raise Untrusted(
                f"inclusion proof: {len(self.peaks_after)} other peaks do not fit size {stream_seq}"
            )
        if len(set(self.peaks_after)) != len(self.peaks_after):
            raise Untrusted("inclusion proof: duplicate peak")


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
            raise Malformed(
                f"range proof: expected a range within 1 to {self.size}, got {self.from_seq} to "
                f"{self.to_seq}"
            )
        if len(self.peaks_before) > MAX_PROOF_PATH or len(self.subtrees_after) > 2 * MAX_PROOF_PATH:
            raise Malformed("range proof: more subtrees than a range can have")

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
        """The peaks before the first leaf; Untrusted if their number is wrong."""
        return Peaks(self.from_seq - 1, self.peaks_before)

    def verify(self, *, leaves: Iterable[bytes], size: int, root: bytes) -> None:
        """Raise Untrusted unless ``leaves`` are exactly from .. to of the range.

        ``size`` and ``root`` come from one signed object.
        """
        peaks = self.before()
        for leaf in leaves:
            peaks = peaks.append(leaf)
        self.verify_after(peaks, size=size, root=root)

    def verify_after(self, peaks: Peaks, *, size: int, root: bytes) -> None:
        """Verify leaves that were appended to ``before()`` one by one, given as ``peaks``."""
        if size != self.size or self.to_seq > size:
            raise Untrusted(
                f"range proof: expected size {size}, got leaves up to {self.to_seq} of size "
                f"{self.size}"
            )
        if peaks.size != self.to_seq:
            raise Untrusted(
                f"range proof: expected leaves up to {self.to_seq}, got them up to {peaks.size}"
            )
        if self.after(peaks).root() != root:
            raise Untrusted(f"range proof: the leaves do not give the root at {size}")

    def after(self, peaks: Peaks) -> Peaks:
        """The peaks at the size, from those at to_seq; unverified without their signed root."""
        expected = tuple(mmr.subtrees(self.to_seq, self.size))
        if len(self.subtrees_after) != len(expected):
            raise Untrusted(
                f"range proof: {len(self.subtrees_after)} subtrees do not cover {self.to_seq} to "
                f"{self.size}"
            )
        for (height, _), subtree in zip(expected, self.subtrees_after, strict=True):
            peaks = peaks.graft(height, subtree)
        return peaks


def consistency(nodes: mmr.Nodes, old_size: int, new_size: int) -> RangeProof:
    """The consistency proof that the range of ``new_size`` begins with that of ``old_size``."""
    return RangeProof.build(nodes, old_size + 1, old_size, new_size)


def verify_consistency(
    proof: RangeProof, *, old_size: int, old_root: bytes, new_size: int, new_root: bytes
) -> None:
    """Verify a consistency proof: Untrusted unless the second range extends the first.

    Both pairs of size and root come from signed objects.
    """
    if (proof.from_seq, proof.to_seq) != (old_size + 1, old_size):
        raise Untrusted(f"consistency proof: expected one from size {old_size}, got another range")
    old = proof.before()
    if old_size and old.root() != old_root:
        raise Untrusted(
            f"consistency proof: its peaks do not give the known root at size {old_size}"
        )
    proof.verify_after(old, size=new_size, root=new_root)
