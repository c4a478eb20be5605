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
    """H of data in blocks, in bounded memory."""
    digest = sha256()
    for block in blocks:
        digest.update(block)
    return digest.digest()


def h_file(file: BufferedIOBase) -> bytes:
    """H of a file from its current position, in bounded memory."""
    return file_digest(file, "sha256").digest()


def ht(tag: str, *parts: bytes) -> bytes:
    """Ht(tag, a || b || ...): SHA-256 under a domain tag."""
    state = _tag_state(tag).copy()
    state.update(b"".join(parts))
    return state.digest()


def trunc24(digest: bytes) -> bytes:
    return digest[:24]


def u32be(n: int) -> bytes:
    return n.to_bytes(4, "big")


def u64be(n: int) -> bytes:
    return n.to_bytes(8, "big")


class Hasher:
    """Incremental H, in bounded memory."""

    __slots__ = ("_state",)

    def __init__(self) -> None:
        self._state = sha256()

    @classmethod
    def tagged(cls, tag: str) -> "Hasher":
        """Incremental Ht."""
        hasher = cls()
        hasher._state = _tag_state(tag).copy()
        return hasher

    def update(self, part: bytes) -> None:
        self._state.update(part)

    def digest(self) -> bytes:
        return self._state.digest()


@cache
def _tag_state(tag: str) -> "_Hash":
    """The hash state after the tag, which every Ht under it begins with."""
    return sha256(tag.encode() + b"\x00")
