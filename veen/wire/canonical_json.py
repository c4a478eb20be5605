"""Canonical JSON, and JSON values in deterministic CBOR (spec 3.1).

Canonical JSON is RFC 8785 but with keys in the order of their UTF-8 bytes; the two orders differ
only for keys beyond U+FFFF, which RFC 8785 sorts by UTF-16 unit. JSON bodies are deterministic CBOR
on the wire; unlike wire objects they may have negative numbers and floats.
"""

from __future__ import annotations

import json
import math
from typing import Any, Final, Never

import cbor2
import rfc8785

from veen.errors import Malformed
from veen.wire import cbor

MAX_DEPTH: Final = 128
_SAFE_INTEGER: Final = 2**53 - 1
_SIMPLE: Final = frozenset({str, bool, type(None)})

# The encoder's output is canonical without floats: code points sort like their UTF-8 bytes.
_PLAIN: Final = json.JSONEncoder(
    ensure_ascii=False, check_circular=False, sort_keys=True, separators=(",", ":")
)
_FLOAT_BYTES: Final = {0xF9: 3, 0xFA: 5, 0xFB: 9}
_CONSTANTS: Final = (20, 21, 22)
_TEXT_BYTES: Final = {cbor.TSTR << 5 | size: 1 + size for size in range(24)}
_LONGER_TEXT: Final = cbor.TSTR << 5 | 24
_WHOLE: Final = {
    **_TEXT_BYTES,
    **{major << 5 | n: 1 for major in (cbor.UINT, cbor.NEGATIVE) for n in range(24)},
    **{cbor.SIMPLE << 5 | n: 1 for n in _CONSTANTS},
}
"""The size of an item with its head, if the first byte determines it."""


def encode(value: Any) -> bytes:
    """The canonical encoding of a JSON value, or Malformed if it has none."""
    if not _is_plain(value, MAX_DEPTH):
        return _encode(value, MAX_DEPTH)
    try:
        return _PLAIN.encode(value).encode()
    except UnicodeEncodeError as error:
        raise Malformed(f"this text has no canonical JSON form: {error}") from error


def _is_plain(value: Any, depth: int) -> bool:
    """Whether the much faster encoder of the library gives the canonical form."""
    kind = type(value)
    if kind in _SIMPLE:
        return True
    if kind is int:
        return abs(int(value)) <= _SAFE_INTEGER
    if depth == 0 or kind not in (dict, list, tuple):
        return False
    if kind is dict:
        if not all(type(key) is str for key in value):
            return False
        value = value.values()
    return all(_is_plain(element, depth - 1) for element in value)


def _encode(value: Any, depth: int) -> bytes:
    if not isinstance(value, (dict, list, tuple)):
        return _scalar(value)
    if depth == 0:
        raise Malformed(f"JSON: expected at most {MAX_DEPTH} levels of nesting, got more")
    if isinstance(value, dict):
        return b"{" + b",".join(_members(value, depth - 1)) + b"}"
    return b"[" + b",".join(_encode(element, depth - 1) for element in value) + b"]"


def _members(value: dict[Any, Any], depth: int) -> list[bytes]:
    if not all(isinstance(key, str) for key in value):
        raise Malformed("expected text keys in a JSON object, got another type")
    members = sorted(value.items(), key=_utf8)
    return [_scalar(key) + b":" + _encode(element, depth) for key, element in members]


def _utf8(pair: tuple[str, Any]) -> bytes:
    return pair[0].encode("utf-8", "surrogatepass")


def _scalar(value: Any) -> bytes:
    try:
        return rfc8785.dumps(value)
    except (rfc8785.CanonicalizationError, UnicodeEncodeError) as error:
        raise Malformed(f"{value!r} has no canonical JSON form: {error}") from error


def json_to_cbor(text: str | bytes) -> bytes:
    """The CBOR of a JSON text; duplicate keys and NaN are refused."""
    return value_to_cbor(parse_json(text))


def parse_json(text: str | bytes) -> Any:
    """The value of a JSON text; duplicate keys and NaN are refused."""
    try:
        return json.loads(text, object_pairs_hook=_object, parse_constant=_reject_constant)
    except Malformed:
        raise
    except (ValueError, RecursionError) as error:
        raise Malformed(f"not JSON: {error}") from error


def value_to_cbor(value: Any) -> bytes:
    """The CBOR of a JSON value: dict with text keys, list, and scalars."""
    _verify(value, cbor.MAX_DEPTH)
    return cbor2.dumps(value, canonical=True)


