"""Bodies that are JSON: deterministic CBOR on the wire, the same value when read (spec 3.1).

Wider than the wire objects, which know no negative numbers and no floats: JSON has both.
"""

from __future__ import annotations

import json
import math
from itertools import filterfalse
from typing import Any, Final, Never

import cbor2

from veen import cbor
from veen.errors import Malformed

_FLOAT_BYTES: Final = {0xF9: 3, 0xFA: 5, 0xFB: 9}
_FLOAT_MARKS: Final = tuple(bytes([first]) for first in _FLOAT_BYTES)
_CONSTANTS: Final = (20, 21, 22)
_TEXT_BYTES: Final = {cbor.TSTR << 5 | size: 1 + size for size in range(24)}
_WHOLE: Final = {
    **_FLOAT_BYTES,
    **_TEXT_BYTES,
    **{major << 5 | n: 1 for major in (cbor.UINT, cbor.NEGATIVE) for n in range(24)},
    **{cbor.SIMPLE << 5 | n: 1 for n in _CONSTANTS},
}
"""The size of an item, head and all, where its first byte tells it."""


def encode(text: str | bytes) -> bytes:
    """The one encoding of a JSON text; a key that stands twice, or NaN, is no JSON."""
    return encode_value(parse(text))


def parse(text: str | bytes) -> Any:
    """The value of a JSON text, as strictly."""
    try:
        return json.loads(text, object_pairs_hook=_object, parse_constant=_refuse)
    except Malformed:
        raise
    except (ValueError, RecursionError) as error:
        raise Malformed(f"not JSON: {error}") from error


def encode_value(value: Any) -> bytes:
    """The one encoding of a value made of what JSON has: dict with text keys, list, and scalars."""
    _verify(value, cbor.MAX_DEPTH)
    return cbor2.dumps(value, canonical=True)


def decode(raw: bytes) -> Any:
    """The JSON value of which ``raw`` is the encoding, or Malformed when it is of none."""
    cbor.finish(raw, _skip(raw, 0, cbor.MAX_DEPTH))
    try:
        value = cbor2.loads(raw)
    except (cbor2.CBORDecodeError, UnicodeDecodeError) as error:
        raise Malformed(f"no JSON in CBOR: {error}") from error
    if any(mark in raw for mark in _FLOAT_MARKS):
        _verify(value, cbor.MAX_DEPTH)
    if cbor2.dumps(value, canonical=True) != raw:
        raise Malformed("not the one encoding of its value")
    return value


def _verify(value: Any, depth: int) -> None:
    if isinstance(value, dict | list):
        if depth == 0:
            raise Malformed(f"nested more than {cbor.MAX_DEPTH} deep")
        for element in filterfalse(_is_ascii, _elements(value)):
            _verify(element, depth - 1)
    elif isinstance(value, str):
        cbor.refuse_surrogates(value)
    elif isinstance(value, float):
        if not math.isfinite(value):
            raise Malformed("a number that JSON does not have")
    elif isinstance(value, int):
        if not -cbor.UINT_MAX - 1 <= value <= cbor.UINT_MAX:
            raise Malformed(f"{value} has more than 64 bits")
    elif value is not None:
        raise Malformed(f"a {type(value).__name__} is nothing that JSON has")


def _is_ascii(value: Any) -> bool:
    """Most of what events hold, and nothing can be wrong with it."""
    return type(value) is str and value.isascii()


def _elements(value: dict[Any, Any] | list[Any]) -> list[Any]:
    if isinstance(value, list):
        return value
    for key in value:
        if not isinstance(key, str):
            raise Malformed(f"the key {key!r} of a JSON object is no text")
    return [*value, *value.values()]


def _skip(raw: bytes, at: int, depth: int) -> int:
    """Where the item at ``at`` ends, if it is made of nothing but what JSON has."""
    whole = _WHOLE.get(raw[at]) if at < len(raw) else None
    if whole is not None:
        return at + whole
    major, argument, end = cbor.head(raw, at)
    if major in (cbor.UINT, cbor.NEGATIVE):
        return end
    if major == cbor.TSTR:
        return end + argument
    if major not in (cbor.ARRAY, cbor.MAP) or depth == 0:
        raise Malformed(f"nothing that JSON has at byte {at}")
    for _ in range(argument):
        if major == cbor.MAP:
            end = _skip_key(raw, end)
        end = _skip(raw, end, depth - 1)
    return end


def _skip_key(raw: bytes, at: int) -> int:
    """That it is text is seen here; that it is UTF-8 and stands once, by decoding the whole."""
    whole = _TEXT_BYTES.get(raw[at]) if at < len(raw) else None
    return cbor.tstr(raw, at)[1] if whole is None else at + whole


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        raise Malformed("a key stands twice in a JSON object")
    return found


def _refuse(text: str) -> Never:
    raise Malformed(f"{text} is a number that JSON does not have")
