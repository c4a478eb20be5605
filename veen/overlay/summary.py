"""A cached summary: what an overlay makes of one node of the tree, bound to its log (spec 11.3).

Its digest shows damage, not malice: whoever can write to the cache can write a summary that
verifies. It saves work for those who trust the cache; an auditor folds without it.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import IntEnum
from typing import Any

from veen.checkpoint import Checkpoint
from veen.digest import h, ht
from veen.errors import Malformed, Untrusted
from veen.overlay.overlay import Overlay
from veen.overlay.tree import Node
from veen.receipt import Receipt
from veen.schema import Bytes32, Version
from veen.wire import WireArray, WireMap


class AnchorKind(IntEnum):
    RECEIPT = 1
    CHECKPOINT = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class Anchor(WireArray):
    """Which object, signed by the hub, gives the root of a label at a size; it is hashed whole."""

    kind: int
    upto_seq: int
    object_hash: Bytes32

    def rule(self) -> None:
        if self.kind not in tuple(AnchorKind):
            raise Malformed(f"an anchor of kind {self.kind}")


@dataclass(frozen=True, slots=True)
class SignedRoot:
    """The root of a label at a size, from an object whose signature the caller has verified."""

    mmr_root: bytes
    anchor: Anchor

    @classmethod
    def of_receipt(cls, receipt: Receipt) -> SignedRoot:
        anchor = Anchor(
            kind=int(AnchorKind.RECEIPT),
            upto_seq=receipt.stream_seq,
            object_hash=h(receipt.encode()),
        )
        return cls(receipt.mmr_root, anchor)

    @classmethod
    def of_checkpoint(cls, checkpoint: Checkpoint) -> SignedRoot:
        anchor = Anchor(
            kind=int(AnchorKind.CHECKPOINT),
            upto_seq=checkpoint.upto_seq,
            object_hash=h(checkpoint.encode()),
        )
        return cls(checkpoint.mmr_root, anchor)


@dataclass(frozen=True, slots=True)
class Scope:
    """What is folded: by which overlay, of which label."""

    overlay: Overlay[Any]
    label: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class Summary(WireMap):
    ver: Version = 1
    overlay: str
    schema_set: Bytes32
    label: Bytes32
    block: int
    from_seq: int
    to_seq: int
    mmr_root: Bytes32
    anchor: Anchor
    payload: bytes
    digest: Bytes32 = bytes(32)

    def rule(self) -> None:
        if self.block < 1 or not 1 <= self.from_seq <= self.to_seq:
            raise Malformed(f"a summary from {self.from_seq} to {self.to_seq} by {self.block}")

    @classmethod
    def of(cls, scope: Scope, node: Node, root: SignedRoot, payload: bytes) -> Summary:
        bare = cls(
            overlay=scope.overlay.name,
            schema_set=scope.overlay.schema_set(),
            label=scope.label,
            block=node.block,
            from_seq=node.run.from_seq,
            to_seq=node.run.to_seq,
            mmr_root=root.mmr_root,
            anchor=root.anchor,
            payload=payload,
        )
        return replace(bare, digest=bare.expected_digest())

    def expected_digest(self) -> bytes:
        return ht("veen/overlay-summary", replace(self, digest=bytes(32)).encode())

    def verify(self, scope: Scope, node: Node, mmr_root: bytes) -> None:
        """Refuse unless this is the summary of ``node`` in a log with that root at its end."""
        run = node.run
        claims = {
            "overlay": (self.overlay, scope.overlay.name),
            "schema_set": (self.schema_set, scope.overlay.schema_set()),
            "label": (self.label, scope.label),
            "block": (self.block, node.block),
            "from_seq": (self.from_seq, run.from_seq),
            "to_seq": (self.to_seq, run.to_seq),
            "anchor": (self.anchor.upto_seq, run.to_seq),
            "mmr_root": (self.mmr_root, mmr_root),
            "digest": (self.digest, self.expected_digest()),
        }
        for name, (claimed, due) in claims.items():
            if claimed != due:
                raise Untrusted(f"the summary of {run.from_seq} to {run.to_seq} has another {name}")
