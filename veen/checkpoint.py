"""CHECKPOINT, the hub's signed statement of a label's size and root (spec 4.4)."""

from __future__ import annotations

from dataclasses import dataclass, replace

from veen.crypto import SigningKey, signature_is_valid
from veen.digest import ht
from veen.errors import Malformed, Untrusted
from veen.label import EpochLabels
from veen.wire import cbor
from veen.wire.objects import WireArray
from veen.wire.schema import Bytes32, Bytes64, Version

_SIGNED_FIELDS = 6


@dataclass(frozen=True, slots=True, kw_only=True)
class Checkpoint(WireArray):
    ver: Version = 1
    label_prev: Bytes32
    label_curr: Bytes32
    upto_seq: int
    mmr_root: Bytes32
    epoch: int
    hub_sig: Bytes64 = bytes(64)
    witness_sigs: tuple[Bytes64, ...] | None = None

    def rule(self) -> None:
        if self.witness_sigs == ():
            raise Malformed(
                "checkpoint: expected witness_sigs to be absent or to hold signatures, got an "
                "empty list"
            )

    def signed(self, key: SigningKey) -> Checkpoint:
        return replace(self, hub_sig=key.sign(self._signing_digest()))

    def witnessed(self, key: SigningKey) -> Checkpoint:
        """The checkpoint with one more witness, who signs what the hub signed."""
        signature = key.sign(self._signing_digest())
        return replace(self, witness_sigs=(*(self.witness_sigs or ()), signature))

    def is_signed_by(self, hub_pk: bytes) -> bool:
        return signature_is_valid(hub_pk, self.hub_sig, self._signing_digest())

    def is_witnessed_by(self, public: bytes) -> bool:
        digest = self._signing_digest()
        return any(signature_is_valid(public, sig, digest) for sig in self.witness_sigs or ())

    def verify_labels(self, labels: EpochLabels) -> None:
        """Raise Untrusted unless labels and epoch belong together (spec 4.4.1)."""
        if self.label_curr != labels.at(self.epoch):
            raise Untrusted(f"label_curr is not the stream's label of epoch {self.epoch}")
        if self.label_prev == self.label_curr:
            return
        if self.epoch == 0 or self.label_prev != labels.at(self.epoch - 1):
            raise Untrusted(
                f"label_prev is not the stream's label of the epoch before {self.epoch}"
            )

    def verify_root(self, size: int, root: bytes) -> None:
        """Raise Untrusted unless the checkpoint has this size and root, rebuilt from the log."""
        if (self.upto_seq, self.mmr_root) != (size, root):
            raise Untrusted(f"checkpoint at {self.upto_seq} does not match the log at {size}")

    def _signing_digest(self) -> bytes:
        return ht("veen/sig", cbor.dump(self.plain()[:_SIGNED_FIELDS]))
