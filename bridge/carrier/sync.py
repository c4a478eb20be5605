"""Bringing what was written to a medium out of the memory of the machine."""

from __future__ import annotations

import ctypes
import errno
import os
from collections.abc import Callable, Iterable
from typing import Final

from bridge.carrier.directory import Directory
from veen import durable

_LIBC: Final = ctypes.CDLL(None, use_errno=True)


def sync_directories(directories: Iterable[Directory]) -> None:
    for directory in directories:
        directory.sync()


def sync_file_system(medium: Directory) -> None:
    """Write out all that the file system of a medium holds back, tables and other files, too.

    Every file and directory of ours was synced by itself before. So where the system has no such
    call nothing is lost; one that fails is as final as any other sync.
    """
    call: Callable[[int], int] | None = getattr(_LIBC, "syncfs", None)
    if call is None:
        return
    if call(medium.fd) != 0 and ctypes.get_errno() != errno.ENOSYS:
        told = os.strerror(ctypes.get_errno())
        raise durable.SyncFailed(f"sync of the file system of {medium.path} failed: {told}")
