"""HeadStore on a directory: a small file for each head, swapped under one lock."""

from __future__ import annotations

import fcntl
from pathlib import Path

from veen.digest import h
from veen.objects import disk
from veen.objects.files import Layout, path_of
from veen.objects.port import Head, HeadMoved


class FileHeads:
    def __init__(self, layout: Layout) -> None:
        self._layout = layout

    def read(self, name: str) -> Head:
        found, is_held = self._look(name)
        # Without a lock nobody had swapped yet. If there is a value all the same, someone has
        # meanwhile, or it is a copy of a store that came without its locks.
        return found if is_held or found.value is None else self._look(name)[0]

    def swap(self, old: Head, value: bytes) -> Head:
        path = self._path(old.name)
        with (
            disk.translated(old.name),
            disk.locked(self._layout.heads_lock, fcntl.LOCK_EX),
            disk.locked(self._layout.staging_lock, fcntl.LOCK_SH),
        ):
            if _read(path, old.name) != old:
                raise HeadMoved(f"head {old.name} has moved")
            disk.make_directory(path.parent, self._layout.heads)
            with disk.replacing(path, self._layout.staging) as file:
                file.write(value)
        return Head(old.name, value, h(value).hex())

    def _look(self, name: str) -> tuple[Head, bool]:
        """The head, read under the shared lock if there is one: a swap that is visible but not
        yet on disk is waited for."""
        with (
            disk.translated(name),
            disk.locked_to_read(self._layout.heads_lock) as is_held,
        ):
            return _read(self._path(name), name), is_held

    def _path(self, name: str) -> Path:
        return path_of(self._layout.heads, name)


def _read(path: Path, name: str) -> Head:
    try:
        value = path.read_bytes()
    except FileNotFoundError:
        return Head(name, None, "")
    return Head(name, value, h(value).hex())
