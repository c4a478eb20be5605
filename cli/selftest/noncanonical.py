"""Other encodings of the same value, none of which a strict reader may take (spec 3.1)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, NamedTuple

_UINT, _BSTR, _TSTR, _ARRAY, _MAP, _SIMPLE = 0, 2, 3, 4, 5, 7
_STRINGS: Final = (_BSTR, _TSTR)
_SIZES: Final = {24: 1, 25: 2, 26: 4, 27: 8}
_BREAK: Final = b"\xff"


class Head(NamedTuple):
    """``end`` is where the item as a whole ends, ``after`` where its head does."""

    at: int
    after: int
    end: int
    major: int
    argument: int


def heads(raw: bytes) -> list[Head]:
    """Every head of a well-formed item, the outermost first."""
    found: list[Head] = []
    _walk(raw, 0, found)
    return sorted(found)


def _walk(raw: bytes, at: int, found: list[Head]) -> int:
    major, info = raw[at] >> 5, raw[at] & 0x1F
    width = _SIZES.get(info, 0)
    after = at + 1 + width
    argument = int.from_bytes(raw[at + 1 : after], "big") if width else info
    end = after + (argument if major in _STRINGS else 0)
    for _ in range(argument * {_ARRAY: 1, _MAP: 2}.get(major, 0)):
        end = _walk(raw, end, found)
    found.append(Head(at, after, end, major, argument))
    return end


def variants(raw: bytes, only_outermost: bool) -> Iterator[tuple[str, bytes]]:
    """Each with what is wrong with it."""
    yield "a byte too many", raw + b"\x00"
    yield "an item too many", raw + b"\xf6"
    yield "nothing", b""
    for one in heads(raw)[:1] if only_outermost else heads(raw):
        yield from _overlong(raw, one)
        yield from _indefinite(raw, one)
    yield from _disordered(raw)


def _overlong(raw: bytes, one: Head) -> Iterator[tuple[str, bytes]]:
    if one.major == _SIMPLE:
        return
    for info, width in _SIZES.items():
        if width > one.after - one.at - 1:
            head = bytes([one.major << 5 | info]) + one.argument.to_bytes(width, "big")
            yield f"an overlong head at {one.at}", raw[: one.at] + head + raw[one.after :]


def _indefinite(raw: bytes, one: Head) -> Iterator[tuple[str, bytes]]:
    if one.major in (_ARRAY, _MAP, *_STRINGS):
        start = one.at if one.major in _STRINGS else one.after
        opened = bytes([one.major << 5 | 0x1F]) + raw[start : one.end] + _BREAK
        yield f"indefinite length at {one.at}", raw[: one.at] + opened + raw[one.end :]


def _disordered(raw: bytes) -> Iterator[tuple[str, bytes]]:
    """The first two entries of a map the other way round, and the first one twice."""
    top = heads(raw)[0]
    if top.major != _MAP or top.argument < 2:
        return
    ends = {one.at: one.end for one in reversed(heads(raw))}
    second = ends[ends[top.after]]
    third = ends[ends[second]]
    first, other = raw[top.after : second], raw[second:third]
    yield "keys out of order", raw[: top.after] + other + first + raw[third:]
    yield "a key twice", raw[: top.after] + first + first + raw[third:]
