"""The lines of a log file from a position on: whole ones, and what a finished file ends with."""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from typing import Final

from recorder.emit.tail_files import Generation, Moved
from recorder.emit.tail_position import Around, TailPosition, around

CHUNK_BYTES: Final = 1 << 20


@dataclass(frozen=True, slots=True)
class TailLine:
    """``is_cut`` where the line is longer than what is read at once, and this a piece of it."""

    raw: bytes = field(repr=False)
    offset: int
    is_cut: bool = False


@dataclass(frozen=True, slots=True)
class Portion:
    """Lines of one generation; ``is_at_end`` where nothing, or only part of a line, follows."""

    generation: Generation
    lines: tuple[TailLine, ...]
    is_at_end: bool
    raw: bytes = field(repr=False)
    offset: int
    before: Around = field(repr=False)

    def position_after(
        self, line: TailLine, finished: tuple[bytes, ...] | None = None
    ) -> TailPosition:
        end = line.offset + len(line.raw)
        return TailPosition(
            device=self.generation.device,
            inode=self.generation.inode,
            offset=end,
            mark=self.before.after(self.raw[: end - self.offset]).mark(),
            finished=finished,
        )


def read_portion(one: Generation, offset: int, mark: bytes | None, *, is_finished: bool) -> Portion:
    """What stands after ``offset``; Moved if the bytes before it are no longer those of ``mark``.

    In a finished file the last line may lack its end.
    """
    with one.opened() as handle:
        raw = os.pread(handle, CHUNK_BYTES, offset)
        # After the reading, so that a file emptied meanwhile does not go unnoticed.
        before = around(handle, offset)
    if mark is not None and before.mark() != mark:
        raise Moved
    is_at_end = len(raw) < CHUNK_BYTES
    lines, rest = _split(raw, offset)
    if rest and is_at_end and is_finished:
        lines.append(TailLine(rest, offset + len(raw) - len(rest)))
    elif rest and not is_at_end and not lines:
        lines.append(TailLine(rest, offset, is_cut=True))
    return Portion(one, tuple(lines), is_at_end, raw, offset, before)


def _split(raw: bytes, offset: int) -> tuple[list[TailLine], bytes]:
    *whole, rest = raw.split(b"\n")
    lines = []
    for line in whole:
        lines.append(TailLine(line + b"\n", offset))
        offset += len(line) + 1
    return lines, rest
