"""Hashes as words that two people can compare by telephone: consonants and vowels (proquint)."""

from __future__ import annotations

from typing import Final

_CONSONANTS: Final = "bdfghjklmnprstvz"
_VOWELS: Final = "aiou"
_COUNT: Final = 6


def words(digest: bytes) -> str:
    """Six words of five letters: the first 96 bits."""
    return " ".join(_word(digest[at : at + 2]) for at in range(0, 2 * _COUNT, 2))


def _word(two: bytes) -> str:
    bits = int.from_bytes(two, "big")
    return (
        _CONSONANTS[bits >> 12]
        + _VOWELS[bits >> 10 & 3]
        + _CONSONANTS[bits >> 6 & 15]
        + _VOWELS[bits >> 4 & 3]
        + _CONSONANTS[bits & 15]
    )
