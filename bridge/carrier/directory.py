"""Directories and bags of an untrusted medium, opened relative to a descriptor, never by path.

A symbolic link, or a directory or file on another device than the root of the medium, would lead
out of it; both are an OSError (ENOTDIR or ELOOP, and EXDEV). A name on a medium may be any bytes:
a name that is not plain ASCII of moderate length is replaced by the hash of its bytes wherever it
is shown, stored or passed on, and ``BagPath.of`` resolves the hash to the name again.
"""

from __future__ import annotations

import errno
import os
import re
import stat
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Final, Self

from bridge.errors import printable
from veen.digest import h
from veen.system import durable

READ: Final = os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK
_DIRECTORY: Final = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC | os.O_NONBLOCK
LEADS_ELSEWHERE: Final = (errno.ELOOP, errno.ENOTDIR, errno.EXDEV)
"""Errors of a name that leads out of a medium, or is of an unexpected kind."""
_LINK: Final = "a symbolic link, or not of the expected kind"
FOLDER: Final = "agb0"
"""The directory on a medium that holds its bags."""
_PLAIN: Final = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._+=@-]{0,127}")
_HASHED: Final = re.compile(r"carrier-[0-9a-f]{64}")
_SHOWN: Final = 60


class Directory:
    """An open directory; ``path`` is for messages only. Close it, or use it in ``with``."""

    def __init__(self, fd: int, path: Path, device: int) -> None:
        self.fd = fd
        self.path = path
        self._device = device

    @classmethod
    def root(cls, path: Path, *, follow: bool = True) -> Directory:
        """The root of a medium. Its path is given by the operator, and may be a link unless
        ``follow`` is false; entries below it are never followed.
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
        """The status of an entry, without opening or following it."""
        return os.stat(name, dir_fd=self.fd, follow_symlinks=False)

    def exists(self, name: str) -> bool:
        """Whether an entry exists, including a dangling link."""
        with suppress(FileNotFoundError):
            self.status(name)
            return True
        return False

    def sync(self) -> None:
        try:
            os.fsync(self.fd)
        except OSError as error:
            # Some file systems of media do not support sync of directories.
            if error.errno != errno.EINVAL:
                detail = f"sync of {self.path} failed: {error.strerror}"
                raise durable.SyncFailed(detail) from error

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
            detail = _LINK if error.errno in LEADS_ELSEWHERE else error.strerror
            raise OSError(error.errno, detail, str(self.path / name)) from error

    def _same_device(self, fd: int, name: str) -> int:
        if os.fstat(fd).st_dev == self._device:
            return fd
        os.close(fd)
        detail = "on another device than the root of the medium"
        raise OSError(errno.EXDEV, detail, str(self.path / name))


def carrier_name(name: str) -> str:
    """The name itself if it is plain, else ``carrier-`` and the SHA-256 of its bytes."""
    return name if _PLAIN.fullmatch(name) else f"carrier-{h(os.fsencode(name)).hex()}"


def name_in_text(name: str) -> str:
    """A name for a message: plain, or its hash with the escaped beginning of it."""
    plain = carrier_name(name)
    return plain if plain == name else f"{plain} ({printable(name, _SHOWN)})"


@dataclass(frozen=True, slots=True, order=True)
class BagPath:
    """The path of a bag. ``root`` is given by the operator and trusted; ``parts`` are opened one by
    one below it.
    """

    root: Path
    parts: tuple[str, ...] = ()

    @classmethod
    def of(cls, path: Path) -> BagPath:
        """The bag at a path; a hash in place of its name is resolved.

        The medium of a bag in a directory ``agb0``, and of ``agb0`` itself, is the directory above.
        """
        name = _resolved(path)
        if path.parent.name == FOLDER:
            return cls(path.parent.parent, (FOLDER, name))
        if path.name == FOLDER:
            return cls(path.parent, (FOLDER,))
        return cls(path.with_name(name)) if path.name else cls(path)

    @property
    def name(self) -> str:
        return self.parts[-1] if self.parts else self.root.name

    @property
    def path(self) -> Path:
        return self.root.joinpath(*self.parts)

    def __str__(self) -> str:
        """The path with a plain name, which ``of`` resolves again."""
        path = self.path
        is_shown = not self.parts and printable(path.name) == path.name
        return str(path if is_shown else path.with_name(carrier_name(path.name)))

    def open(self) -> Directory:
        """Open the directory of the bag; OSError if a link or another device is on the way."""
        root = Directory.root(self.root, follow=bool(self.parts))
        for part in self.parts:
            with root:
                below = root.directory(part)
            root = below
        return root


def _resolved(path: Path) -> str:
    """The name of the entry that a path stands for; an entry with exactly this name takes
    priority.
    """
    if not _HASHED.fullmatch(path.name) or os.path.lexists(path) or not path.parent.is_dir():
        return path.name
    with os.scandir(path.parent) as entries:
        names = (entry.name for entry in entries if carrier_name(entry.name) == path.name)
        return next(names, path.name)
