"""How far a log file was read, told so that its bytes are known again under any name."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import Final

from veen.digest import h
from veen.schema import Bytes32
from veen.wire import WireMap

MARK_BYTES: Final = 512


@dataclass(frozen=True, slots=True, kw_only=True)
class TailPosition(WireMap):
    """``mark`` is over the first bytes of what was read, and over the last.

    The mark finds a file that was copied, and tells one that was emptied and written anew.
    ``finished`` are the identities of the rotated files that were read to their end, or that were
    there before the first reading; None in a position written before there was this field.
    """

    device: int
    inode: int
    offset: int
    mark: Bytes32
    finished: tuple[bytes, ...] | None = None


@dataclass(frozen=True, slots=True)
class Around:
    """The first bytes of a file up to an offset, and the last ones before it."""

    first: bytes
    last: bytes

    def mark(self) -> bytes:
        return h(self.first + self.last)

    def after(self, read: bytes) -> Around:
        """The same once ``read`` was read from there on."""
        last = (self.last + read)[-MARK_BYTES:]
        return Around((self.first + read[:MARK_BYTES])[:MARK_BYTES], last)


def around(handle: int, offset: int) -> Around:
    size = min(offset, MARK_BYTES)
    return Around(os.pread(handle, size, 0), os.pread(handle, size, offset - size))
