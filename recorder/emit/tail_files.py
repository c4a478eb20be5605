"""The generations of a log file: what was rotated away, oldest first, and the file itself.

Rotated files stand in the same folder, under the name of the log with a number, a date or a time
behind it. Compressed ones are not read, nor is what else begins with that name.
"""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from recorder.emit.tail_position import TailPosition, around

_NUMBERED: Final = re.compile(r"\.([0-9]{1,5})")
_ROTATED: Final = re.compile(r"[.-][0-9]+([-_:.+T][0-9]+)*Z?")
"""Like ``.1``, ``-20261116``, ``.2026-11-16_10``, ``-20261116-1763290800``."""
_SCANS: Final = 1_000


class Moved(Exception):
    """A file was renamed or changed while it was looked at."""


@dataclass(frozen=True, slots=True)
class Generation:
    path: Path
    device: int
    inode: int
    size: int
    mtime_ns: int

    @contextmanager
    def opened(self) -> Iterator[int]:
        """The file as it was found, or Moved if another one has its name now."""
        try:
            handle = os.open(self.path, os.O_RDONLY | os.O_NOFOLLOW)
        except FileNotFoundError as error:
            raise Moved from error
        try:
            found = os.fstat(handle)
            if (found.st_dev, found.st_ino) != (self.device, self.inode):
                raise Moved
            yield handle
        finally:
            os.close(handle)


def generations(path: Path) -> list[Generation]:
    """Oldest first; the file itself, if it is there, is the last.

    A folder is not read in one instant: two looks that see the same names saw all files.
    """
    before = _look(path)
    for _ in range(_SCANS):
        now = _look(path)
        if [(one.path, one.inode) for one in now] == [(one.path, one.inode) for one in before]:
            return _ordered(path, now)
        before = now
    raise Moved


def place_of(position: TailPosition, found: list[Generation]) -> int | None:
    """Which generation the position is in: the same file, or else a copy of it."""
    same = [
        number
        for number, one in enumerate(found)
        if (one.device, one.inode) == (position.device, position.inode)
    ]
    others = [number for number in range(len(found)) if number not in same]
    if not position.offset:
        return same[0] if same else None
    return next((one for one in (*same, *others) if _holds(found[one], position)), None)


def _holds(one: Generation, position: TailPosition) -> bool:
    if one.size < position.offset:
        return False
    with one.opened() as handle:
        return around(handle, position.offset).mark() == position.mark


def look_at(path: Path) -> Generation | None:
    """The regular file of that name, if there is one."""
    try:
        seen = path.lstat()
    except FileNotFoundError:
        return None
    if not stat.S_ISREG(seen.st_mode):
        return None
    return Generation(path, seen.st_dev, seen.st_ino, seen.st_size, seen.st_mtime_ns)


def _look(path: Path) -> list[Generation]:
    with os.scandir(path.parent) as entries:
        names = [one.name for one in entries if _is_ours(one.name, path.name)]
    found = (look_at(path.with_name(name)) for name in sorted(names))
    return [one for one in found if one is not None]


def _is_ours(name: str, log: str) -> bool:
    is_longer = name.startswith(log) and _ROTATED.fullmatch(name.removeprefix(log))
    return name == log or bool(is_longer)


def _ordered(path: Path, found: list[Generation]) -> list[Generation]:
    """By number, the highest first, where all have one; else by time, then by name."""
    last = [one for one in found if one.path == path]
    rotated = [one for one in found if one.path != path]
    numbers = [_NUMBERED.fullmatch(one.path.name.removeprefix(path.name)) for one in rotated]
    if all(numbers):
        pairs = zip(numbers, rotated, strict=True)
        rotated = [one for _, one in sorted(pairs, key=lambda pair: -int(pair[0][1]))]  # type: ignore[index]
    else:
        rotated.sort(key=lambda one: (one.mtime_ns, one.path.name))
    return rotated + last
