"""The cryptographic primitives: Ed25519, HPKE and XChaCha20-Poly1305 (spec 3.2).

- Ed25519 signatures by libsodium, the only verifier of the project. It refuses what a lenient
  verifier accepts: S >= L, small-order keys and points, and encodings that are not canonical. Every
  signature of the protocol covers a 32-byte digest.
- HPKE base mode with exporter: X25519, HKDF-SHA256, ChaCha20-Poly1305 (RFC 9180).
- XChaCha20-Poly1305 for bodies and attachments.
"""

from __future__ import annotations

from typing import Final, Protocol

from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey
from nacl import bindings
from nacl.exceptions import BadSignatureError, CryptoError
from pyhpke import AEADId, CipherSuite, KDFId, KEMId
from pyhpke.exceptions import PyHPKEError

from veen.errors import Malformed, Undecryptable, Untrusted

AEAD_KEY_BYTES = bindings.crypto_aead_xchacha20poly1305_ietf_KEYBYTES
AEAD_TAG_BYTES = bindings.crypto_aead_xchacha20poly1305_ietf_ABYTES
_SUITE: Final = CipherSuite.new(
    KEMId.DHKEM_X25519_HKDF_SHA256, KDFId.HKDF_SHA256, AEADId.CHACHA20_POLY1305
)
HPKE_ENC_BYTES: Final = 32
HPKE_KEY_BYTES: Final = 32


def aead_encrypt(key: bytes, nonce: bytes, aad: bytes, plaintext: bytes) -> bytes:
    return bindings.crypto_aead_xchacha20poly1305_ietf_encrypt(plaintext, aad, nonce, key)


def aead_decrypt(key: bytes, nonce: bytes, aad: bytes, ciphertext: bytes) -> bytes:
    if len(ciphertext) < AEAD_TAG_BYTES:
        raise Undecryptable(
            f"sealed body or attachment: expected at least {AEAD_TAG_BYTES} bytes, got "
            f"{len(ciphertext)}"
        )
    try:
        return bindings.crypto_aead_xchacha20poly1305_ietf_decrypt(ciphertext, aad, nonce, key)
    except CryptoError as error:
        raise Undecryptable(
            "decryption failed: wrong key, or the body or attachment was altered"
        ) from error


class HpkeExporter(Protocol):
    """Either end of an HPKE context; both derive the same secrets."""

    def export(self, context: bytes, length: int, /) -> bytes: ...


class HpkeSender:
    """The sealing end. ``ephemeral`` is 32 random bytes, never used twice."""

    def __init__(self, recipient: bytes, ephemeral: bytes) -> None:
        if len(ephemeral) != HPKE_KEY_BYTES:
            raise Malformed(
                f"HPKE ephemeral key: expected {HPKE_KEY_BYTES} bytes, got {len(ephemeral)}"
            )
        try:
            public = _SUITE.kem.deserialize_public_key(recipient)
            pair = _SUITE.kem.derive_key_pair(ephemeral)
            self.enc, self._context = _SUITE.create_sender_context(public, eks=pair)
            self.export = self._context.export
        except (PyHPKEError, ValueError) as error:
            raise Untrusted(f"not a usable X25519 recipient key: {recipient.hex()}") from error

    def seal(self, aad: bytes, plaintext: bytes) -> bytes:
        return self._context.seal(plaintext, aad)


class HpkeRecipient:
    """The opening end, for the holder of ``private``; ``enc`` is the encapsulated key."""

    def __init__(self, enc: bytes, private: bytes) -> None:
        try:
            key = _SUITE.kem.deserialize_private_key(private)
            self._context = _SUITE.create_recipient_context(enc, key)
            self.export = self._context.export
        except (PyHPKEError, ValueError) as error:
            raise Undecryptable(
                "expected an HPKE encapsulation for an X25519 key, got other bytes"
            ) from error

    def open(self, aad: bytes, ciphertext: bytes) -> bytes:
        try:
            return self._context.open(ciphertext, aad)
        except PyHPKEError as error:
            raise Undecryptable(
                "decryption of the header failed: wrong key, or it was altered"
            ) from error


def hpke_public_key(private: bytes) -> bytes:
    """The X25519 public key of 32 private bytes."""
    if len(private) != HPKE_KEY_BYTES:
        raise Malformed(f"X25519 private key: expected {HPKE_KEY_BYTES} bytes, got {len(private)}")
    return X25519PrivateKey.from_private_bytes(private).public_key().public_bytes_raw()


class SigningKey:
    """A signing key, made from its 32-byte seed."""

    __slots__ = ("_secret", "public")

    def __init__(self, seed: bytes) -> None:
        if len(seed) != bindings.crypto_sign_SEEDBYTES:
            raise Malformed(f"Ed25519 seed: expected 32 bytes, got {len(seed)}")
        self.public, self._secret = bindings.crypto_sign_seed_keypair(seed)

    def sign(self, digest: bytes) -> bytes:
        return bindings.crypto_sign(digest, self._secret)[: bindings.crypto_sign_BYTES]

    def __repr__(self) -> str:
        return f"SigningKey(public={self.public.hex()})"


def signature_is_valid(public: bytes, signature: bytes, digest: bytes) -> bool:
    """Whether ``signature`` over ``digest`` is valid for the key ``public``."""
    if len(public) != bindings.crypto_sign_PUBLICKEYBYTES:
        return False
    if len(signature) != bindings.crypto_sign_BYTES:
        return False
    try:
        bindings.crypto_sign_open(signature + digest, public)
    except BadSignatureError:
        return False
    return True
