"""The generations of a rotated log file, positions in them, and their complete lines.

Rotated files are in the same directory, named after the log with a number, a date or a time
appended. Compressed files, and other files whose names begin alike, are not read. The order is
that of the rotation's names and never that of modification times, since a clock can be set back.

A position identifies a file by its content, so that it is recognised after a rename.
"""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from veen.digest import h
from veen.errors import VeenError
from veen.wire.objects import WireMap
from veen.wire.schema import Bytes32

MARK_BYTES: Final = 512
_NUMBERED: Final = re.compile(r"\.([0-9]{1,5})")
_ROTATED: Final = re.compile(r"[.-][0-9]+([-_:.+T][0-9]+)*Z?")
"""Matches ``.1``, ``-20261116``, ``.2026-11-16_10``, ``-20261116-1763290800``."""
_SCANS: Final = 1_000
_IDENTITY_BYTES: Final = 16
CHUNK_BYTES: Final = 1 << 20


@dataclass(frozen=True, slots=True, kw_only=True)
class TailPosition(WireMap):
    """How far a file was read; ``mark`` is a hash of the first and last bytes that were read.

    The mark recognises a file that was copied, and one that was truncated and written again.
    ``finished`` are the identities of the rotated files that were read completely, or that existed
    before the first read; None in a position written by a release without this field.
    """

    device: int
    inode: int
    offset: int
    mark: Bytes32
    finished: tuple[bytes, ...] | None = None


@dataclass(frozen=True, slots=True)
class Around:
    """The first bytes of a file up to an offset, and the last bytes before it."""

    first: bytes
    last: bytes

    def mark(self) -> bytes:
        return h(self.first + self.last)

    def after(self, read: bytes) -> Around:
        """The same after ``read`` was read from there on."""
        last = (self.last + read)[-MARK_BYTES:]
        return Around((self.first + read[:MARK_BYTES])[:MARK_BYTES], last)


def around(handle: int, offset: int) -> Around:
    size = min(offset, MARK_BYTES)
    return Around(os.pread(handle, size, 0), os.pread(handle, size, offset - size))


class RotationOrder(VeenError):
    """Rotated files whose names do not determine the order in which they were written."""


class FileMoved(Exception):
    """A file was renamed or changed while it was read."""


@dataclass(frozen=True, slots=True)
class FileGeneration:
    path: Path
    device: int
    inode: int
    size: int
    mtime_ns: int

    @property
    def identity(self) -> bytes:
        """Stays the same after a rename, and changes with every write."""
        text = f"{self.device} {self.inode} {self.size} {self.mtime_ns}"
        return h(text.encode())[:_IDENTITY_BYTES]

    @contextmanager
    def opened(self) -> Iterator[int]:
        """Open the file; FileMoved if another file has its name now."""
        try:
            handle = os.open(self.path, os.O_RDONLY | os.O_NOFOLLOW)
        except FileNotFoundError as error:
            raise FileMoved from error
        try:
            status = os.fstat(handle)
            if (status.st_dev, status.st_ino) != (self.device, self.inode):
                raise FileMoved
            yield handle
        finally:
            os.close(handle)


def generations(path: Path) -> list[FileGeneration]:
    """Return the live file, if it exists, and all rotated files, sorted by name.

    A directory listing is not atomic: two scans that give the same names saw all files.
    """
    before = _scan(path)
    for _ in range(_SCANS):
        now = _scan(path)
        if [(file.path, file.inode) for file in now] == [
            (file.path, file.inode) for file in before
        ]:
            return now
        before = now
    raise FileMoved


def place_of(position: TailPosition, generations: list[FileGeneration]) -> int | None:
    """Return the generation that the position is in: the same file, or else a copy of it."""
    same = [
        number
        for number, generation in enumerate(generations)
        if (generation.device, generation.inode) == (position.device, position.inode)
    ]
    others = [number for number in range(len(generations)) if number not in same]
    if not position.offset:
        return same[0] if same else None
    return next((other for other in (*same, *others) if _holds(generations[other], position)), None)


