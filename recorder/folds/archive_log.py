"""Sequential reads of an archived chunk from an offset, with a bounded buffer."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from veen.errors import Malformed
from veen.limits import ENTRY_HEADER_BYTES, Limits
from veen.log.entry import Entry, EntryHeader, FramedEntry, open_entry
from veen.objects.port import ObjectStore

_PIECE: Final = 4 * 2**20


class Window:
    """A sequential reader of an object, with a buffer of ``piece`` bytes."""

    def __init__(self, objects: ObjectStore, key: str, at: int, piece: int = _PIECE) -> None:
        self.at = at
        self.key = key
        self._objects = objects
        self._piece = piece
        self._raw = b""
        self._begin = at

    def take(self, size: int) -> bytes:
        """Return the next bytes; fewer at the end of the object."""
        if self.at + size > self._begin + len(self._raw):
            self._raw = self._objects.get_range(self.key, self.at, max(size, self._piece))
            self._begin = self.at
        start = self.at - self._begin
        data = self._raw[start : start + size]
        self.at += len(data)
        return data

    def skip(self, size: int) -> None:
        self.at += size


def headers(window: Window, limits: Limits) -> Iterator[tuple[int, EntryHeader]]:
    """Yield the offset and header of every entry; the window is after the entry."""
    while True:
        at = window.at
        raw = window.take(ENTRY_HEADER_BYTES)
        if not raw:
            return
        header = EntryHeader.read(raw, 0, limits)
        window.skip(header.whole_size - ENTRY_HEADER_BYTES)
        yield at, header


def next_entry(window: Window, limits: Limits) -> FramedEntry:
    """Read the entry at the current offset and verify its frame."""
    header = EntryHeader.read(window.take(ENTRY_HEADER_BYTES), 0, limits)
    entry = Entry(window.take(header.msg_len), window.take(header.receipt_len))
    if entry.entry_hash() != header.entry_hash:
        raise Malformed("an entry is truncated or changed: its hash differs")
    return open_entry(header, entry)
