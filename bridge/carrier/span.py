"""A stretch of one or more open files, read as one."""

from __future__ import annotations

import os
from bisect import bisect_right
from collections.abc import Iterable, Iterator
from typing import BinaryIO, Final, NamedTuple

BLOCK: Final = 1 << 20


class Piece(NamedTuple):
    fd: int
    start: int
    size: int


class Span:
    """Reads by offset and never moves a file's own position, so that spans may share files."""

    def __init__(self, pieces: Iterable[Piece]) -> None:
        self.pieces = tuple(piece for piece in pieces if piece.size)
        self._starts = [0]
        for piece in self.pieces:
            self._starts.append(self._starts[-1] + piece.size)
        self.size = self._starts[-1]
        self._at = 0

    @classmethod
    def of_file(cls, file: BinaryIO) -> Span:
        return cls([Piece(file.fileno(), 0, os.fstat(file.fileno()).st_size)])

    def part(self, start: int, size: int) -> Span:
        """The stretch from ``start`` on, of at most ``size`` bytes."""
        end = min(start + size, self.size)
        return Span(
            Piece(piece.fd, piece.start + max(0, start - begin), min(end, stop) - max(start, begin))
            for piece, begin, stop in zip(self.pieces, self._starts, self._starts[1:], strict=False)
            if begin < end and stop > start
        )

    def blocks(self) -> Iterator[bytes]:
        at = 0
        while block := self._read_at(at, BLOCK):
            yield block
            at += len(block)

    def block(self, at: int, size: int) -> bytes:
        """So many bytes, with zeros for what lies behind the end."""
        return self._read_at(at, size).ljust(size, b"\x00")

    def seek(self, offset: int, whence: int = 0, /) -> int:
        self._at = offset + (0, self._at, self.size)[whence]
        return self._at

    def read(self, size: int = -1, /) -> bytes:
        taken = self._read_at(self._at, self.size if size < 0 else size)
        self._at += len(taken)
        return taken

    def _read_at(self, at: int, size: int) -> bytes:
        parts = []
        size = min(size, self.size - at)
        while size > 0:
            number = bisect_right(self._starts, at) - 1
            piece, inside = self.pieces[number], at - self._starts[number]
            raw = os.pread(piece.fd, min(size, piece.size - inside), piece.start + inside)
            if not raw:
                break
            parts.append(raw)
            at, size = at + len(raw), size - len(raw)
        return b"".join(parts)


def copy_blocks(blocks: Iterable[bytes], out: BinaryIO) -> None:
    out.writelines(blocks)
