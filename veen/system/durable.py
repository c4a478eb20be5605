"""The discipline of bytes that must survive: what is written here is on disk on return.

A sync that fails is final: the kernel may have dropped the pages, and a second sync would then
report success for bytes that are gone. Nothing here is tried again.
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
    """A sync failed: what the disk holds is unknown, and the process must end."""


class NoSpace(VeenError):
    """There was no room for a write; what was there before is untouched."""


@contextmanager
def full_disk_is_no_space() -> Iterator[None]:
    """No room for a new file or name (blocks, inodes, quota) is NoSpace; other errors stay."""
    try:
        yield
    except OSError as error:
        if error.errno not in _FULL:
            raise
        raise NoSpace(f"no room on the disk: {error.strerror}: {error.filename}") from error


def append(fd: int, size: int, data: bytes) -> None:
    """Append ``data`` to a file of ``size`` bytes and sync it; on a full disk undo the write."""
    try:
        _write_all(fd, data, size)
    except OSError as error:
        os.ftruncate(fd, size)
        raise _refused(error) from error
    sync(fd)


def write_at(fd: int, data: bytes, at: int) -> None:
    """Write derived bytes, which need no sync; the same errors as elsewhere."""
    try:
        _write_all(fd, data, at)
    except OSError as error:
        raise _refused(error) from error


def cut(fd: int, size: int) -> None:
    """Take back what was appended after the first ``size`` bytes."""
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
    """Open a file; with O_CREAT one that is new has its name on disk on return.

    No room for another file (blocks, inodes, quota) is NoSpace, like no room for its bytes.
    """
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
    """Put ``data`` at ``path`` whole or not at all, in place of what was there."""
    temporary = path.with_name(f".{path.name}.new")
    with full_disk_is_no_space():
        handle = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, FILE_MODE)
    try:
        _write_all(handle, data, 0)
        sync(handle)
    except OSError as error:
        with suppress(FileNotFoundError):
            temporary.unlink()
        raise _refused(error) from error
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
    """Like ``write``, for a file that never changes: other bytes under the name are refused."""
    try:
        present = path.read_bytes()
    except FileNotFoundError:
        write(path, data)
        return
    if present != data:
        raise VeenError(f"{path.name} exists with other bytes; it is never rewritten")


def rename(source: Path, target: Path) -> None:
    """Give a file its name, which is on disk on return. A full disk (a directory may need another
    block for the name) is NoSpace: the source is still there under its old name."""
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


def _refused(error: OSError) -> VeenError:
    """A full disk may get room again; any other failure of a write is as final as a sync's."""
    if error.errno in _FULL:
        return NoSpace(f"no room on the disk: {error.strerror}")
    return SyncFailed(f"write failed: {error.strerror}")