def _holds(generation: FileGeneration, position: TailPosition) -> bool:
    if generation.size < position.offset:
        return False
    with generation.opened() as handle:
        return around(handle, position.offset).mark() == position.mark


def look_at(path: Path) -> FileGeneration | None:
    """Return the regular file of that name, if it exists."""
    try:
        seen = path.lstat()
    except FileNotFoundError:
        return None
    if not stat.S_ISREG(seen.st_mode):
        return None
    return FileGeneration(path, seen.st_dev, seen.st_ino, seen.st_size, seen.st_mtime_ns)


def _scan(path: Path) -> list[FileGeneration]:
    with os.scandir(path.parent) as entries:
        names = [entry.name for entry in entries if _is_ours(entry.name, path.name)]
    files = (look_at(path.with_name(name)) for name in sorted(names))
    return [file for file in files if file is not None]


def _is_ours(name: str, log: str) -> bool:
    is_longer = name.startswith(log) and _ROTATED.fullmatch(name.removeprefix(log))
    return name == log or bool(is_longer)


def in_order(path: Path, files: list[FileGeneration]) -> list[FileGeneration]:
    """Sort oldest first, the live file last; RotationOrder where the names do not determine it.

    Numbers count backwards (``.2`` is older than ``.1``), dates and times forwards.
    """
    live = [file for file in files if file.path == path]
    rotated = [file for file in files if file.path != path]
    suffixes = {file.path: file.path.name.removeprefix(path.name) for file in rotated}
    if len({_form(suffix) for suffix in suffixes.values()}) > 1:
        names = ", ".join(file.path.name for file in rotated)
        raise RotationOrder(
            f"{path}: rotated files have names of different forms ({names}), which do not say "
            "which is older; rename them to one form, or move those away that need not be read"
        )
    rotated.sort(key=lambda file: _rank(suffixes[file.path]))
    return rotated + live


def _form(suffix: str) -> str:
    """``number``, or the separators of a date with the number of digits between them."""
    if _NUMBERED.fullmatch(suffix):
        return "number"
    return re.sub(r"[0-9]+", lambda digits: str(len(digits[0])), suffix)


def _rank(suffix: str) -> tuple[int, ...]:
    numbered = _NUMBERED.fullmatch(suffix)
    if numbered:
        return (-int(numbered[1]),)
    return tuple(int(digits) for digits in re.findall(r"[0-9]+", suffix))


@dataclass(frozen=True, slots=True)
class TailLine:
    """A line, or with ``is_cut`` a piece of a line longer than the read size."""

    raw: bytes = field(repr=False)
    offset: int
    is_cut: bool = False


@dataclass(frozen=True, slots=True)
class LineBatch:
    """Lines of one generation; ``is_at_end`` where nothing, or only part of a line, follows."""

    generation: FileGeneration
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


def read_batch(
    generation: FileGeneration, offset: int, mark: bytes | None, *, is_finished: bool
) -> LineBatch:
    """Read the lines after ``offset``; FileMoved if the bytes before it do not match ``mark``.

    In a finished file the last line may be unterminated.
    """
    with generation.opened() as handle:
        raw = os.pread(handle, CHUNK_BYTES, offset)
        # After the read, so that a truncation in between is noticed.
        before = around(handle, offset)
    if mark is not None and before.mark() != mark:
        raise FileMoved
    is_at_end = len(raw) < CHUNK_BYTES
    lines, rest = _split(raw, offset)
    if rest and is_at_end and is_finished:
        lines.append(TailLine(rest, offset + len(raw) - len(rest)))
    elif rest and not is_at_end and not lines:
        lines.append(TailLine(rest, offset, is_cut=True))
    return LineBatch(generation, tuple(lines), is_at_end, raw, offset, before)


def _split(raw: bytes, offset: int) -> tuple[list[TailLine], bytes]:
    *whole, rest = raw.split(b"\n")
    lines = []
    for line in whole:
        lines.append(TailLine(line + b"\n", offset))
        offset += len(line) + 1
    return lines, rest
