"""MSG, the envelope a client submits (spec 4.1)."""

from __future__ import annotations

from dataclasses import dataclass, replace

from veen import sign
from veen.digest import h, ht, u64be
from veen.schema import Bytes32, Bytes64, Version
from veen.wire import SignedArray


@dataclass(frozen=True, slots=True, kw_only=True)
class Msg(SignedArray):
    ver: Version = 1
    profile_id: Bytes32
    label: Bytes32
    client_id: Bytes32
    client_seq: int
    prev_ack: int
    auth_ref: Bytes32 | None
    ct_hash: Bytes32
    ciphertext: bytes
    sig: Bytes64 = bytes(64)

    def signed(self, key: sign.PrivateKey) -> Msg:
        return replace(self, sig=key.sign(self._signing_digest()))

    def signature_is_valid(self) -> bool:
        return sign.is_valid(self.client_id, self.sig, self._signing_digest())

    def ct_hash_matches(self) -> bool:
        return h(self.ciphertext) == self.ct_hash

    def leaf_hash(self) -> bytes:
        """The leaf of this message in its label's MMR, which is also its msg_id."""
        return ht(
            "veen/leaf",
            self.label, self.profile_id, self.ct_hash, self.client_id, u64be(self.client_seq),
        )  # fmt: skip

    def _signing_digest(self) -> bytes:
        return ht("veen/sig", self.unsigned())
