"""ObjectStore and HeadStore on a directory: a file for each object, for one host or a medium.

``objects/`` holds the objects: a slash of a key is a directory, marked with a percent sign so
that ``a`` and ``a/b`` can both exist. ``heads/`` holds the heads, swapped under one lock, and
``staging/`` what is being written. Files are written atomically and durably.
"""

from __future__ import annotations

import errno
import os
import shutil
import sys
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from io import BufferedRandom
from pathlib import Path
from typing import BinaryIO, Final, cast

from veen.digest import h
from veen.objects.port import (
    PIECE,
    HeadMoved,
    ObjectBody,
    ObjectConflict,
    ObjectMissing,
    StoreHead,
    StoreRefused,
    StoreUnavailable,
    body_of_bytes,
    body_of_file,
    check_key,
    check_text,
    digest_of,
    is_key,
    is_same_body,
    verify_digest,
)
from veen.system.durable import DIR_MODE, sync, sync_directory
from veen.system.filelock import LockHeld, locked, locked_existing

OBJECT_MODE: Final = 0o400
_PERMANENT: Final = {
    errno.EACCES, errno.EPERM, errno.EROFS, errno.ENOTDIR, errno.EISDIR, errno.ELOOP,
    errno.EOPNOTSUPP,
}  # fmt: skip
DIRECTORY_MARK: Final = "%"


def make_object_directory(directory: Path, root: Path) -> None:
    """Create a directory below ``root`` durably, even if another process has just created it."""
    directory.mkdir(mode=DIR_MODE, parents=True, exist_ok=True)
    while directory != root:
        directory = directory.parent
        sync_directory(directory)


@contextmanager
def locked_to_read(path: Path) -> Iterator[bool]:
    """Lock ``path`` shared, without the right to write; False if no writer has created it."""
    with ExitStack() as stack:
        try:
            stack.enter_context(locked_existing(path, shared=True))
        except FileNotFoundError:
            is_locked = False
        else:
            is_locked = True
        yield is_locked


@contextmanager
def staged(folder: Path, body: ObjectBody) -> Iterator[Path]:
    """A synced temporary file with these bytes in ``folder``."""
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
    """A file in ``folder`` that replaces ``target`` atomically once it is synced."""
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
def disk_errors_translated(what: str) -> Iterator[None]:
    """Translate OSError to the errors of the port."""
    try:
        yield
    except OSError as error:
        refused = StoreRefused if error.errno in _PERMANENT else StoreUnavailable
        raise refused(f"{what}: {error.strerror or error}") from error


class StoreLayout:
    """The directories and locks of a store."""

    def __init__(self, root: Path) -> None:
        self.root = root.absolute()
        self.objects = self.root / "objects"
        self.heads = self.root / "heads"
        self.staging = self.root / "staging"
        self.staging_lock = self.root / "staging.lock"
        self.heads_lock = self.root / "heads.lock"

    def prepare(self) -> None:
        """Create missing directories, remove stale staging files, and probe hard links."""
        _verify_encoding()
        with disk_errors_translated(str(self.root)):
            for folder in (self.objects, self.heads, self.staging):
                make_object_directory(folder, self.root.parent)
            self._sweep()
            with self.staged(body_of_bytes(b"")) as file:
                self._probe_links(file)

    def verify_exists(self) -> None:
        """Raise StoreRefused unless the store exists, for readers, which create nothing."""
        _verify_encoding()
        if not self.objects.is_dir():
            raise StoreRefused(
                f"{self.root}: expected a readable store, found none; check the path and its "
                "permissions"
            )

    @contextmanager
    def staged(self, body: ObjectBody) -> Iterator[Path]:
        """A synced file with these bytes, protected from the sweep."""
        with (
            locked(self.staging_lock, shared=True),
            staged(self.staging, body) as file,
        ):
            yield file

    def _sweep(self) -> None:
        """Remove stale files, if no writer holds the shared lock."""
        try:
            with locked(self.staging_lock, busy=LockHeld()):
                for left in self.staging.iterdir():
                    left.unlink()
        except LockHeld:
            return

    def _probe_links(self, file: Path) -> None:
        try:
            os.link(file, file)
        except FileExistsError:
            return
        raise StoreRefused(
            f"{self.root}: the file system replaces existing files when it links; use another "
            "file system"
        )


def _verify_encoding() -> None:
    if sys.getfilesystemencoding() != "utf-8":
        raise StoreRefused(
            "expected a UTF-8 file system encoding; run with a UTF-8 locale or PYTHONUTF8=1"
        )


def path_of(folder: Path, key: str) -> Path:
    check_key(key)
    *directories, name = key.split("/")
    return folder.joinpath(*(part + DIRECTORY_MARK for part in directories), name)


