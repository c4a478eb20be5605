"""Canonical JSON: RFC 8785, but with keys in the order of their UTF-8 bytes.

The two orders differ only for keys beyond U+FFFF, which RFC 8785 sorts by UTF-16 unit.
"""

from __future__ import annotations

from typing import Any

import rfc8785

from veen.errors import Malformed


def encode(value: Any) -> bytes:
    """The one encoding of a JSON value, or Malformed when it has none."""
    if isinstance(value, dict):
        return b"{" + b",".join(_members(value)) + b"}"
    if isinstance(value, (list, tuple)):
        return b"[" + b",".join(encode(element) for element in value) + b"]"
    return _scalar(value)


def _members(value: dict[Any, Any]) -> list[bytes]:
    if not all(isinstance(key, str) for key in value):
        raise Malformed("a JSON object has text keys only")
    pairs = ((_scalar(key), encode(element)) for key, element in sorted(value.items(), key=_utf8))
    return [key + b":" + element for key, element in pairs]


def _utf8(pair: tuple[str, Any]) -> bytes:
    return pair[0].encode("utf-8", "surrogatepass")


def _scalar(value: Any) -> bytes:
    try:
        return rfc8785.dumps(value)
    except (rfc8785.CanonicalizationError, UnicodeEncodeError) as error:
        raise Malformed(f"{value!r} has no canonical JSON: {error}") from error
