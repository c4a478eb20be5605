"""RECEIPT, the hub's signed statement of the place of a message in the log (spec 4.3)."""

from __future__ import annotations

from dataclasses import dataclass, replace

from veen.crypto import SigningKey, signature_is_valid
from veen.digest import ht
from veen.wire import cbor
from veen.wire.objects import SignedArray
from veen.wire.schema import Bytes32, Bytes64, Version


@dataclass(frozen=True, slots=True, kw_only=True)
class Receipt(SignedArray):
    ver: Version = 1
    label: Bytes32
    stream_seq: int
    leaf_hash: Bytes32
    mmr_root: Bytes32
    hub_ts: int
    hub_sig: Bytes64 = bytes(64)

    def signed(self, key: SigningKey) -> Receipt:
        return replace(self, hub_sig=key.sign(self._signing_digest()))

    def is_signed_by(self, hub_pk: bytes) -> bool:
        return signature_is_valid(hub_pk, self.hub_sig, self._signing_digest())

    def contradicts(self, other: Receipt) -> bool:
        """Whether both cannot be true: two leaves or roots at a place, or a message at two."""
        if self.label != other.label:
            return False
        if self.stream_seq == other.stream_seq:
            return (self.leaf_hash, self.mmr_root) != (other.leaf_hash, other.mmr_root)
        return self.leaf_hash == other.leaf_hash


def issue(
    key: SigningKey, *, label: bytes, stream_seq: int, leaf: bytes, root: bytes, hub_ts: int
) -> bytes:
    """The bytes of a signed receipt; the fast path, without an object."""
    unsigned = cbor.dump([1, label, stream_seq, leaf, root, hub_ts])
    signature = key.sign(ht("veen/sig", unsigned))
    return b"\x87" + unsigned[1:] + b"\x58\x40" + signature
