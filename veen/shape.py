"""The usual shape of a signed array as one pattern, which reads it in one go (spec 3.1).

What has the shape is well-formed, of the right sizes and of this version. What has not is read
field by field instead: it may be right all the same, and if not, that tells what is amiss.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Any, Final, NamedTuple

from veen import cbor
from veen.schema import VERSION, Bytes, FixedBytes, Kind, Uint, VersionNumber

Put = Callable[[Any, Any], None]
"""Fills one field of an object."""

_UINT: Final = (
    rb"([\x00-\x17]|\x18[\x18-\xff]|\x19(?!\x00).{2}|\x1a(?!\x00{2}).{4}|\x1b(?!\x00{4}).{8})"
)
_SIG_HEAD: Final = b"\x58\x40"
_SIG_SIZE: Final = 66  # with its head


class Part(NamedTuple):
    kind: Kind
    optional: bool
    put: Put


class Shape(NamedTuple):
    """``pattern`` holds the fields before the ``body``, or before the signature without one."""

    pattern: re.Pattern[bytes]
    puts: tuple[tuple[Put, bool], ...]
    body: Put | None
    sig: Put

    def fill(self, found: object, raw: bytes) -> bool:
        """Fill an object from its bytes; False, with some of it filled, if they are otherwise."""
        match = self.pattern.match(raw)
        if match is None:
            return False
        for (put, is_uint), value in zip(self.puts, match.groups(), strict=True):
            put(found, int.from_bytes(value[1:] or value, "big") if is_uint else value)
        end = match.end()
        if self.body is not None:
            body, end = cbor.bstr(raw, end)
            self.body(found, body)
        self.sig(found, raw[end + 2 :])
        return len(raw) == end + _SIG_SIZE and raw.startswith(_SIG_HEAD, end)


def shape_of(parts: Sequence[Part]) -> Shape:
    """The shape of an array of these fields, the last of which is the signature."""
    *before, sig = parts
    body = before.pop() if isinstance(before[-1].kind, Bytes) else None
    return Shape(
        pattern=re.compile(
            re.escape(cbor.array_head(len(parts))) + b"".join(map(_pattern, before)), re.DOTALL
        ),
        puts=tuple((one.put, not isinstance(one.kind, FixedBytes)) for one in before),
        body=body.put if body else None,
        sig=sig.put,
    )


def _pattern(part: Part) -> bytes:
    match part.kind:
        case FixedBytes(span=(head, start, end)):
            value = re.escape(head) + b"(.{%d})" % (end - start)
            return b"(?:%b|\xf6)" % value if part.optional else value
        case VersionNumber():
            return b"(%c)" % VERSION
        case Uint():
            return _UINT
    raise TypeError(f"{type(part.kind).__name__} has no place in a signed array")
