"""The formulas of the specification, written a second time and without the library."""

from __future__ import annotations

import hmac
from collections.abc import Sequence
from hashlib import sha256
from typing import Any, NamedTuple

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey
from cryptography.hazmat.primitives.ciphers.aead import ChaCha20Poly1305
from nacl import bindings

Hashes = list[bytes]


def h(data: bytes) -> bytes:
    return sha256(data).digest()


def ht(tag: str, data: bytes) -> bytes:
    return h(tag.encode() + b"\x00" + data)


def u32be(n: int) -> bytes:
    return n.to_bytes(4, "big")


def u64be(n: int) -> bytes:
    return n.to_bytes(8, "big")


def cbor(value: Any) -> bytes:
    """Deterministic CBOR; the keys of a map are given in ascending order."""
    match value:
        case None:
            return b"\xf6"
        case int():
            return _head(0, value)
        case bytes():
            return _head(2, len(value)) + value
        case str():
            return _head(3, len(value.encode())) + value.encode()
        case list():
            return _head(4, len(value)) + b"".join(map(cbor, value))
        case dict():
            return _head(5, len(value)) + b"".join(cbor(k) + cbor(v) for k, v in value.items())
    raise TypeError(type(value))


def _head(major: int, argument: int) -> bytes:
    if argument < 24:
        return bytes([major << 5 | argument])
    info = next(i for i in range(4) if argument < 1 << (8 << i))
    return bytes([major << 5 | 24 + info]) + argument.to_bytes(1 << info, "big")


def ed25519_public(seed: bytes) -> bytes:
    return Ed25519PrivateKey.from_private_bytes(seed).public_key().public_bytes_raw()


def ed25519_sign(seed: bytes, digest: bytes) -> bytes:
    return Ed25519PrivateKey.from_private_bytes(seed).sign(digest)


def xchacha(key: bytes, nonce: bytes, aad: bytes, plaintext: bytes) -> bytes:
    return bindings.crypto_aead_xchacha20poly1305_ietf_encrypt(plaintext, aad, nonce, key)


def tree(leaves: Hashes, tag: str) -> bytes:
    """The root of a complete binary tree."""
    if len(leaves) == 1:
        return leaves[0]
    middle = len(leaves) // 2
    return ht(tag, tree(leaves[:middle], tag) + tree(leaves[middle:], tag))


def peaks(leaves: Hashes, tag: str = "veen/mmr-node") -> Hashes:
    """The peaks by increasing height: the largest tree is the oldest and stands last."""
    if not leaves:
        return []
    span = 1 << len(leaves).bit_length() - 1
    return [*peaks(leaves[span:], tag), tree(leaves[:span], tag)]


def mmr_root(of_peaks: Hashes) -> bytes:
    return of_peaks[0] if len(of_peaks) == 1 else ht("veen/mmr-root", b"".join(of_peaks))


def att_root(coids: Hashes) -> bytes:
    return ht("veen/att-root", b"".join(peaks(coids, "veen/att-node")))


def siblings(leaves: Hashes, index: int) -> Hashes:
    """The siblings of a leaf from the bottom up to its own peak."""
    own = 0
    for height in reversed(range(len(leaves).bit_length())):
        span = len(leaves) & 1 << height
        if span and index < own + span:
            return [_sibling(leaves[own : own + span], index - own, h_) for h_ in range(height)]
        own += span
    raise IndexError(index)


def _sibling(leaves: Hashes, index: int, height: int) -> bytes:
    start = ((index >> height) ^ 1) << height
    return tree(leaves[start : start + (1 << height)], "veen/mmr-node")


def subtrees(leaves: Hashes, start: int) -> Hashes:
    """The largest aligned trees from ``start`` to the end, left to right."""
    if start == len(leaves):
        return []
    left = len(leaves) - start
    span = max(1 << e for e in range(64) if start % (1 << e) == 0 and 1 << e <= left)
    return [tree(leaves[start : start + span], "veen/mmr-node"), *subtrees(leaves, start + span)]


_KEM = b"KEM\x00\x20"
_HPKE = b"HPKE\x00\x20\x00\x01\x00\x03"


class HpkeSender(NamedTuple):
    """RFC 9180 base mode, DHKEM(X25519, HKDF-SHA256), HKDF-SHA256, ChaCha20-Poly1305."""

    enc: bytes
    key: bytes
    base_nonce: bytes
    exporter_secret: bytes

    def seal_first(self, aad: bytes, plaintext: bytes) -> bytes:
        return ChaCha20Poly1305(self.key).encrypt(self.base_nonce, plaintext, aad)

    def export(self, context: bytes, length: int) -> bytes:
        return _expand(_HPKE, self.exporter_secret, b"sec", context, length)


def hpke_sender(recipient: bytes, ikm: bytes, info: bytes = b"") -> HpkeSender:
    secret_key = _expand(_KEM, _extract(_KEM, b"", b"dkp_prk", ikm), b"sk", b"", 32)
    ephemeral = X25519PrivateKey.from_private_bytes(secret_key)
    enc = ephemeral.public_key().public_bytes_raw()
    dh = ephemeral.exchange(X25519PublicKey.from_public_bytes(recipient))
    eae = _extract(_KEM, b"", b"eae_prk", dh)
    shared = _expand(_KEM, eae, b"shared_secret", enc + recipient, 32)
    id_hash, info_hash = (
        _extract(_HPKE, b"", b"psk_id_hash", b""),
        _extract(_HPKE, b"", b"info_hash", info),
    )
    context = b"\x00" + id_hash + info_hash
    secret = _extract(_HPKE, shared, b"secret", b"")
    parts: Sequence[tuple[bytes, int]] = ((b"key", 32), (b"base_nonce", 12), (b"exp", 32))
    return HpkeSender(enc, *(_expand(_HPKE, secret, label, context, size) for label, size in parts))


def x25519_public(private: bytes) -> bytes:
    return X25519PrivateKey.from_private_bytes(private).public_key().public_bytes_raw()


def _extract(suite: bytes, salt: bytes, label: bytes, ikm: bytes) -> bytes:
    return hmac.digest(salt, b"HPKE-v1" + suite + label + ikm, "sha256")


def _expand(suite: bytes, prk: bytes, label: bytes, info: bytes, length: int) -> bytes:
    """HKDF-Expand of at most one block, which is all that is asked for here."""
    labeled = length.to_bytes(2, "big") + b"HPKE-v1" + suite + label + info
    return hmac.digest(prk, labeled + b"\x01", "sha256")[:length]
