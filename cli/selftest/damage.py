"""Bytes, broken by chance in the ways that bytes break (TS0)."""

from __future__ import annotations

import random
from typing import Final

_HEADS: Final = bytes(
    (0x00, 0x17, 0x18, 0x1B, 0x1F, 0x20, 0x3B, 0x40, 0x5B, 0x5F, 0x60, 0x7B, 0x7F, 0x80, 0x9B, 0x9F,
     0xA0, 0xBB, 0xBF, 0xC0, 0xD9, 0xF4, 0xF6, 0xF7, 0xF9, 0xFB, 0xFF)
)  # fmt: skip
"""First bytes of items, among them those that announce the most and those that are never right."""


def broken(chance: random.Random, raw: bytes) -> bytes:
    """Bytes that are not ``raw``."""
    while True:
        found = chance.choice(_WAYS)(chance, raw)
        if found != raw:
            return found


def _cut(chance: random.Random, raw: bytes) -> bytes:
    return raw[: chance.randrange(len(raw))]


def _flip(chance: random.Random, raw: bytes) -> bytes:
    found = bytearray(raw)
    for _ in range(chance.randint(1, 3)):
        found[chance.randrange(len(raw))] ^= 1 << chance.randrange(8)
    return bytes(found)


def _head(chance: random.Random, raw: bytes) -> bytes:
    at = chance.randrange(len(raw))
    return raw[:at] + bytes([chance.choice(_HEADS)]) + raw[at + 1 :]


def _insert(chance: random.Random, raw: bytes) -> bytes:
    at = chance.randrange(len(raw) + 1)
    return raw[:at] + chance.randbytes(chance.randint(1, 9)) + raw[at:]


def _drop(chance: random.Random, raw: bytes) -> bytes:
    at = chance.randrange(len(raw))
    return raw[:at] + raw[at + chance.randint(1, 9) :]


def _repeat(chance: random.Random, raw: bytes) -> bytes:
    start = chance.randrange(len(raw))
    end = chance.randint(start, len(raw))
    return raw[:end] + raw[start:]


def _noise(chance: random.Random, raw: bytes) -> bytes:
    return chance.randbytes(chance.randrange(len(raw) + 1))


def _nest(chance: random.Random, raw: bytes) -> bytes:
    """Arrays in arrays, deeper than any object is."""
    at = chance.randrange(len(raw))
    return raw[:at] + b"\x81" * chance.choice((10, 1_000, 20_000)) + raw[at:]


_WAYS: Final = (_cut, _cut, _flip, _flip, _head, _head, _insert, _drop, _repeat, _noise, _nest)
