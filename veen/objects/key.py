"""What may name an object or a head: the same in every store, on a disk and in a URL.

A percent sign is refused because stores and proxies disagree on how often to decode it; so the
directory can use it as a mark of its own.
"""

from __future__ import annotations

import re
from typing import Final

from veen.errors import VeenError

MAX_KEY_BYTES: Final = 900
MAX_SEGMENT_BYTES: Final = 250

# Control characters, what XML cannot carry, lone surrogates, and the two signs above all else
# that break paths and URLs.
_REFUSED: Final = re.compile("[\x00-\x1f\x7f%\\\\\ud800-\udfff\ufffe\uffff]")


class InvalidKey(VeenError, ValueError):
    """A key that no store takes."""


def check_key(key: str) -> None:
    """Segments between slashes, none of them empty, ".", ".." or too long."""
    check_text(key)
    for segment in key.split("/"):
        if segment in {"", ".", ".."}:
            raise InvalidKey(f"key {key!r} has the segment {segment!r}")
        if len(segment.encode()) > MAX_SEGMENT_BYTES:
            raise InvalidKey(f"key {key!r} has a segment of more than {MAX_SEGMENT_BYTES} bytes")
    if len(key.encode()) > MAX_KEY_BYTES:
        raise InvalidKey(f"key {key!r} has more than {MAX_KEY_BYTES} bytes")


def check_text(text: str) -> None:
    """What holds for a part of a key too, such as a prefix."""
    found = _REFUSED.search(text)
    if found:
        raise InvalidKey(f"{text!r} has the character {found[0]!r}")


def is_key(text: str) -> bool:
    try:
        check_key(text)
    except InvalidKey:
        return False
    return True
