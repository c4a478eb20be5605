"""HPKE base mode with exporter: X25519, HKDF-SHA256, ChaCha20-Poly1305 (spec 3.2, RFC 9180)."""

from __future__ import annotations

import hmac
from functools import lru_cache
from typing import Final, Protocol

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import ChaCha20Poly1305
from nacl import bindings
from nacl.exceptions import CryptoError

from veen.errors import Malformed, Undecryptable, Untrusted

ENC_BYTES: Final = 32
KEY_BYTES: Final = 32
_KEM: Final = b"HPKE-v1KEM\x00\x20"
_SUITE: Final = b"HPKE-v1HPKE\x00\x20\x00\x01\x00\x03"
_HASH_BYTES: Final = 32
_NONCE_BYTES: Final = 12


class Exporter(Protocol):
    """Either end of one HPKE context: both derive the same secrets from it."""

    def export(self, context: bytes, length: int) -> bytes: ...


class _Context:
    """The key schedule of RFC 9180, 5.1, and the sequence of nonces of 5.2."""

    def __init__(self, shared: bytes, info: bytes) -> None:
        schedule = _schedule(info)
        secret = _extract(shared, _SUITE + b"secret")
        self._key = ChaCha20Poly1305(_expand(secret, _SUITE + b"key" + schedule, KEY_BYTES))
        nonce = _expand(secret, _SUITE + b"base_nonce" + schedule, _NONCE_BYTES)
        self._base = int.from_bytes(nonce, "big")
        self._exporter = _expand(secret, _SUITE + b"exp" + schedule, _HASH_BYTES)
        self._seq = 0

    def export(self, context: bytes, length: int) -> bytes:
        if length > _HASH_BYTES:
            raise Malformed(f"an exported secret of {length} bytes, at most {_HASH_BYTES} are made")
        return _expand(self._exporter, _SUITE + b"sec" + context, length)

    def _nonce(self) -> bytes:
        return (self._base ^ self._seq).to_bytes(_NONCE_BYTES, "big")


class Sender(_Context):
    """The sealing end. ``ephemeral`` is 32 fresh random bytes, never used twice."""

    def __init__(self, recipient: bytes, ephemeral: bytes, info: bytes = b"") -> None:
        if len(ephemeral) != KEY_BYTES:
            raise Malformed(f"{len(ephemeral)} ephemeral bytes, {KEY_BYTES} are due")
        private = _expand(_extract(b"", _KEM + b"dkp_prk" + ephemeral), _KEM + b"sk", KEY_BYTES)
        self.enc = public_key(private)
        try:
            super().__init__(_shared(private, recipient, self.enc + recipient), info)
        except _Unusable as error:
            raise Untrusted(f"not a usable X25519 recipient key: {recipient.hex()}") from error

    def seal(self, aad: bytes, plaintext: bytes) -> bytes:
        sealed = self._key.encrypt(self._nonce(), plaintext, aad)
        self._seq += 1
        return sealed


class Recipient(_Context):
    """The opening end, for what ``enc`` announces to the holder of ``private``."""

    def __init__(self, enc: bytes, private: bytes, info: bytes = b"") -> None:
        try:
            super().__init__(_shared(private, enc, enc + public_key(private)), info)
        except (_Unusable, Malformed) as error:
            raise Undecryptable("not an HPKE encapsulation for an X25519 key") from error

    def open(self, aad: bytes, ciphertext: bytes) -> bytes:
        try:
            plaintext = self._key.decrypt(self._nonce(), ciphertext, aad)
        except InvalidTag as error:
            raise Undecryptable("the header does not open with this key") from error
        self._seq += 1
        return plaintext


def public_key(private: bytes) -> bytes:
    """The X25519 public key of 32 private bytes."""
    if len(private) != KEY_BYTES:
        raise Malformed(f"an X25519 private key of {len(private)} bytes, {KEY_BYTES} are due")
    return bindings.crypto_scalarmult_base(private)


class _Unusable(Exception):
    """A public key that is none, or one of low order, which leads to no secret."""


def _shared(private: bytes, public: bytes, kem_context: bytes) -> bytes:
    """The shared secret of DHKEM (RFC 9180, 4.1)."""
    if len(public) != KEY_BYTES:
        raise _Unusable(f"{len(public)} bytes")
    try:
        dh = bindings.crypto_scalarmult(private, public)
    except CryptoError as error:
        raise _Unusable("low order") from error
    prk = _extract(b"", _KEM + b"eae_prk" + dh)
    return _expand(prk, _KEM + b"shared_secret" + kem_context, KEY_BYTES)


@lru_cache(maxsize=4)
def _schedule(info: bytes) -> bytes:
    """The key_schedule_context of base mode; the protocol's own info is always empty."""
    psk_id_hash = _extract(b"", _SUITE + b"psk_id_hash")
    return b"\x00" + psk_id_hash + _extract(b"", _SUITE + b"info_hash" + info)


def _extract(salt: bytes, labelled: bytes) -> bytes:
    return hmac.digest(salt, labelled, "sha256")


def _expand(prk: bytes, labelled: bytes, length: int) -> bytes:
    """One block of HKDF, which is all that is ever derived at once."""
    return hmac.digest(prk, length.to_bytes(2, "big") + labelled + b"\x01", "sha256")[:length]
