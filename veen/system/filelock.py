"""File locks (flock) between processes, and between threads that open the file each for itself.

A lock is on the open file: it is released when the file is closed, so also when the process ends,
however it ends. A lock file is never removed, since two processes could then each lock their own.
"""

from __future__ import annotations

import fcntl
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from veen.errors import VeenError
from veen.system import durable

_POLL_SEC: Final = 0.1
_HOLDER_BYTES: Final = 4096


class LockHeld(VeenError):
    """Another process or thread holds the lock; ``holder`` is what the lock file says about it."""

    def __init__(self, holder: str = "") -> None:
        super().__init__(f"the lock is held by {holder or 'another process'}")
        self.holder = holder


@dataclass(frozen=True, slots=True)
class LockWait:
    """How long to wait for a lock that is held; 0 seconds: not at all."""

    seconds: float
    sleep: Callable[[float], None]


@contextmanager
def locked(path: Path, *, shared: bool = False, busy: VeenError | None = None) -> Iterator[int]:
    """Hold the lock of ``path``, which is created if it is missing; its file descriptor.

    With ``busy`` it does not wait: that error is raised if the lock is held.
    """
    handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, durable.FILE_MODE)
    try:
        try:
            acquire(handle, shared=shared, blocking=busy is None)
        except LockHeld as error:
            raise busy or error from None
        yield handle
    finally:
        os.close(handle)


@contextmanager
def locked_existing(path: Path, *, shared: bool = False) -> Iterator[int]:
    """Hold the lock of an existing file or directory, which is opened read-only."""
    handle = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        acquire(handle, shared=shared)
        yield handle
    finally:
        os.close(handle)


def is_locked(path: Path) -> bool:
    """Whether a process holds the lock of ``path``; False if there is no such file."""
    try:
        handle = os.open(path, os.O_RDWR | os.O_CLOEXEC)
    except FileNotFoundError:
        return False
    try:
        acquire(handle, blocking=False)
    except LockHeld:
        return True
    finally:
        os.close(handle)
    return False


def acquire(handle: int, *, shared: bool = False, blocking: bool = True) -> None:
    """Lock an open file until it is closed; LockHeld if that would block and must not."""
    operation = fcntl.LOCK_SH if shared else fcntl.LOCK_EX
    try:
        fcntl.flock(handle, operation if blocking else operation | fcntl.LOCK_NB)
    except BlockingIOError:
        raise LockHeld from None


class HolderLock:
    """An exclusive lock on an open file that names its holder.

    ``last_holder`` is the text of the last holder that did not release the lock, or empty.
    """

    def __init__(self, handle: int, wait: LockWait | None = None) -> None:
        self._handle = handle
        try:
            self._acquire(wait)
            self.last_holder = self._holder()
        except BaseException:
            os.close(handle)
            raise

    def write_holder(self, text: str) -> None:
        """Name the new holder; if that fails, the lock is released."""
        try:
            os.ftruncate(self._handle, 0)
            durable.write_at(self._handle, text.encode(), 0)
        except BaseException:
            os.close(self._handle)
            raise

    def release(self) -> None:
        """Remove the holder's text and release the lock."""
        try:
            os.ftruncate(self._handle, 0)
        finally:
            os.close(self._handle)

    def abandon(self) -> None:
        """Release the lock and leave the text of its last holder."""
        os.close(self._handle)

    def _acquire(self, wait: LockWait | None) -> None:
        waited = 0.0
        while True:
            try:
                acquire(self._handle, blocking=False)
            except LockHeld:
                if wait is None or waited >= wait.seconds:
                    raise LockHeld(self._holder()) from None
                wait.sleep(_POLL_SEC)
                waited += _POLL_SEC
            else:
                return

    def _holder(self) -> str:
        return os.pread(self._handle, _HOLDER_BYTES, 0).decode(errors="replace")
