"""What a power cut may take: writes that nobody has synced, and names in folders that nobody has.

The process that is about to die knows what it has not synced, and takes it away itself: written
bytes are dropped or torn at a sector, new names vanish, moves have not happened. Databases are left
as they are: SQLite syncs what it commits. What was removed stays removed.
"""
# ruff: noqa: PTH108, PTH112, PTH113, PTH115, PTH118, PTH120 - what is watched goes by its own name

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from typing import Any

_SECTOR = 512
_CALLS = ("open", "write", "pwrite", "fsync", "fdatasync", "mkdir", "rename")


class Losses:
    """Of everything below a folder."""

    def __init__(self, root: str) -> None:
        self._root = root + os.sep
        self._written: dict[str, tuple[int, int]] = {}
        self._fresh: list[str] = []
        self._moved: list[tuple[str, str]] = []
        self._real: dict[str, Callable[..., Any]] = {name: getattr(os, name) for name in _CALLS}

    def install(self, put: Callable[[Any, str, Any], None] = setattr) -> None:
        for name in _CALLS:
            put(os, name, self._around(name, getattr(self, f"_{name}")))

    def lose(self, how: str) -> None:
        for path, (start, size) in self._written.items():
            if os.path.isfile(path):
                stored = size // 2 // _SECTOR * _SECTOR if how == "torn" else 0
                os.truncate(path, start + stored)
        for path in reversed(self._fresh):
            if os.path.isdir(path):
                shutil.rmtree(path)
            elif os.path.lexists(path):
                os.unlink(path)
        for old, new in reversed(self._moved):
            if os.path.lexists(new) and not os.path.lexists(old):
                self._real["rename"](new, old)

    def _around(self, name: str, note: Callable[..., None]) -> Callable[..., Any]:
        called = self._real[name]

        def call(*args: Any, **more: Any) -> Any:
            if more.get("dir_fd") is not None:
                folder = os.readlink(f"/proc/self/fd/{more['dir_fd']}")
                named = (os.path.join(folder, os.fspath(args[0])), *args[1:])
            else:
                named = args
            is_new = name == "open" and not os.path.lexists(os.fspath(named[0]))
            result = called(*args, **more)
            note(result, is_new, *named)
            return result

        return call

    def _path(self, fd: int) -> str | None:
        result = os.readlink(f"/proc/self/fd/{fd}")
        is_ours = f"{result}{os.sep}".startswith(self._root)
        return result if is_ours and ".db" not in result and ".sqlite" not in result else None

    def _open(self, fd: int, is_new: bool, _path: Any, flags: int, *_: Any) -> None:
        path = self._path(fd)
        if path is not None and is_new and flags & os.O_CREAT:
            self._fresh.append(path)
            self._written[path] = (0, 0)

    def _write(self, _size: int, _is_new: bool, fd: int, data: bytes) -> None:
        path = self._path(fd)
        if path is not None:
            self._grown(path, os.fstat(fd).st_size - len(data), len(data))

    def _pwrite(self, _size: int, _is_new: bool, fd: int, data: bytes, at: int) -> None:
        path = self._path(fd)
        if path is not None:
            self._grown(path, at, len(data))

    def _grown(self, path: str, at: int, size: int) -> None:
        start, before = self._written.get(path, (at, 0))
        self._written[path] = (min(start, at), before + size)

    def _fsync(self, _before: None, _is_new: bool, fd: int) -> None:
        path = self._path(fd)
        if path is None:
            return
        self._written.pop(path, None)
        self._fresh = [item for item in self._fresh if os.path.dirname(item) != path]
        self._moved = [item for item in self._moved if os.path.dirname(item[1]) != path]

    _fdatasync = _fsync

    def _mkdir(self, _before: None, _is_new: bool, path: Any, *_: Any) -> None:
        if os.fspath(path).startswith(self._root):
            self._fresh.append(os.fspath(path))

    def _rename(self, _before: None, _is_new: bool, old: Any, new: Any) -> None:
        before, after = os.fspath(old), os.fspath(new)
        if not before.startswith(self._root):
            return
        # What was not on disk under its old name is not under the new one either.
        self._written = {_under(before, after, key): value for key, value in self._written.items()}
        self._fresh = [_under(before, after, item) for item in self._fresh]
        if after not in self._fresh:
            self._moved.append((before, after))


def _under(old: str, new: str, path: str) -> str:
    is_inside = path == old or path.startswith(old + os.sep)
    return new + path[len(old) :] if is_inside else path
