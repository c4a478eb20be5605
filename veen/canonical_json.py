"""Canonical JSON: RFC 8785, but with keys in the order of their UTF-8 bytes.

The two orders differ only for keys beyond U+FFFF, which RFC 8785 sorts by UTF-16 unit.
"""

from __future__ import annotations

from typing import Any, Final

import rfc8785

from veen.errors import Malformed

MAX_DEPTH: Final = 128


def encode(value: Any) -> bytes:
    """The one encoding of a JSON value, or Malformed when it has none."""
    return _encode(value, MAX_DEPTH)


def _encode(value: Any, depth: int) -> bytes:
    if not isinstance(value, (dict, list, tuple)):
        return _scalar(value)
    if depth == 0:
        raise Malformed(f"JSON nested more than {MAX_DEPTH} deep")
    if isinstance(value, dict):
        return b"{" + b",".join(_members(value, depth - 1)) + b"}"
    return b"[" + b",".join(_encode(element, depth - 1) for element in value) + b"]"


def _members(value: dict[Any, Any], depth: int) -> list[bytes]:
    if not all(isinstance(key, str) for key in value):
        raise Malformed("a JSON object has text keys only")
    members = sorted(value.items(), key=_utf8)
    return [_scalar(key) + b":" + _encode(element, depth) for key, element in members]


def _utf8(pair: tuple[str, Any]) -> bytes:
    return pair[0].encode("utf-8", "surrogatepass")


def _scalar(value: Any) -> bytes:
    try:
        return rfc8785.dumps(value)
    except (rfc8785.CanonicalizationError, UnicodeEncodeError) as error:
        raise Malformed(f"{value!r} has no canonical JSON: {error}") from error
