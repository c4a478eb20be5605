"""receipts.cborseq: every receipt this client was given, one after another (spec 15).

It is a convenience that resync makes again: nothing here waits for the disk.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path
from typing import Final

from veen import cbor, durable
from veen.errors import Malformed
from veen.limits import MAX_RECEIPT_BYTES
from veen.receipt import Receipt

_CHUNK: Final = 1 << 20


class ReceiptBook:
    def __init__(self, path: Path) -> None:
        self._path = path
        self._is_whole = False

    def append(self, receipts: Iterable[Receipt]) -> None:
        flags = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW
        handle = os.open(self._path, flags, durable.FILE_MODE)
        try:
            size = os.fstat(handle).st_size
            if not self._is_whole:
                size = _mended(handle, size)
                self._is_whole = True
            durable.write_at(handle, b"".join(one.encode() for one in receipts), size)
        finally:
            os.close(handle)


def _mended(handle: int, size: int) -> int:
    """The size up to which the book is whole; what a crash left after it is cut off."""
    tail = os.pread(handle, MAX_RECEIPT_BYTES, max(0, size - MAX_RECEIPT_BYTES))
    if size == 0 or any(_is_receipt(tail[start:]) for start in range(len(tail))):
        return size
    whole = _whole(handle, size)
    os.ftruncate(handle, whole)
    return whole


def _is_receipt(raw: bytes) -> bool:
    try:
        Receipt.decode(raw)
    except Malformed:
        return False
    return True


def _whole(handle: int, size: int) -> int:
    at = 0
    while at < size:
        chunk = os.pread(handle, _CHUNK, at)
        end = _whole_items(chunk)
        if end == 0:
            break
        at += end
    return at


def _whole_items(chunk: bytes) -> int:
    at = 0
    try:
        while at < len(chunk):
            end = cbor.skip(chunk, at)
            Receipt.decode(chunk[at:end])
            at = end
    except Malformed:
        return at
    return at
