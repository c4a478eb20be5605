"""Files that are whole or absent, and on disk when it is said so."""

from __future__ import annotations

import errno
import fcntl
import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from io import BufferedRandom
from pathlib import Path
from typing import Final, cast

from veen.durable import DIR_MODE, FILE_MODE, sync, sync_directory
from veen.objects.body import PIECE, Body, digest_of, verify_digest
from veen.objects.port import StoreRefused, StoreUnavailable

OBJECT_MODE: Final = 0o400
_NEVER: Final = {
    errno.EACCES, errno.EPERM, errno.EROFS, errno.ENOTDIR, errno.EISDIR, errno.ELOOP,
    errno.EOPNOTSUPP,
}  # fmt: skip


def make_directory(directory: Path, root: Path) -> None:
    """A directory below ``root`` that survives, also when another process has just made it."""
    directory.mkdir(mode=DIR_MODE, parents=True, exist_ok=True)
    while directory != root:
        directory = directory.parent
        sync_directory(directory)


@contextmanager
def locked(path: Path, kind: int) -> Iterator[None]:
    """Holds ``path`` with flock, shared or exclusive, against threads and processes alike."""
    handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, FILE_MODE)
    try:
        fcntl.flock(handle, kind)
        yield
    finally:
        os.close(handle)


@contextmanager
def locked_to_read(path: Path) -> Iterator[bool]:
    """Holds ``path`` shared without the right to write; False where no writer has made it yet."""
    try:
        handle = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError:
        yield False
        return
    try:
        fcntl.flock(handle, fcntl.LOCK_SH)
        yield True
    finally:
        os.close(handle)


@contextmanager
def staged(folder: Path, body: Body) -> Iterator[Path]:
    """A synced file with these bytes in ``folder``, gone afterwards under that name."""
    with tempfile.NamedTemporaryFile(dir=folder, prefix="put-") as file:
        with body.open() as source:
            shutil.copyfileobj(source, file, PIECE)
        file.flush()
        verify_digest(
            "the file that was put", digest_of(cast("BufferedRandom", file.file)), body.sha256
        )
        os.fchmod(file.fileno(), OBJECT_MODE)
        sync(file.fileno())
        yield Path(file.name)


@contextmanager
def replacing(target: Path, folder: Path) -> Iterator[BufferedRandom]:
    """A file in ``folder`` that takes the place of ``target`` once it is whole and on disk."""
    handle, name = tempfile.mkstemp(dir=folder, prefix=".new-")
    try:
        with os.fdopen(handle, "w+b") as file:
            yield file
            file.flush()
            sync(file.fileno())
        Path(name).rename(target)
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise
    sync_directory(target.parent)


@contextmanager
def translated(what: str) -> Iterator[None]:
    """Failures of the disk, as the port names them."""
    try:
        yield
    except OSError as error:
        refused = StoreRefused if error.errno in _NEVER else StoreUnavailable
        raise refused(f"{what}: {error.strerror or error}") from error
