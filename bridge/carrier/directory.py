"""Open directories of a medium: every name is opened relative to a descriptor, never by path.

Whoever carries a medium chooses what lies on it. A symbolic link, or a directory or file on another
device than the root of the medium, would lead out of it; both are an OSError (ENOTDIR or ELOOP, and
EXDEV).
"""

from __future__ import annotations

import errno
import os
import stat
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Final, Self

from veen import durable

READ: Final = os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK
_DIRECTORY: Final = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC | os.O_NONBLOCK
LEADS_ELSEWHERE: Final = (errno.ELOOP, errno.ENOTDIR, errno.EXDEV)
"""The errors of a name that leads out of a medium, or is of another kind than expected."""
_LINK: Final = "a symbolic link, or not of the expected kind"


class Directory:
    """One open directory; ``path`` is for messages only. Close it, or use it in ``with``."""

    def __init__(self, fd: int, path: Path, device: int) -> None:
        self.fd = fd
        self.path = path
        self._device = device

    @classmethod
    def root(cls, path: Path, *, follow: bool = True) -> Directory:
        """The root of a medium. Its path is the operator's own, and may be a link unless refused
        with ``follow``; what lies below is not.
        """
        fd = os.open(path, _DIRECTORY if follow else _DIRECTORY | os.O_NOFOLLOW)
        return cls(fd, path, os.fstat(fd).st_dev)

    def directory(self, name: str) -> Directory:
        """A directory in this one."""
        fd = self._open(name, _DIRECTORY | os.O_NOFOLLOW)
        return Directory(self._same_device(fd, name), self.path / name, self._device)

    def make(self, name: str, *, exist_ok: bool = False, mode: int = 0o777) -> Directory:
        """Create a directory in this one and open it; an entry of another kind is refused."""
        try:
            os.mkdir(name, mode, dir_fd=self.fd)
        except FileExistsError:
            if not exist_ok:
                raise
        return self.directory(name)

    def file(self, name: str, flags: int = READ, mode: int = 0o600) -> int:
        """The descriptor of a regular file in this directory."""
        fd = self._open(name, flags | os.O_NOFOLLOW | os.O_CLOEXEC, mode)
        if not stat.S_ISREG(os.fstat(fd).st_mode):
            os.close(fd)
            raise OSError(errno.EINVAL, "not a regular file", str(self.path / name))
        return self._same_device(fd, name)

    def status(self, name: str) -> os.stat_result:
        """What lies under a name, without opening or following it."""
        return os.stat(name, dir_fd=self.fd, follow_symlinks=False)

    def exists(self, name: str) -> bool:
        """Whether anything at all lies under a name, a link to nowhere included."""
        with suppress(FileNotFoundError):
            self.status(name)
            return True
        return False

    def sync(self) -> None:
        try:
            os.fsync(self.fd)
        except OSError as error:
            # Some file systems of media have no sync of directories.
            if error.errno != errno.EINVAL:
                told = f"sync of {self.path} failed: {error.strerror}"
                raise durable.SyncFailed(told) from error

    def close(self) -> None:
        os.close(self.fd)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        _kind: type[BaseException] | None,
        _error: BaseException | None,
        _traceback: TracebackType | None,
    ) -> None:
        self.close()

    def _open(self, name: str, flags: int, mode: int = 0) -> int:
        try:
            return os.open(name, flags, mode, dir_fd=self.fd)
        except OSError as error:
            told = _LINK if error.errno in LEADS_ELSEWHERE else error.strerror
            raise OSError(error.errno, told, str(self.path / name)) from error

    def _same_device(self, fd: int, name: str) -> int:
        if os.fstat(fd).st_dev == self._device:
            return fd
        os.close(fd)
        told = "on another device than the root of the medium"
        raise OSError(errno.EXDEV, told, str(self.path / name))
