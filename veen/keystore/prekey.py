"""Signed prekeys: the X25519 keys that others seal to, each for a time (spec 3, KEX0.2)."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Final

from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey

from veen import sign
from veen.digest import ht, u64be
from veen.errors import Untrusted
from veen.schema import Bytes32, Bytes64
from veen.wire import WireMap

_ANY_PRIVATE: Final = X25519PrivateKey.from_private_bytes(b"\x01" * 32)


@dataclass(frozen=True, slots=True, kw_only=True)
class SignedPrekey(WireMap):
    """A prekey, the last second at which it may be sealed to, and id_sign's word for both."""

    prekey: Bytes32
    expires_at: int
    sig: Bytes64 = bytes(64)

    def signed(self, id_sign: sign.PrivateKey) -> SignedPrekey:
        return replace(self, sig=id_sign.sign(self._digest(id_sign.public)))

    def verify(self, id_sign: bytes) -> None:
        if not sign.is_valid(id_sign, self.sig, self._digest(id_sign)):
            raise Untrusted(f"prekey {self.prekey.hex()} is not signed by its owner")
        verify_dh_key(self.prekey)

    def is_expired(self, now: int) -> bool:
        return now > self.expires_at

    def _digest(self, id_sign: bytes) -> bytes:
        return ht("veen/prekey", id_sign, self.prekey, u64be(self.expires_at))


def verify_dh_key(public: bytes) -> None:
    """Refuse an X25519 key of low order: what is sealed to it, everybody opens."""
    try:
        _ANY_PRIVATE.exchange(X25519PublicKey.from_public_bytes(public))
    except ValueError:
        raise Untrusted(f"X25519 key {public.hex()} is of low order") from None