class FileObjects:
    """An ObjectStore on a directory."""

    def __init__(self, layout: StoreLayout) -> None:
        self._layout = layout
        self._durable: set[Path] = set()

    def put(self, key: str, body: bytes) -> None:
        self._put(key, body_of_bytes(body))

    def put_file(self, key: str, source: Path) -> None:
        self._put(key, body_of_file(source))

    def get(self, key: str, *, expect: bytes | None = None) -> bytes:
        with self._opened(key) as file, disk_errors_translated(key):
            data = file.read()
        verify_digest(key, h(data), expect)
        return data

    def get_file(self, key: str, to: Path, *, expect: bytes | None = None) -> None:
        with self._opened(key) as file, replacing(to, to.parent) as target:
            shutil.copyfileobj(file, target, PIECE)
            if expect is not None:
                verify_digest(key, digest_of(target), expect)

    def get_range(self, key: str, start: int, size: int) -> bytes:
        if start < 0 or size < 0:
            raise ValueError(
                f"expected start and size of a range from 0 on, got {size} bytes from {start}"
            )
        with self._opened(key) as file, disk_errors_translated(key):
            file.seek(start)
            return file.read(min(size, os.fstat(file.fileno()).st_size))

    def size(self, key: str) -> int:
        with self._opened(key) as file:
            return os.fstat(file.fileno()).st_size

    def keys(self, prefix: str = "", *, start_after: str = "") -> Iterator[str]:
        check_text(prefix)
        check_text(start_after)
        with disk_errors_translated(prefix):
            yield from _walk(self._layout.objects, "", prefix, start_after)

    def _put(self, key: str, body: ObjectBody) -> None:
        path = path_of(self._layout.objects, key)
        with disk_errors_translated(key):
            if not self._holds(key, body):
                self._link(path, body, key)
            sync_directory(path.parent)

    def _link(self, path: Path, body: ObjectBody, key: str) -> None:
        self._make_directory(path.parent)
        with self._layout.staged(body) as file:
            try:
                # A link, unlike a rename, fails if the name exists.
                os.link(file, path)
            except FileExistsError:
                if not self._holds(key, body):
                    raise StoreUnavailable(f"{key} was deleted during the put; try again") from None

    def _holds(self, key: str, body: ObjectBody) -> bool:
        """Whether the object has these bytes; other bytes raise ObjectConflict."""
        try:
            with self._opened(key) as there, body.open() as ours:
                if not is_same_body(there, ours):
                    raise ObjectConflict(f"{key} exists with other bytes")
        except ObjectMissing:
            return False
        return True

    def _opened(self, key: str) -> BinaryIO:
        path = path_of(self._layout.objects, key)
        with disk_errors_translated(key):
            try:
                return os.fdopen(os.open(path, os.O_RDONLY | os.O_NOFOLLOW), "rb")
            except FileNotFoundError:
                raise ObjectMissing(f"no object {key}") from None

    def _make_directory(self, directory: Path) -> None:
        if directory not in self._durable:
            make_object_directory(directory, self._layout.objects)
            self._durable.add(directory)


class FileRetention:
    """Deletes objects of a directory."""

    def __init__(self, layout: StoreLayout) -> None:
        self._layout = layout

    def delete(self, key: str) -> None:
        path = path_of(self._layout.objects, key)
        with disk_errors_translated(key):
            try:
                path.unlink()
                sync_directory(path.parent)
            except FileNotFoundError:
                return


def _walk(folder: Path, base: str, prefix: str, after: str) -> Iterator[str]:
    """Keys in order: by code point, which is the order of their UTF-8 bytes. A directory sorts
    with its slash, as its keys do."""
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


class FileHeads:
    """A HeadStore on a directory."""

    def __init__(self, layout: StoreLayout) -> None:
        self._layout = layout

    def read(self, name: str) -> StoreHead:
        head, is_held = self._look(name)
        # Without a lock file there was no swap yet. A value then means that someone has swapped
        # meanwhile, or that the store is a copy without its lock files.
        return head if is_held or head.value is None else self._look(name)[0]

    def swap(self, old: StoreHead, value: bytes) -> StoreHead:
        path = self._path(old.name)
        with (
            disk_errors_translated(old.name),
            locked(self._layout.heads_lock),
            locked(self._layout.staging_lock, shared=True),
        ):
            if _read(path, old.name) != old:
                raise HeadMoved(f"head {old.name} was changed by another writer")
            make_object_directory(path.parent, self._layout.heads)
            with replacing(path, self._layout.staging) as file:
                file.write(value)
        return StoreHead(old.name, value, h(value).hex())

    def _look(self, name: str) -> tuple[StoreHead, bool]:
        """The head, read under the shared lock if it exists, to wait for a swap that is not
        synced yet."""
        with (
            disk_errors_translated(name),
            locked_to_read(self._layout.heads_lock) as is_held,
        ):
            return _read(self._path(name), name), is_held

    def _path(self, name: str) -> Path:
        return path_of(self._layout.heads, name)


def _read(path: Path, name: str) -> StoreHead:
    try:
        value = path.read_bytes()
    except FileNotFoundError:
        return StoreHead(name, None, "")
    return StoreHead(name, value, h(value).hex())
