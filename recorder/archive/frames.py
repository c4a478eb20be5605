"""The entries of a chunk file, one after another in bounded memory (spec 4.8.1)."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from io import BufferedReader
from pathlib import Path

from veen.entry import Entry, EntryHeader, FramedEntry, open_entry
from veen.errors import Malformed
from veen.limits import ENTRY_HEADER_BYTES, Limits
from veen.objects.body import PIECE, digest_of


@dataclass(frozen=True, slots=True)
class Frame:
    """A whole entry: its place, where it ends in its file, and the hub_ts of its receipt."""

    stream_seq: int
    end: int
    hub_ts: int


def walk(file: BufferedReader, label: bytes, start_seq: int, limits: Limits) -> Iterator[Frame]:
    """The entries up to the first that is not whole or not next in line."""
    end, seq = 0, start_seq
    file.seek(0)
    while True:
        try:
            found = _read(file, limits)
        except Malformed:
            return
        if (found.header.label, found.header.stream_seq) != (label, seq):
            return
        end, seq = end + found.header.whole_size, seq + 1
        yield Frame(found.header.stream_seq, end, found.receipt.hub_ts)


def ends(found: Iterator[Frame]) -> tuple[Frame | None, Frame | None]:
    """The first and the last."""
    first = last = next(found, None)
    for one in found:
        last = one
    return first, last


def copy(file: BufferedReader, size: int, to: Path) -> bytes:
    """Copy the first ``size`` bytes; their SHA-256."""
    file.seek(0)
    with to.open("w+b") as target:
        while size > 0 and (piece := file.read(min(size, PIECE))):
            target.write(piece)
            size -= len(piece)
        target.flush()
        return digest_of(target)


def begins_with(path: Path, size: int, sha256: bytes, scratch: Path) -> bool:
    """Whether the first ``size`` bytes of a file have this SHA-256."""
    with path.open("rb") as file:
        return size_of(file) >= size and copy(file, size, scratch) == sha256


def size_of(file: BufferedReader) -> int:
    return os.fstat(file.fileno()).st_size


def _read(file: BufferedReader, limits: Limits) -> FramedEntry:
    header = EntryHeader.read(file.read(ENTRY_HEADER_BYTES), 0, limits)
    entry = Entry(file.read(header.msg_len), file.read(header.receipt_len))
    if entry.entry_hash() != header.entry_hash:
        raise Malformed("an entry that is cut short or changed")
    return open_entry(header, entry)
