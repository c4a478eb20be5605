"""A probe of a medium's real capacity: marks over all of it, read back past the page cache.

A forged medium accepts what is written beyond its real size, and loses it or overwrites earlier
data; the marks then do not read back. Space between marks is reserved and not written, where the
file system supports that. The file system decides where on the medium a mark lies.
"""

from __future__ import annotations

import ctypes
import errno
import mmap
import os
import shutil
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from bridge.carrier.directory import READ, Directory
from bridge.carrier.medium import BadMedium, sync_directories, sync_file_system
from veen.digest import h, u64be
from veen.system import durable
from veen.system.environment import Progress, ProgressCounter, no_progress

FOLDER: Final = "agb0-probe"
MARK_BYTES: Final = 4096
_PARTS: Final = 64
_LEAST_PART: Final = 1 << 20
_SPARE: Final = 2 << 20
"""Space for directories and tables of a file system."""
_KEEP_SIZE: Final = 1
_LIBC: Final = ctypes.CDLL(None, use_errno=True)
_NEW: Final = os.O_RDWR | os.O_CREAT | os.O_EXCL


@dataclass(frozen=True, slots=True)
class Mark:
    """Unique bytes at an offset of a file."""

    name: str
    at: int
    bytes: bytes


def probe(medium: Path, nonce: bytes, progress: Progress = no_progress) -> int:
    """Probe a medium; return the number of probed bytes, or raise BadMedium.

    Nothing is left on the medium. ``nonce`` is fresh, so that no mark of an earlier probe matches.
    """
    with Directory.root(medium) as root:
        return _probe(root, nonce, progress)


def _probe(root: Directory, nonce: bytes, progress: Progress) -> int:
    medium, file_system = root.path, os.statvfs(root.fd)
    claimed = file_system.f_bavail * file_system.f_frsize
    part = max(_LEAST_PART, claimed // _PARTS // MARK_BYTES * MARK_BYTES)
    parts = (claimed - _SPARE) // (part + MARK_BYTES)
    if parts < 1:
        raise BadMedium(f"{medium} has {claimed} bytes free, too few to probe; use another medium")
    count = ProgressCounter(2 * parts * part, progress)
    with _translate_errors(medium, claimed), _folder(root) as folder:
        marks = [_write(folder, number, part, nonce, count) for number in range(parts)]
        sync_directories((folder, root))
        sync_file_system(root)
        for number, mark in enumerate(marks):
            if _read(folder, mark) != mark.bytes:
                raise BadMedium(
                    f"{medium} reports {claimed} bytes free, and what was written some "
                    f"{number * part} bytes in does not come back: it has less space than it "
                    "reports, or is broken; use another medium",
                    number * part,
                )
            count.add(part)
    return parts * part


@contextmanager
def _folder(root: Directory) -> Iterator[Directory]:
    """A directory that is removed afterwards; what an interrupted probe has left is removed first.

    A link of its name is not followed: the probe then ends before anything is written.
    """
    shutil.rmtree(FOLDER, ignore_errors=True, dir_fd=root.fd)
    try:
        directory = root.make(FOLDER)
    except FileExistsError as error:
        raise BadMedium(
            f"{root.path / FOLDER}: expected no entry, got a link or a file; use another medium"
        ) from error
    with directory as folder:
        try:
            yield folder
        finally:
            shutil.rmtree(FOLDER, dir_fd=root.fd)


@contextmanager
def _translate_errors(medium: Path, claimed: int) -> Iterator[None]:
    try:
        yield
    except (durable.NoSpace, durable.SyncFailed, OSError) as error:
        raise BadMedium(
            f"{medium} reports {claimed} bytes free, and writing them failed: {error}; "
            "use another medium"
        ) from error


def _write(folder: Directory, number: int, part: int, nonce: bytes, count: ProgressCounter) -> Mark:
    """Reserve space and write a mark at its end, or in a file of its own after it."""
    raw = h(nonce + u64be(number)) * (MARK_BYTES // 32)
    mark = Mark(f"r{number:03d}", part, raw)
    handle = folder.file(mark.name, _NEW, durable.FILE_MODE)
    try:
        if not _reserve(handle, part, count):
            os.close(handle)
            mark = Mark(f"m{number:03d}", 0, raw)
            handle = folder.file(mark.name, _NEW, durable.FILE_MODE)
        durable.write_at(handle, raw, mark.at)
        durable.sync(handle)
        os.posix_fadvise(handle, 0, 0, os.POSIX_FADV_DONTNEED)
    finally:
        os.close(handle)
    return mark


def _reserve(handle: int, size: int, count: ProgressCounter) -> bool:
    """Reserve space; return whether a mark after it can be written without writing all of it."""
    for mode, is_inside in ((0, True), (_KEEP_SIZE, False)):
        if _LIBC.fallocate(handle, mode, ctypes.c_long(0), ctypes.c_long(size)) == 0:
            count.add(size)
            return is_inside
        if ctypes.get_errno() not in (errno.EOPNOTSUPP, errno.ENOSYS):
            raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
    for at in range(0, size, _LEAST_PART):
        durable.write_at(handle, bytes(min(_LEAST_PART, size - at)), at)
        count.add(min(_LEAST_PART, size - at))
    return True


def _read(folder: Directory, mark: Mark) -> bytes:
    try:
        handle = folder.file(mark.name, READ | os.O_DIRECT)
    except OSError as error:
        if error.errno != errno.EINVAL:
            raise
        handle = folder.file(mark.name)
    try:
        with closing(mmap.mmap(-1, MARK_BYTES)) as aligned:
            size = os.preadv(handle, [aligned], mark.at)
            return aligned[:size]
    finally:
        os.close(handle)
