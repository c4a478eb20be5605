"""Rotation of the logs of a zone's processes by the supervisor, within size limits."""

from __future__ import annotations

import ctypes
import logging
import os
import shutil
import stat
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import BinaryIO, Final

from veen.system.log_file import (
    DEFAULT_BACKUPS,
    DEFAULT_MAX_BYTES,
    last_lines,
    make_room,
    rotating_in,
)

MAX_BYTES: Final = DEFAULT_MAX_BYTES + DEFAULT_MAX_BYTES // 4
"""Above the size at which a hub rotates its own log, which loses nothing."""

RUNS_MAX_BYTES: Final = 1 << 30
"""The total size limit of the logs of Airflow's task runs."""

_RUNS_LOW_BYTES: Final = RUNS_MAX_BYTES // 10 * 9
_LAST_LINES: Final = 3
_COLLAPSE_RANGE: Final = 0x08
_LIBC: Final = ctypes.CDLL(None)
_log = logging.getLogger(__name__)


def rotate(path: Path, max_bytes: int = MAX_BYTES, backups: int = DEFAULT_BACKUPS) -> bool:
    """Rotate a log that has become too large; whether that was done.

    Its writers hold the file open for appending and cannot be asked to open another one (they are
    PostgreSQL, Airflow and what those start), so the bytes are copied to ``NAME.1`` and cut off the
    file under them. No writer waits or fails. File systems that can cut off the beginning of a file
    (ext4, XFS) lose nothing; on others the file is emptied, and what is written between the end of
    the copy and that moment is lost. Without room for the copy, the file is emptied once it is
    twice as large.
    """
    try:
        size = path.stat().st_size
    except OSError:
        return False
    if size <= max_bytes:
        return False
    try:
        with rotating_in(path.parent), path.open("r+b") as file:
            _move(file, path, backups)
    except OSError as error:
        return size > 2 * max_bytes and _drop(path, size, error)
    return True


def bound(folder: Path, max_bytes: int = RUNS_MAX_BYTES, low_bytes: int = _RUNS_LOW_BYTES) -> int:
    """Remove the oldest files below a folder once they take too much together; how many.

    Airflow writes a file for each task run and for each DAG file and day, and removes none.
    """
    files = sorted(_files(folder))
    total, removed = sum(size for _, size, _ in files), 0
    if total <= max_bytes:
        return 0
    for _, size, path in files:
        if total <= low_bytes:
            break
        with suppress(OSError):
            Path(path).unlink()
            total, removed = total - size, removed + 1
    return removed


def last_words(path: Path) -> str:
    """The last lines of a log."""
    try:
        return " | ".join(last_lines(path, _LAST_LINES)) or "it said nothing"
    except OSError as error:
        return f"its log cannot be read: {error.strerror}"


def _files(folder: Path) -> Iterator[tuple[float, int, str]]:
    """Modification time, size and path of every regular file; links are skipped."""
    for place, _, names in os.walk(folder):
        for name in names:
            path = os.path.join(place, name)  # noqa: PTH118 - there may be very many
            with suppress(OSError):
                status = os.lstat(path)
                if stat.S_ISREG(status.st_mode):
                    yield status.st_mtime, status.st_size, path


def _drop(path: Path, size: int, error: OSError) -> bool:
    with suppress(OSError):
        os.truncate(path, 0)
    _log.warning("%s: %d bytes of log dropped, no copy could be made: %s", path, size, error)
    return True


def _move(file: BinaryIO, path: Path, backups: int) -> None:
    """Move the content to a rotated log; a failed copy is removed."""
    status = os.fstat(file.fileno())
    # Only whole blocks can be removed, and not the entire file.
    whole = (status.st_size - 1) // status.st_blksize * status.st_blksize
    temporary = path.with_name(f".{path.name}.new")
    try:
        with temporary.open("wb") as target:
            temporary.chmod(stat.S_IMODE(status.st_mode))
            target.write(file.read(whole))
            if not (whole and _cut_off(file.fileno(), whole)):
                shutil.copyfileobj(file, target)
                file.truncate(0)
    except OSError:
        temporary.unlink(missing_ok=True)
        raise
    temporary.replace(make_room(path, backups))


def _cut_off(fd: int, size: int) -> bool:
    """Remove the first ``size`` bytes of a file atomically; whether the file system supports it."""
    offset, length = ctypes.c_longlong(0), ctypes.c_longlong(size)
    return bool(_LIBC.fallocate(fd, _COLLAPSE_RANGE, offset, length) == 0)
