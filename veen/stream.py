"""Streams: what an application calls a log, named by text (spec 2)."""

import re

from veen.digest import h

_ID_IN_HEX = re.compile(r"[0-9a-fA-F]{64}")


def stream_id(name: str) -> bytes:
    """H of the name; 64 hex digits are taken as the identifier itself."""
    if _ID_IN_HEX.fullmatch(name):
        return bytes.fromhex(name)
    return h(name.encode())
