"""MSG, the envelope a client submits (spec 4.1)."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import NamedTuple

from veen.crypto import SigningKey, signature_is_valid
from veen.digest import h, ht, u64be
from veen.wire import cbor
from veen.wire.objects import SignedArray
from veen.wire.schema import Bytes32, Bytes64, Version


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

    def signed(self, key: SigningKey) -> Msg:
        return replace(self, sig=key.sign(self._signing_digest()))

    def signature_is_valid(self) -> bool:
        return signature_is_valid(self.client_id, self.sig, self._signing_digest())

    def ct_hash_matches(self) -> bool:
        return h(self.ciphertext) == self.ct_hash

    def leaf_hash(self) -> bytes:
        """The leaf of this message in its label's MMR, which is also its msg_id."""
        return _leaf_hash(
            self.label, self.profile_id, self.ct_hash, self.client_id, self.client_seq
        )


class Issued(NamedTuple):
    """The bytes of a signed message, and its leaf."""

    raw: bytes
    leaf: bytes


def issue(
    key: SigningKey,
    *,
    profile_id: bytes,
    label: bytes,
    client_seq: int,
    prev_ack: int,
    auth_ref: bytes | None,
    ciphertext: bytes,
) -> Issued:
    """Sign a message with ``key``; the fast path, without an object."""
    client_id, ct_hash = key.public, h(ciphertext)
    unsigned = cbor.dump(
        [1, profile_id, label, client_id, client_seq, prev_ack, auth_ref, ct_hash, ciphertext]
    )
    signature = key.sign(ht("veen/sig", unsigned))
    leaf = _leaf_hash(label, profile_id, ct_hash, client_id, client_seq)
    return Issued(b"\x8a" + unsigned[1:] + b"\x58\x40" + signature, leaf)


def _leaf_hash(
    label: bytes, profile_id: bytes, ct_hash: bytes, client_id: bytes, client_seq: int
) -> bytes:
    return ht("veen/leaf", label, profile_id, ct_hash, client_id, u64be(client_seq))
