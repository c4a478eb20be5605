"""Ed25519, the one signature scheme and the one verifier of the project (spec 3.2).

libsodium refuses what a lax verifier takes: S >= L, small-order keys and points, and encodings
that are not canonical. Every signature of the protocol covers a 32-byte digest.
"""

from __future__ import annotations

from nacl import bindings
from nacl.exceptions import BadSignatureError

from veen.errors import Malformed


class PrivateKey:
    """A signing key, made from its 32-byte seed."""

    __slots__ = ("_secret", "public")

    def __init__(self, seed: bytes) -> None:
        if len(seed) != bindings.crypto_sign_SEEDBYTES:
            raise Malformed(f"an Ed25519 seed of {len(seed)} bytes, 32 are due")
        self.public, self._secret = bindings.crypto_sign_seed_keypair(seed)

    def sign(self, digest: bytes) -> bytes:
        return bindings.crypto_sign(digest, self._secret)[: bindings.crypto_sign_BYTES]

    def __repr__(self) -> str:
        return f"PrivateKey(public={self.public.hex()})"


def is_valid(public: bytes, signature: bytes, digest: bytes) -> bool:
    """Whether ``signature`` is the holder of ``public``'s over ``digest``."""
    if len(public) != bindings.crypto_sign_PUBLICKEYBYTES:
        return False
    if len(signature) != bindings.crypto_sign_BYTES:
        return False
    try:
        bindings.crypto_sign_open(signature + digest, public)
    except BadSignatureError:
        return False
    return True
