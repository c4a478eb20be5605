"""Hashing as the specification writes it: H, Ht, Trunc_24 and big-endian integers (spec 3.3)."""

from collections.abc import Iterable
from functools import cache
from hashlib import file_digest, sha256
from io import BufferedIOBase
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from hashlib import _Hash


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
    state = _begun(tag).copy()
    state.update(b"".join(parts))
    return state.digest()


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
        result = cls()
        result._state = _begun(tag).copy()
        return result

    def update(self, part: bytes) -> None:
        self._state.update(part)

    def digest(self) -> bytes:
        return self._state.digest()


@cache
def _begun(tag: str) -> "_Hash":
    """The hash of what every Ht under a tag begins with; there are as many as there are tags."""
    return sha256(tag.encode() + b"\x00")
