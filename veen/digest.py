"""Hashing as the specification writes it: H, Ht, Trunc_24 and big-endian integers (spec 3.3)."""

from collections.abc import Iterable
from hashlib import file_digest, sha256
from io import BufferedIOBase


def h(data: bytes) -> bytes:
    """H(x): SHA-256."""
    return sha256(data).digest()


def h_blocks(blocks: Iterable[bytes]) -> bytes:
    """H of what is too long to be held whole."""
    digest = sha256()
    for block in blocks:
        digest.update(block)
    return digest.digest()


def h_file(file: BufferedIOBase) -> bytes:
    """H of a file from where it is read, in bounded memory."""
    return file_digest(file, "sha256").digest()


def ht(tag: str, *parts: bytes) -> bytes:
    """Ht(tag, a || b || ...): SHA-256 under a domain tag."""
    return sha256(b"\x00".join((tag.encode(), b"".join(parts)))).digest()


def trunc24(digest: bytes) -> bytes:
    return digest[:24]


def u32be(n: int) -> bytes:
    return n.to_bytes(4, "big")


def u64be(n: int) -> bytes:
    return n.to_bytes(8, "big")


class Hasher:
    """H of parts as they come, for what is too long to be held whole."""

    __slots__ = ("_state",)

    def __init__(self) -> None:
        self._state = sha256()

    @classmethod
    def tagged(cls, tag: str) -> "Hasher":
        """The same for Ht."""
        found = cls()
        found.update(tag.encode() + b"\x00")
        return found

    def update(self, part: bytes) -> None:
        self._state.update(part)

    def digest(self) -> bytes:
        return self._state.digest()
