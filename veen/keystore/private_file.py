"""Files that are their owner's alone: no one else reads them, writes them or puts them there."""

from __future__ import annotations

import errno
import os
import shlex
import stat
from pathlib import Path
from typing import Final

from veen import durable
from veen.errors import Malformed, VeenError

ANY_ACCESS: Final = 0o077
WRITING: Final = 0o022
MAX_BYTES: Final = 64 << 20


class NotPrivate(VeenError):
    """Somebody else may read or change what only its owner may."""


def read(path: Path, forbidden: int = ANY_ACCESS) -> bytes:
    """A regular file of ours on which nobody else has the rights of ``forbidden``."""
    # Not to wait for a writer, should it be a pipe.
    handle = open_unlinked(path, os.O_RDONLY | os.O_NONBLOCK)
    try:
        status = os.fstat(handle)
        if not stat.S_ISREG(status.st_mode):
            raise NotPrivate(f"{path} is not a regular file")
        _verify(path, status, forbidden)
        if status.st_size > MAX_BYTES:
            raise Malformed(f"{path} has {status.st_size} bytes, at most {MAX_BYTES} are read")
        with os.fdopen(handle, "rb", closefd=False) as file:
            return file.read(MAX_BYTES)
    finally:
        os.close(handle)


def open_unlinked(path: Path, flags: int) -> int:
    """A descriptor of the file itself: a symbolic link under its name is not followed."""
    try:
        return os.open(path, flags | os.O_NOFOLLOW | os.O_CLOEXEC, durable.FILE_MODE)
    except OSError as error:
        if error.errno == errno.ELOOP:
            raise _linked(path) from error
        raise


def verify(path: Path, forbidden: int = ANY_ACCESS) -> None:
    """Refuse a file or directory that is not ours, or to which others have a right."""
    _verify(path, path.lstat(), forbidden)


def make_directory(path: Path) -> None:
    """A directory of ours alone, on disk on return; one that others had access to must be empty."""
    if not path.is_dir():
        _make_directories(path)
    elif path.stat().st_mode & ANY_ACCESS:
        _refuse_unless_empty(path)
        path.chmod(durable.DIR_MODE)
        # Once more: until now somebody could have put there what secrets would be written to.
        _refuse_unless_empty(path)
    verify(path.resolve())


def _make_directories(path: Path) -> None:
    if not path.parent.is_dir():
        _make_directories(path.parent)
    path.mkdir(mode=durable.DIR_MODE, exist_ok=True)
    durable.sync_directory(path.parent)


def _refuse_unless_empty(path: Path) -> None:
    if any(path.iterdir()):
        raise NotPrivate(
            f"others have access to {path}, and it is not empty: "
            "take a directory that is not there yet"
        )


def _verify(path: Path, status: os.stat_result, forbidden: int) -> None:
    if stat.S_ISLNK(status.st_mode):
        raise _linked(path)
    if status.st_uid != os.geteuid():
        raise NotPrivate(f"{path} belongs to user {status.st_uid}: run veen as that user")
    if status.st_mode & forbidden:
        right = 0o700 if stat.S_ISDIR(status.st_mode) else 0o600
        raise NotPrivate(
            f"others have access to {path} (mode {stat.S_IMODE(status.st_mode):04o}): "
            f"run chmod {right:o} {shlex.quote(str(path))}"
        )


def _linked(path: Path) -> NotPrivate:
    return NotPrivate(f"{path} is a symbolic link: put the file itself there")
