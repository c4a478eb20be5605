"""Hashing as the specification writes it: H, Ht, Trunc_24 and big-endian integers (spec 3.3)."""

from hashlib import sha256


def h(data: bytes) -> bytes:
    """H(x): SHA-256."""
    return sha256(data).digest()


def ht(tag: str, *parts: bytes) -> bytes:
    """Ht(tag, a || b || ...): SHA-256 under a domain tag."""
    return sha256(b"\x00".join((tag.encode(), b"".join(parts)))).digest()


def trunc24(digest: bytes) -> bytes:
    return digest[:24]


def u32be(n: int) -> bytes:
    return n.to_bytes(4, "big")


def u64be(n: int) -> bytes:
    return n.to_bytes(8, "big")
