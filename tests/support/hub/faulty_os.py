"""The file operations of a process, counted, and one of them made to fail on purpose."""

from __future__ import annotations

import errno
import os
import signal
from collections.abc import Callable
from typing import Any

OPERATIONS: tuple[str, ...] = (
    "open",
    "pwrite",
    "fdatasync",
    "fsync",
    "rename",
    "ftruncate",
    "unlink",
    "mkdir",
)


class FaultyOs:
    """Wraps the operations of ``os``. Fault number ``at`` (from 1) happens, once or from then on.

    Kinds: ``kill`` (the process dies before the operation), ``killed-after`` (just after it),
    ``eio``, ``enospc`` (from then on, until ``heal``), ``short`` (half a write, then death).
    """

    def __init__(self, kind: str, at: int) -> None:
        self.count = 0
        self.log: list[str] = []
        self._kind = kind
        self._at = at
        self._full = False

    def install(self) -> None:
        for name in OPERATIONS:
            setattr(os, name, self._wrap(name, getattr(os, name)))

    def heal(self) -> None:
        self._full = False

    def _wrap(self, name: str, real: Callable[..., Any]) -> Callable[..., Any]:
        def operation(*arguments: Any, **options: Any) -> Any:
            if name == "open" and not arguments[1] & (os.O_WRONLY | os.O_RDWR):
                return real(*arguments, **options)
            self.count += 1
            self.log.append(name)
            if self._full and name == "pwrite":
                raise OSError(errno.ENOSPC, "No space left on device")
            if self.count != self._at:
                return real(*arguments, **options)
            return self._fault(name, real, arguments, options)

        return operation

    def _fault(
        self, name: str, real: Callable[..., Any], arguments: tuple[Any, ...], options: Any
    ) -> Any:
        if self._kind == "kill":
            _die()
        if self._kind == "eio":
            raise OSError(errno.EIO, "Input/output error")
        if self._kind == "enospc":
            self._full = True
            if name == "pwrite":
                raise OSError(errno.ENOSPC, "No space left on device")
            return real(*arguments, **options)
        if self._kind == "short" and name == "pwrite":
            fd, data, at = arguments
            real(fd, data[: len(data) // 2], at)
            _die()
        result = real(*arguments, **options)
        if self._kind in ("killed-after", "short"):
            _die()
        return result


def _die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)
