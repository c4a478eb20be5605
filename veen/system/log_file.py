"""Log files of a service: rotated by size from inside the process, and read from their end.

A service logs to standard error, which may be redirected to a file. Several processes (supervisor,
sequencer, workers) share that file. Each checks the size of its standard error before a line; the
first that finds it full renames it under a lock, and the others move to the new file at their next
line, because a renamed file is full by definition.
"""

from __future__ import annotations

import fcntl
import logging
import os
import stat
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Final, Protocol

from veen.errors import VeenError
from veen.system import filelock

STANDARD_OUTPUT: Final = 1
STANDARD_ERROR: Final = 2
DEFAULT_MAX_BYTES: Final = 16 << 20
DEFAULT_BACKUPS: Final = 3
_READ_BYTES: Final = 1 << 16
_FORMAT: Final = "%(asctime)s %(levelname)s %(name)s %(message)s"


def last_lines(path: Path, count: int, max_bytes: int = _READ_BYTES) -> list[str]:
    """The last ``count`` lines of a file, of which at most ``max_bytes`` are read, from its end.

    A line that began before those bytes is left out, unless there is no other.
    """
    with path.open("rb") as file:
        size = file.seek(0, os.SEEK_END)
        start = max(0, size - max_bytes)
        file.seek(start)
        raw = file.read(size - start)
    lines = raw.decode(errors="replace").splitlines()
    return (lines[1:] or lines if start else lines)[-count:] if count > 0 else []


@dataclass(frozen=True, slots=True)
class RotatingOutput:
    """The file that standard error is redirected to, and its size limit."""

    path: Path
    max_bytes: int = DEFAULT_MAX_BYTES
    backups: int = DEFAULT_BACKUPS

    def rotate_if_full(self) -> None:
        """Rotate a full file, or move to the new one if another process has rotated it.

        OSError is ignored: a log that cannot be rotated must not stop the service.
        """
        with suppress(OSError):
            if os.fstat(STANDARD_ERROR).st_size >= self.max_bytes:
                self._rotate()

    def _rotate(self) -> None:
        with rotating_in(self.path.parent):
            full = os.fstat(STANDARD_ERROR)
            if full.st_size < self.max_bytes:
                return
            if _is_at(self.path, full):
                rotate_names(self.path, self.backups)
            self._reopen(full)

    def _reopen(self, full: os.stat_result) -> None:
        flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT
        handle = os.open(self.path, flags, stat.S_IMODE(full.st_mode))
        try:
            for fd in (STANDARD_OUTPUT, STANDARD_ERROR):
                if _same_file(os.fstat(fd), full):
                    os.dup2(handle, fd)
        finally:
            os.close(handle)


class RotatingHandler(logging.StreamHandler):  # type: ignore[type-arg]
    """Logs to standard error and rotates the file behind it."""

    def __init__(self, output: RotatingOutput | None) -> None:
        super().__init__(sys.stderr)
        self._output = output

    def emit(self, record: logging.LogRecord) -> None:
        # Before the line, so that it goes to the current file if another process rotated it.
        if self._output is not None:
            self._output.rotate_if_full()
        super().emit(record)


def begin_logging(max_bytes: int, backups: int, bare: Iterable[str] = ()) -> None:
    """Log to standard error, within a size if that is a file; uncaught errors go there too.

    The loggers in ``bare`` write nothing but their messages.
    """
    output = redirected_output(max_bytes, backups)
    logging.basicConfig(level="INFO", handlers=[RotatingHandler(output)], format=_FORMAT)
    for name in bare:
        logger = logging.getLogger(name)
        logger.addHandler(RotatingHandler(output))
        logger.propagate = False
    sys.excepthook = _log_uncaught


class LogSettings(Protocol):
    """The settings of a service for its log."""

    @property
    def log_max_bytes(self) -> int: ...
    @property
    def log_backups(self) -> int: ...


def log_size(load: Callable[[], LogSettings]) -> tuple[int, int]:
    """The size and the number of backups; invalid settings are refused later, once there is a
    log."""
    try:
        settings = load()
    except VeenError:
        return DEFAULT_MAX_BYTES, DEFAULT_BACKUPS
    return settings.log_max_bytes, settings.log_backups


def _log_uncaught(
    kind: type[BaseException], error: BaseException, where: TracebackType | None
) -> None:
    if issubclass(kind, KeyboardInterrupt):
        sys.__excepthook__(kind, error, where)
        return
    logging.getLogger(__name__).critical("ended by an error", exc_info=(kind, error, where))


def redirected_output(max_bytes: int, backups: int) -> RotatingOutput | None:
    """The file behind standard error; None if it is a terminal, a pipe, or not for appending.

    ``max_bytes`` 0 turns rotation off.
    """
    if max_bytes <= 0:
        return None
    try:
        opened = os.fstat(STANDARD_ERROR)
        if not stat.S_ISREG(opened.st_mode):
            return None
        if not fcntl.fcntl(STANDARD_ERROR, fcntl.F_GETFL) & os.O_APPEND:
            return None
        path = Path(f"/proc/self/fd/{STANDARD_ERROR}").readlink()
    except OSError:
        return None
    return RotatingOutput(path, max_bytes, backups) if _is_at(path, opened) else None


def rotate_names(path: Path, backups: int) -> None:
    """Rename a log to ``NAME.1``, ``NAME.1`` to ``NAME.2`` and so on; remove the oldest."""
    if backups <= 0:
        path.unlink()
        return
    path.replace(make_room(path, backups))


def make_room(path: Path, backups: int) -> Path:
    """Give each rotated log the next number; the path of the newest, ``NAME.1``."""
    for number in range(backups - 1, 0, -1):
        with suppress(FileNotFoundError):
            _numbered(path, number).replace(_numbered(path, number + 1))
    return _numbered(path, 1)


def _numbered(path: Path, number: int) -> Path:
    return path.with_name(f"{path.name}.{number}")


def _same_file(left: os.stat_result, right: os.stat_result) -> bool:
    return (left.st_dev, left.st_ino) == (right.st_dev, right.st_ino)


def _is_at(path: Path, opened: os.stat_result) -> bool:
    try:
        return _same_file(path.stat(), opened)
    except FileNotFoundError:
        return False


@contextmanager
def rotating_in(directory: Path) -> Iterator[None]:
    """Hold the rotation lock of a directory, which needs no lock file."""
    with filelock.locked_existing(directory):
        yield
