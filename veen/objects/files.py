"""ObjectStore on a directory: one file for each object, for one host or a medium.

``objects/`` holds the objects: a slash of a key is a directory, marked with a percent sign so
that ``a`` and ``a/b`` can both be there. ``heads/`` holds the heads, ``staging/`` what is still
being written.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO, Final

from veen.digest import h
from veen.durable import sync_directory
from veen.objects import body as bodies
from veen.objects import disk
from veen.objects.body import Body
from veen.objects.key import check_key, check_text, is_key
from veen.objects.port import ObjectConflict, ObjectMissing, StoreRefused, StoreUnavailable

DIRECTORY_MARK: Final = "%"


class Layout:
    """Where everything of one store lies."""

    def __init__(self, root: Path) -> None:
        self.root = root.absolute()
        self.objects = self.root / "objects"
        self.heads = self.root / "heads"
        self.staging = self.root / "staging"
        self.staging_lock = self.root / "staging.lock"
        self.heads_lock = self.root / "heads.lock"

    def prepare(self) -> None:
        """Make what is missing, drop what a killed writer left, and see that links work."""
        _refuse_other_names()
        with disk.translated(str(self.root)):
            for folder in (self.objects, self.heads, self.staging):
                disk.make_directory(folder, self.root.parent)
            self._sweep()
            with self.staged(bodies.of_bytes(b"")) as file:
                self._see_that_links_work(file)

    def refuse_unless_there(self) -> None:
        """For whoever only reads: nothing is made here."""
        _refuse_other_names()
        if not self.objects.is_dir():
            raise StoreRefused(f"{self.root} holds no store, or none that we may read")

    @contextmanager
    def staged(self, body: Body) -> Iterator[Path]:
        """A synced file with these bytes that nobody sweeps away."""
        with (
            disk.locked(self.staging_lock, fcntl.LOCK_SH),
            disk.staged(self.staging, body) as file,
        ):
            yield file

    def _sweep(self) -> None:
        """Every writer holds the lock shared; who gets it alone knows that nobody writes."""
        try:
            with disk.locked(self.staging_lock, fcntl.LOCK_EX | fcntl.LOCK_NB):
                for left in self.staging.iterdir():
                    left.unlink()
        except BlockingIOError:
            return

    def _see_that_links_work(self, file: Path) -> None:
        try:
            os.link(file, file)
        except FileExistsError:
            return
        raise StoreRefused(f"{self.root}: the file system links over what is there")


def _refuse_other_names() -> None:
    if sys.getfilesystemencoding() != "utf-8":
        raise StoreRefused("keys are UTF-8; run with a UTF-8 locale or PYTHONUTF8=1")


def path_of(folder: Path, key: str) -> Path:
    check_key(key)
    *directories, name = key.split("/")
    return folder.joinpath(*(part + DIRECTORY_MARK for part in directories), name)


class FileObjects:
    def __init__(self, layout: Layout) -> None:
        self._layout = layout
        self._durable: set[Path] = set()

    def put(self, key: str, body: bytes) -> None:
        self._put(key, bodies.of_bytes(body))

    def put_file(self, key: str, source: Path) -> None:
        self._put(key, bodies.of_file(source))

    def get(self, key: str, *, expect: bytes | None = None) -> bytes:
        with self._opened(key) as file, disk.translated(key):
            data = file.read()
        bodies.verify_digest(key, h(data), expect)
        return data

    def get_file(self, key: str, to: Path, *, expect: bytes | None = None) -> None:
        with self._opened(key) as file, disk.replacing(to, to.parent) as target:
            shutil.copyfileobj(file, target, bodies.PIECE)
            if expect is not None:
                bodies.verify_digest(key, bodies.digest_of(target), expect)

    def get_range(self, key: str, start: int, size: int) -> bytes:
        if start < 0 or size < 0:
            raise ValueError(f"a range of {size} bytes from {start}")
        with self._opened(key) as file, disk.translated(key):
            file.seek(start)
            return file.read(min(size, os.fstat(file.fileno()).st_size))

    def size(self, key: str) -> int:
        with self._opened(key) as file:
            return os.fstat(file.fileno()).st_size

    def keys(self, prefix: str = "", *, start_after: str = "") -> Iterator[str]:
        check_text(prefix)
        check_text(start_after)
        with disk.translated(prefix):
            yield from _walk(self._layout.objects, "", prefix, start_after)

    def _put(self, key: str, body: Body) -> None:
        path = path_of(self._layout.objects, key)
        with disk.translated(key):
            if not self._holds(key, body):
                self._link(path, body, key)
            sync_directory(path.parent)

    def _link(self, path: Path, body: Body, key: str) -> None:
        self._make_directory(path.parent)
        with self._layout.staged(body) as file:
            try:
                # A link, unlike a rename, fails when the name is taken.
                os.link(file, path)
            except FileExistsError:
                if not self._holds(key, body):
                    raise StoreUnavailable(f"{key} was deleted while it was put") from None

    def _holds(self, key: str, body: Body) -> bool:
        """Whether these bytes are there; other bytes are a conflict."""
        try:
            with self._opened(key) as there, body.open() as ours:
                if not bodies.is_same(there, ours):
                    raise ObjectConflict(f"{key} holds other bytes")
        except ObjectMissing:
            return False
        return True

    def _opened(self, key: str) -> BinaryIO:
        path = path_of(self._layout.objects, key)
        with disk.translated(key):
            try:
                return os.fdopen(os.open(path, os.O_RDONLY | os.O_NOFOLLOW), "rb")
            except FileNotFoundError:
                raise ObjectMissing(f"no object {key}") from None

    def _make_directory(self, directory: Path) -> None:
        if directory not in self._durable:
            disk.make_directory(directory, self._layout.objects)
            self._durable.add(directory)


class FileRetention:
    def __init__(self, layout: Layout) -> None:
        self._layout = layout

    def delete(self, key: str) -> None:
        path = path_of(self._layout.objects, key)
        with disk.translated(key):
            try:
                path.unlink()
                sync_directory(path.parent)
            except FileNotFoundError:
                return


def _walk(folder: Path, base: str, prefix: str, after: str) -> Iterator[str]:
    """Keys in order. Strings compare by code point, which is the order of their UTF-8 bytes; a
    directory sorts with its slash, as its keys do."""
    for name in sorted(_names(folder, base)):
        if not name.endswith("/"):
            if name.startswith(prefix) and name > after and is_key(name):
                yield name
        elif _may_hold(name, prefix, after):
            directory = name.removeprefix(base).removesuffix("/") + DIRECTORY_MARK
            yield from _walk(folder / directory, name, prefix, after)


def _names(folder: Path, base: str) -> Iterator[str]:
    with os.scandir(folder) as entries:
        for entry in entries:
            if entry.is_file(follow_symlinks=False):
                yield base + entry.name
            elif entry.is_dir(follow_symlinks=False) and entry.name.endswith(DIRECTORY_MARK):
                yield base + entry.name.removesuffix(DIRECTORY_MARK) + "/"


def _may_hold(directory: str, prefix: str, after: str) -> bool:
    is_below = directory.startswith(prefix) or prefix.startswith(directory)
    return is_below and (directory > after or after.startswith(directory))
