"""HPKE base mode with exporter: X25519, HKDF-SHA256, ChaCha20-Poly1305 (spec 3.2, RFC 9180)."""

from __future__ import annotations

from typing import Final, Protocol

from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey
from pyhpke import AEADId, CipherSuite, KDFId, KEMId
from pyhpke.exceptions import PyHPKEError

from veen.errors import Malformed, Undecryptable, Untrusted

_SUITE: Final = CipherSuite.new(
    KEMId.DHKEM_X25519_HKDF_SHA256, KDFId.HKDF_SHA256, AEADId.CHACHA20_POLY1305
)
ENC_BYTES: Final = 32
KEY_BYTES: Final = 32


class Exporter(Protocol):
    """Either end of one HPKE context: both derive the same secrets from it."""

    def export(self, context: bytes, length: int) -> bytes: ...


class Sender:
    """The sealing end. ``ephemeral`` is 32 fresh random bytes, never used twice."""

    def __init__(self, recipient: bytes, ephemeral: bytes) -> None:
        if len(ephemeral) != KEY_BYTES:
            raise Malformed(f"{len(ephemeral)} ephemeral bytes, {KEY_BYTES} are due")
        try:
            public = _SUITE.kem.deserialize_public_key(recipient)
            pair = _SUITE.kem.derive_key_pair(ephemeral)
            self.enc, self._context = _SUITE.create_sender_context(public, eks=pair)
        except (PyHPKEError, ValueError) as error:
            raise Untrusted(f"not a usable X25519 recipient key: {recipient.hex()}") from error

    def seal(self, aad: bytes, plaintext: bytes) -> bytes:
        return self._context.seal(plaintext, aad)

    def export(self, context: bytes, length: int) -> bytes:
        return self._context.export(context, length)


class Recipient:
    """The opening end, for what ``enc`` announces to the holder of ``private``."""

    def __init__(self, enc: bytes, private: bytes) -> None:
        try:
            key = _SUITE.kem.deserialize_private_key(private)
            self._context = _SUITE.create_recipient_context(enc, key)
        except (PyHPKEError, ValueError) as error:
            raise Undecryptable("not an HPKE encapsulation for an X25519 key") from error

    def open(self, aad: bytes, ciphertext: bytes) -> bytes:
        try:
            return self._context.open(ciphertext, aad)
        except PyHPKEError as error:
            raise Undecryptable("the header does not open with this key") from error

    def export(self, context: bytes, length: int) -> bytes:
        return self._context.export(context, length)


def public_key(private: bytes) -> bytes:
    """The X25519 public key of 32 private bytes."""
    if len(private) != KEY_BYTES:
        raise Malformed(f"an X25519 private key of {len(private)} bytes, {KEY_BYTES} are due")
    return X25519PrivateKey.from_private_bytes(private).public_key().public_bytes_raw()
