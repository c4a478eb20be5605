"""The generations of a log file: what was rotated away, oldest first, and the file itself.

Rotated files stand in the same folder, under the name of the log with a number, a date or a time
behind it. Compressed ones are not read, nor is what else begins with that name. The order is that
of the rotation's own names and never that of modification times, since a clock can be set back.
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
from veen.digest import h
from veen.errors import VeenError

_NUMBERED: Final = re.compile(r"\.([0-9]{1,5})")
_ROTATED: Final = re.compile(r"[.-][0-9]+([-_:.+T][0-9]+)*Z?")
"""Like ``.1``, ``-20261116``, ``.2026-11-16_10``, ``-20261116-1763290800``."""
_SCANS: Final = 1_000
_IDENTITY_BYTES: Final = 16


class RotationOrder(VeenError):
    """Rotated files whose names do not say in which order they were written."""


class Moved(Exception):
    """A file was renamed or changed while it was looked at."""


@dataclass(frozen=True, slots=True)
class Generation:
    path: Path
    device: int
    inode: int
    size: int
    mtime_ns: int

    @property
    def identity(self) -> bytes:
        """Stays the same under another name, and changes with every write."""
        stat_words = f"{self.device} {self.inode} {self.size} {self.mtime_ns}"
        return h(stat_words.encode())[:_IDENTITY_BYTES]

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
    """The file itself, if it is there, and all that was rotated away; sorted by name.

    A folder is not read in one instant: two looks that see the same names saw all files.
    """
    before = _look(path)
    for _ in range(_SCANS):
        now = _look(path)
        if [(one.path, one.inode) for one in now] == [(one.path, one.inode) for one in before]:
            return now
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


def in_order(path: Path, files: list[Generation]) -> list[Generation]:
    """Oldest first, the log file itself last; RotationOrder where the names do not say it.

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
    """``number``, or what stands between the digits of a date with how many digits there are."""
    if _NUMBERED.fullmatch(suffix):
        return "number"
    return re.sub(r"[0-9]+", lambda digits: str(len(digits[0])), suffix)


def _rank(suffix: str) -> tuple[int, ...]:
    numbered = _NUMBERED.fullmatch(suffix)
    if numbered:
        return (-int(numbered[1]),)
    return tuple(int(digits) for digits in re.findall(r"[0-9]+", suffix))