def cbor_to_json(raw: bytes) -> Any:
    """The JSON value of its CBOR encoding, or Malformed."""
    cbor.finish(raw, _skip(raw, 0, cbor.MAX_DEPTH))
    try:
        return cbor2.loads(raw)
    except (cbor2.CBORDecodeError, UnicodeDecodeError) as error:
        raise Malformed(f"expected JSON in CBOR: {error}") from error


def _verify(value: Any, depth: int) -> None:
    if isinstance(value, dict | list):
        _verify_elements(value, depth)
    elif isinstance(value, str):
        cbor.verify_no_surrogates(value)
    elif isinstance(value, float):
        if not math.isfinite(value):
            raise Malformed("expected a finite number, got NaN or infinity")
    elif isinstance(value, int):
        if not -cbor.UINT_MAX - 1 <= value <= cbor.UINT_MAX:
            raise Malformed(f"expected an integer of at most 64 bits, got {value}")
    elif value is not None:
        raise Malformed(f"expected a JSON value, got {type(value).__name__}")


def _verify_elements(value: dict[Any, Any] | list[Any], depth: int) -> None:
    if depth == 0:
        raise Malformed(f"expected at most {cbor.MAX_DEPTH} levels of nesting, got more")
    elements = value
    if isinstance(value, dict):
        for key in value:
            if not isinstance(key, str):
                raise Malformed(f"expected a text key in a JSON object, got {key!r}")
        elements = [*value, *value.values()]
    for element in elements:
        # An ASCII text, the common case, needs no check.
        if type(element) is not str or not element.isascii():
            _verify(element, depth - 1)


def _skip(raw: bytes, at: int, depth: int) -> int:
    """The end of the item at ``at``, if it is the canonical encoding of a JSON value.

    UTF-8 is checked when the whole is decoded.
    """
    if at >= len(raw):
        raise Malformed(f"truncated at byte {at}")
    first = raw[at]
    if first in _WHOLE:
        return at + _WHOLE[first]
    if first == _LONGER_TEXT and at + 1 < len(raw) and raw[at + 1] > 23:
        return at + 2 + raw[at + 1]
    if first in _FLOAT_BYTES:
        return _skip_float(raw, at, at + _FLOAT_BYTES[first])
    return _skip_by_head(raw, at, depth)


def _skip_by_head(raw: bytes, at: int, depth: int) -> int:
    major, argument, end = cbor.head(raw, at)
    if major in (cbor.UINT, cbor.NEGATIVE):
        return end
    if major == cbor.TSTR:
        return end + argument
    if major not in (cbor.ARRAY, cbor.MAP) or depth == 0:
        raise Malformed(
            f"expected a JSON value within the nesting limit, got another item, at byte {at}"
        )
    if major == cbor.MAP:
        return _skip_pairs(raw, end, argument, depth - 1)
    for _ in range(argument):
        end = _skip(raw, end, depth - 1)
    return end


def _skip_pairs(raw: bytes, at: int, count: int, depth: int) -> int:
    """The end of the pairs of an object, whose keys must be text, distinct and in order."""
    before = b""
    for _ in range(count):
        end = _skip_key(raw, at)
        key = raw[at:end]
        if key <= before:
            raise Malformed(f"object keys out of order or duplicate, at byte {at}")
        before = key
        at = _skip(raw, end, depth)
    return at


def _skip_key(raw: bytes, at: int) -> int:
    whole = _TEXT_BYTES.get(raw[at]) if at < len(raw) else None
    return cbor.tstr(raw, at)[1] if whole is None else at + whole


def _skip_float(raw: bytes, at: int, end: int) -> int:
    """The end of a float, which must be finite and as short as possible without loss."""
    item = raw[at:end]
    cbor.finish(item, end - at)
    value = cbor2.loads(item)
    if not math.isfinite(value):
        raise Malformed("expected a finite number, got NaN or infinity")
    if cbor2.dumps(value, canonical=True) != item:
        raise Malformed(f"expected a shortest-form number, got an overlong one, at byte {at}")
    return end


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    object_ = dict(pairs)
    if len(object_) != len(pairs):
        raise Malformed("duplicate key in a JSON object")
    return object_


def _reject_constant(text: str) -> Never:
    raise Malformed(f"expected a JSON number, got {text}")
