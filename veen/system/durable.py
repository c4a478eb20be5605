"""Durable and atomic file writes: what is written here is on disk on return.

A failed sync is final: the kernel may have dropped the pages, and a second sync would report
success for lost bytes. Nothing here is retried.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final

from veen.errors import VeenError

FILE_MODE = 0o600
DIR_MODE = 0o700
_FULL: Final = (errno.ENOSPC, errno.EDQUOT)


class SyncFailed(VeenError):
    """A sync failed: the content of the disk is unknown, and the process must end."""


class NoSpace(VeenError):
    """The disk is full; nothing was changed."""


@contextmanager
def full_disk_is_no_space() -> Iterator[None]:
    """Translate a full disk (blocks, inodes, quota) to NoSpace; other errors pass."""
    try:
        yield
    except OSError as error:
        if error.errno not in _FULL:
            raise
        raise NoSpace(f"disk full: {error.strerror}: {error.filename}") from error


def append(fd: int, size: int, data: bytes) -> None:
    """Append ``data`` to a file of ``size`` bytes and sync it; on a full disk undo the write."""
    try:
        _write_all(fd, data, size)
    except OSError as error:
        os.ftruncate(fd, size)
        raise _write_error(error) from error
    sync(fd)


def write_at(fd: int, data: bytes, at: int) -> None:
    """Write derived bytes without sync."""
    try:
        _write_all(fd, data, at)
    except OSError as error:
        raise _write_error(error) from error


def cut(fd: int, size: int) -> None:
    """Truncate a file to ``size`` bytes and sync it."""
    os.ftruncate(fd, size)
    sync(fd)


def sync(fd: int) -> None:
    try:
        os.fdatasync(fd)
    except OSError as error:
        raise SyncFailed(f"sync failed: {error.strerror}") from error


def sync_directory(directory: Path) -> None:
    handle = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(handle)
    except OSError as error:
        raise SyncFailed(f"sync of {directory} failed: {error.strerror}") from error
    finally:
        os.close(handle)


def open_file(path: Path, flags: int) -> int:
    """Open a file; the directory entry of a new file is synced. A full disk is NoSpace."""
    is_new = bool(flags & os.O_CREAT) and not path.exists()
    with full_disk_is_no_space():
        handle = os.open(path, flags, FILE_MODE)
    if is_new:
        try:
            sync_directory(path.parent)
        except BaseException:
            os.close(handle)
            raise
    return handle


def write(path: Path, data: bytes) -> None:
    """Replace the content of ``path`` atomically."""
    temporary = path.with_name(f".{path.name}.new")
    with full_disk_is_no_space():
        handle = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, FILE_MODE)
    try:
        _write_all(handle, data, 0)
        sync(handle)
    except OSError as error:
        with suppress(FileNotFoundError):
            temporary.unlink()
        raise _write_error(error) from error
    finally:
        os.close(handle)
    try:
        with full_disk_is_no_space():
            temporary.rename(path)
    except NoSpace:
        temporary.unlink()
        raise
    sync_directory(path.parent)


def write_once(path: Path, data: bytes) -> None:
    """Write an immutable file atomically; raise if it exists with other bytes. Idempotent."""
    try:
        present = path.read_bytes()
    except FileNotFoundError:
        write(path, data)
        return
    if present != data:
        raise VeenError(f"{path.name} exists with other bytes; it is never rewritten")


def rename(source: Path, target: Path) -> None:
    """Rename a file durably. A full disk (the directory may need a block) is NoSpace, and the
    file keeps its old name."""
    with full_disk_is_no_space():
        source.rename(target)
    sync_directory(target.parent)


def make_directory(path: Path) -> None:
    with full_disk_is_no_space():
        path.mkdir(mode=DIR_MODE, parents=True, exist_ok=True)


def _write_all(fd: int, data: bytes, at: int) -> None:
    view = memoryview(data)
    while view:
        written = os.pwrite(fd, view, at)
        view, at = view[written:], at + written


def _write_error(error: OSError) -> VeenError:
    """The error of a failed write: NoSpace, which may pass, or SyncFailed, which is final."""
    if error.errno in _FULL:
        return NoSpace(f"disk full: {error.strerror}")
    return SyncFailed(f"write failed: {error.strerror}")
