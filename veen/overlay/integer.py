"""Integers without bound and of either sign, which the CBOR of the protocol does not have.

They are byte strings: two's complement, big-endian, as short as can be; zero is one zero byte.
"""

from __future__ import annotations

from typing import Any

from veen import cbor
from veen.errors import Malformed
from veen.schema import Kind, Same, Unchecked


class Integer(int):
    """The annotation of a field that holds such an integer."""

    @classmethod
    def as_kind(cls) -> Kind:
        return _IntegerKind()


def to_bytes(value: int) -> bytes:
    magnitude = value if value >= 0 else ~value
    return value.to_bytes(magnitude.bit_length() // 8 + 1, "big", signed=True)


class _IntegerKind(Same, Unchecked):
    def read(self, raw: bytes, at: int) -> tuple[Integer, int]:
        found, end = cbor.bstr(raw, at)
        value = Integer.from_bytes(found, "big", signed=True)
        if to_bytes(value) != found:
            raise Malformed(f"an integer longer than need be at byte {at}")
        return value, end

    def plain(self, value: Integer) -> bytes:
        return to_bytes(value)

    def from_json(self, value: Any) -> Integer:
        if type(value) is not int:
            raise Malformed(f"{value!r} is not an integer")
        return Integer(value)
