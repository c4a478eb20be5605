"""Deterministic CBOR: a single encoding for each value; nothing else is decoded (spec 3.1).

Encoding is by cbor2. Decoding is our own, because cbor2 also accepts tags, floats, overlong heads
and shared references, which cost unbounded memory to detect afterwards.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

import cbor2

from veen.errors import Malformed

UINT, NEGATIVE, BSTR, TSTR, ARRAY, MAP, TAG, SIMPLE = range(8)
UINT_MAX: Final = 2**64 - 1
MAX_DEPTH: Final = 16

_WIDTH: Final = {24: 1, 25: 2, 26: 4, 27: 8}
_SMALLEST: Final = {24: 24, 25: 1 << 8, 26: 1 << 16, 27: 1 << 32}
_FLOAT: Final = 0xF8  # the first head of a float or of a simple value above 23
_CHILDREN: Final = {ARRAY: 1, MAP: 2}
_BSTR_BYTE: Final = 0x58  # the head of a byte string whose size is one byte
_WHOLE: Final = {
    **{UINT << 5 | 24 + n: 1 + (1 << n) for n in range(4)},
    **dict.fromkeys((*range(24), *range(SIMPLE << 5, _FLOAT)), 1),
    **{major << 5 | n: 1 + n for major in (BSTR, TSTR) for n in range(24)},
}
"""The size of an item with its head, if the first byte determines it."""
_SIMPLE: Final[dict[int, bool | None]] = {20: False, 21: True, 22: None}
_NAMES: Final = ("uint", "negative", "bstr", "tstr", "array", "map", "tag", "simple value")


@dataclass(frozen=True, slots=True)
class Verbatim:
    """The bytes of an encoded CBOR item, to be written unchanged."""

    item: bytes


def encode(value: Any) -> bytes:
    """The encoding of a tree of int, bytes, str, bool, None, list and dict.

    The keys of a map are all uint or all text, and are sorted by their encodings.
    """
    _verify_encodable(value, MAX_DEPTH)
    return cbor2.dumps(value, canonical=True)


def dump(value: Any) -> bytes:
    """Like ``encode``, for a value whose types and order a schema has checked; allows Verbatim."""
    try:
        return cbor2.dumps(value, default=_write_verbatim)
    except UnicodeEncodeError as error:
        raise Malformed(f"text with a lone surrogate at character {error.start}") from None


def decode(raw: bytes, max_depth: int = MAX_DEPTH) -> Any:
    """The value of an encoding, or Malformed."""
    value, end = item(raw, 0, max_depth)
    finish(raw, end)
    return value


def decode_sequence(raw: bytes) -> Iterator[bytes]:
    """The bytes of each item of a CBOR sequence (RFC 8742); only their framing is checked."""
    at = 0
    while at < len(raw):
        end = skip(raw, at)
        yield raw[at:end]
        at = end


def finish(raw: bytes, end: int) -> None:
    if end > len(raw):
        raise Malformed(f"truncated: the item ends at byte {end}, got {len(raw)} bytes")
    if end < len(raw):
        raise Malformed(f"expected the end of input at byte {end}, got {len(raw) - end} more bytes")


def head(raw: bytes, at: int) -> tuple[int, int, int]:
    """Major type and argument of the head at ``at``, and its end."""
    if at >= len(raw):
        raise Malformed(f"truncated at byte {at}")
    initial = raw[at]
    info = initial & 31
    if info < 24:
        return initial >> 5, info, at + 1
    if info > 27:
        raise Malformed(f"indefinite length or reserved head at byte {at}")
    end = at + 1 + _WIDTH[info]
    argument = int.from_bytes(raw[at + 1 : end], "big")
    if end > len(raw) or argument < _SMALLEST[info] or initial >= _FLOAT:
        raise Malformed(
            "expected a shortest-form integer head, got a truncated or overlong head or a float, "
            f"at byte {at}"
        )
    return initial >> 5, argument, end


def uint(raw: bytes, at: int) -> tuple[int, int]:
    if at < len(raw) and raw[at] < 24:
        return raw[at], at + 1
    major, value, end = head(raw, at)
    if major != UINT:
        raise _unexpected(major, UINT, at)
    return value, end


def bstr(raw: bytes, at: int) -> tuple[bytes, int]:
    major, size, start = head(raw, at)
    end = start + size
    if major != BSTR or end > len(raw):
        raise _unexpected(major, BSTR, at)
    return raw[start:end], end


def tstr(raw: bytes, at: int) -> tuple[str, int]:
    major, size, start = head(raw, at)
    end = start + size
    if major != TSTR or end > len(raw):
        raise _unexpected(major, TSTR, at)
    try:
        return raw[start:end].decode(), end
    except UnicodeDecodeError:
        raise Malformed(f"expected UTF-8 text, got other bytes, at byte {at}") from None


def array(raw: bytes, at: int) -> tuple[int, int]:
    """Count of the array at ``at`` and the start of its first element."""
    major, count, start = head(raw, at)
    if major != ARRAY or start + count > len(raw):
        raise _unexpected(major, ARRAY, at)
    return count, start


def mapping(raw: bytes, at: int) -> tuple[int, int]:
    """Count of pairs of the map at ``at`` and the start of its first key."""
    major, count, start = head(raw, at)
    if major != MAP or start + 2 * count > len(raw):
        raise _unexpected(major, MAP, at)
    return count, start


def simple(raw: bytes, at: int) -> tuple[bool | None, int]:
    major, value, end = head(raw, at)
    if major != SIMPLE or value not in _SIMPLE:
        raise _unexpected(major, SIMPLE, at)
    return _SIMPLE[value], end


def item(raw: bytes, at: int, depth: int) -> tuple[Any, int]:
    """The value at ``at``, nested at most ``depth`` deep, and its end."""
    major = head(raw, at)[0]
    if major in _SCALARS:
        return _SCALARS[major](raw, at)
    if major not in (ARRAY, MAP):
        raise Malformed(f"expected a type of this protocol, got a {_NAMES[major]}, at byte {at}")
    if depth == 0:
        raise Malformed(f"nesting too deep, at byte {at}")
    return (_list if major == ARRAY else _dict)(raw, at, depth - 1)


def skip(raw: bytes, at: int) -> int:
    """The end of the item at ``at``, by its lengths alone."""
    pending, size = 1, len(raw)
    while pending:
        if at >= size:
            raise Malformed(f"truncated at byte {at}")
        initial = raw[at]
        pending -= 1
        if initial == _BSTR_BYTE and at + 1 < size:
            at += 2 + raw[at + 1]
        elif initial in _WHOLE:
            at += _WHOLE[initial]
        else:
            at, children = _skip_head(raw, at)
            pending += children
    if at > size:
        raise Malformed(f"truncated: the item ends at byte {at}, got {size} bytes")
    return at


def _skip_head(raw: bytes, at: int) -> tuple[int, int]:
    """The end of the head at ``at`` or of its string, and the number of its items."""
    major, argument = raw[at] >> 5, raw[at] & 31
    at += 1
    if argument > 23:
        argument, at = _loose_argument(raw, at, argument)
    if major in (BSTR, TSTR):
        return at + argument, 0
    return at, argument * _CHILDREN.get(major, 0) or int(major == TAG)


def array_head(count: int) -> bytes:
    """The head of an array, for elements that are already encoded."""
    if count < 24:
        return bytes([ARRAY << 5 | count])
    width = next(width for width in _WIDTH if count < 1 << 8 * _WIDTH[width])
    return bytes([ARRAY << 5 | width]) + count.to_bytes(_WIDTH[width], "big")


def _list(raw: bytes, at: int, depth: int) -> tuple[list[Any], int]:
    count, at = array(raw, at)
    values = []
    for _ in range(count):
        value, at = item(raw, at, depth)
        values.append(value)
    return values, at


def _dict(raw: bytes, at: int, depth: int) -> tuple[dict[Any, Any], int]:
    count, at = mapping(raw, at)
    values = {}
    previous = b""
    for _ in range(count):
        start = at
        key, at = item(raw, at, 0)
        if type(key) not in (int, str):
            raise Malformed(
                f"expected a uint or text as map key, got another type, at byte {start}"
            )
        if not previous < raw[start:at]:
            raise Malformed(f"map keys out of order or duplicate, at byte {start}")
        previous = raw[start:at]
        values[key], at = item(raw, at, depth)
    if len({type(key) for key in values}) > 1:
        raise Malformed(
            f"expected map keys of one type, got uint and text, in the map that ends at byte {at}"
        )
    return values, at


def _loose_argument(raw: bytes, at: int, info: int) -> tuple[int, int]:
    """The argument of a head, overlong or not, and its end, which may be beyond the input."""
    if info not in _WIDTH:
        raise Malformed(f"indefinite length or reserved head at byte {at - 1}")
    end = at + _WIDTH[info]
    return int.from_bytes(raw[at:end], "big"), end


def _unexpected(major: int, expected: int, at: int) -> Malformed:
    """The error of a wrong major type, or of a length beyond the input."""
    if major != expected or major == SIMPLE:
        return Malformed(f"expected {_NAMES[expected]}, got {_NAMES[major]}, at byte {at}")
    return Malformed(
        f"expected a {_NAMES[major]} within the input, got a length beyond its end, at byte {at}"
    )


def _write_verbatim(encoder: cbor2.CBOREncoder, value: Any) -> None:
    if not isinstance(value, Verbatim):
        raise Malformed(f"expected a value that CBOR encodes here, got {type(value).__name__}")
    encoder.write(value.item)


def _verify_encodable(value: Any, depth: int) -> None:
    if type(value) in (list, dict):
        if depth == 0:
            raise Malformed("nesting too deep")
        if type(value) is dict:
            _verify_keys(value)
        for element in (*value, *value.values()) if type(value) is dict else value:
            _verify_encodable(element, depth - 1)
    elif type(value) is int:
        if not 0 <= value <= UINT_MAX:
            raise Malformed(f"expected a 64-bit unsigned integer, got {value}")
    elif type(value) is str:
        verify_no_surrogates(value)
    elif value is not None and type(value) not in (bytes, bool):
        raise Malformed(f"expected a value that CBOR encodes here, got {type(value).__name__}")


def verify_no_surrogates(text: str) -> None:
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise Malformed(
            f"expected Unicode text, got a lone surrogate at character {error.start}"
        ) from None


def _verify_keys(value: dict[Any, Any]) -> None:
    kinds = {type(key) for key in value}
    if not (kinds <= {int} or kinds <= {str}):
        raise Malformed("expected map keys that are all uint or all text, got both")


_SCALARS: Final = {UINT: uint, BSTR: bstr, TSTR: tstr, SIMPLE: simple}
