"""Writing a bag to a medium that may fail at any byte: synced, read back, signed last (AGB0 4.9).

A directory without ``carrier.sig`` was not finished. Nothing on a medium is ever overwritten, and
no sync is tried again: after a failure the medium is to be replaced.
"""

from __future__ import annotations

import errno
import mmap
import os
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, closing
from pathlib import Path
from typing import BinaryIO, Final

from bridge.carrier.bag import DATA, SIGNATURE, TAGGED, TAGMANIFEST
from bridge.carrier.bag_path import FOLDER
from bridge.carrier.directory import LEADS_ELSEWHERE, READ, Directory
from bridge.carrier.sync import sync_directories, sync_file_system
from bridge.carrier.watch import Count
from veen import durable
from veen.client.progress import Progress, untold
from veen.digest import h_blocks, h_file
from veen.errors import VeenError

_BLOCK: Final = 1 << 20
_NEW: Final = os.O_WRONLY | os.O_CREAT | os.O_EXCL
_SPARE: Final = 1 << 20
"""What a file system takes for directories and tables, at least."""
_LARGEST_FILE: Final = {"vfat": (1 << 32) - 1, "msdos": (1 << 32) - 1}


class BadMedium(VeenError):
    """A medium that cannot be written, or does not hold what was written to it; ``offset`` is that
    of the first byte of a file that is another, where that is what is wrong.
    """

    def __init__(self, told: str, offset: int | None = None) -> None:
        super().__init__(told)
        self.offset = offset


def write_medium(bag: Path, medium: Path, progress: Progress = untold) -> Path:
    """Copy a staged bag to ``medium``; the directory it now lies in, safe to be carried away.

    ``progress`` hears of bytes, which are counted when they are written and when they are read.
    """
    verify_room([bag], medium)
    count = Count(2 * _size(bag), progress)
    with ExitStack() as closing:
        top = closing.enter_context(Directory.root(medium))
        folder = closing.enter_context(_folder(top))
        root = closing.enter_context(_new_directory(folder, bag.name))
        data = closing.enter_context(root.make(DATA))
        files = [(data, path) for path in _volumes(bag)]
        files += [(root, bag / name) for name in (*TAGGED, TAGMANIFEST)]
        places = (data, root, folder, top)
        for directory, path in files:
            _copy(path, directory, count)
        sync_directories(places)
        for directory, path in files:
            _read_back(path, directory, count)
        _copy(bag / SIGNATURE, root, count)
        sync_directories(places)
        sync_file_system(top)
        _read_back(bag / SIGNATURE, root, count)
        return root.path


def verify_written(bag: Path, root: Directory, progress: Progress = untold) -> None:
    """Refuse a directory of a medium that is not, byte for byte, the staged bag."""
    count = Count(_size(bag), progress)
    with root.directory(DATA) as data:
        for path in _volumes(bag):
            _read_back(path, data, count)
    for name in (*TAGGED, TAGMANIFEST, SIGNATURE):
        _read_back(bag / name, root, count)


def write_file(source: Path, directory: Directory, name: str) -> None:
    """Copy one file to a medium under another name, sync it and read it back."""
    count = Count(2 * source.stat().st_size)
    _copy(source, directory, count, name)
    sync_directories((directory,))
    _read_back(source, directory, count, name)


def read_small(directory: Directory, name: str, most: int) -> bytes:
    """The first bytes of a file of a medium, at most so many."""
    with os.fdopen(directory.file(name), "rb") as file:
        return file.read(most)


def _volumes(bag: Path) -> list[Path]:
    return sorted((bag / DATA).iterdir())


def _size(bag: Path) -> int:
    return sum(one.stat().st_size for one in bag.rglob("*") if one.is_file())


def verify_room(bags: Sequence[Path], medium: Path) -> None:
    """Refuse a medium that cannot take all of these bags, before a byte is written to it."""
    sizes = [one.stat().st_size for bag in bags for one in bag.rglob("*") if one.is_file()]
    if not sizes:
        return
    found = os.statvfs(medium)
    if found.f_flag & os.ST_RDONLY:
        raise BadMedium(f"{medium} is read-only; unlock it, or take another one")
    free, needed = found.f_bavail * found.f_frsize, sum(sizes) + len(bags) * _SPARE
    if free < needed:
        raise BadMedium(
            f"{medium} has {free} bytes free, {needed} are needed; take another one, or several "
            "with --medium for each"
        )
    largest = _LARGEST_FILE.get(_file_system(medium))
    if largest is not None and max(sizes) > largest:
        raise BadMedium(
            f"{medium} takes files of {largest} bytes at most, a volume has {max(sizes)}; set "
            '[export] medium = "fat32"'
        )


def _file_system(medium: Path) -> str:
    """What the kernel calls the file system that a medium is mounted with; empty if unknown."""
    device = medium.stat().st_dev
    number = f"{os.major(device)}:{os.minor(device)}".encode()
    # Mount points are bytes: a volume's label can be in them, with any line end of Unicode.
    for line in Path("/proc/self/mountinfo").read_bytes().strip(b"\n").split(b"\n"):
        place, _, kind = line.partition(b" - ")
        if place.split(b" ")[2] == number:
            return kind.split(b" ")[0].decode("ascii", "replace")
    return ""


def _folder(top: Directory) -> Directory:
    try:
        return top.make(FOLDER, exist_ok=True)
    except OSError as error:
        if error.errno not in LEADS_ELSEWHERE:
            raise
        raise BadMedium(
            f"{top.path / FOLDER}: expected a directory of the medium itself, got a link, a file "
            f"or another device ({error.strerror}); take another medium"
        ) from error


def _new_directory(folder: Directory, name: str) -> Directory:
    try:
        return folder.make(name)
    except FileExistsError:
        raise BadMedium(
            f"{folder.path / name} exists; verify it if it is whole, take another medium if it is "
            "not"
        ) from None


def _copy(source: Path, directory: Directory, count: Count, name: str = "") -> None:
    with source.open("rb") as file:
        handle = directory.file(name or source.name, _NEW, 0o644)
        try:
            at = 0
            while block := file.read(_BLOCK):
                durable.write_at(handle, block, at)
                at += len(block)
                count.add(len(block))
            durable.sync(handle)
            os.posix_fadvise(handle, 0, 0, os.POSIX_FADV_DONTNEED)
        finally:
            os.close(handle)


def _read_back(source: Path, directory: Directory, count: Count, name: str = "") -> None:
    """Refuse a file whose bytes, read from the medium itself where it lets us, are not ours."""
    name = name or source.name
    target = directory.path / name
    with source.open("rb") as file:
        due = h_file(file)
    try:
        found = h_blocks(count.through(_from_medium(directory, name)))
    except OSError as error:
        raise BadMedium(
            f"{target} cannot be read back: {error.strerror}; take another medium"
        ) from error
    if found != due:
        at = _first_difference(source, directory, name)
        raise BadMedium(
            f"{target} does not read back as it was written, from byte {at} on; "
            "take another medium",
            at,
        )


def _first_difference(source: Path, directory: Directory, name: str) -> int:
    at = 0
    with source.open("rb") as file:
        for found in _from_medium(directory, name):
            due = file.read(len(found))
            if found != due:
                pairs = enumerate(zip(found, due, strict=False))
                return at + next((number for number, (a, b) in pairs if a != b), len(due))
            at += len(found)
    return at


def _from_medium(directory: Directory, name: str) -> Iterator[bytes]:
    """The blocks of a file, past the page cache; a file system that cannot do that is asked to
    drop its pages, which `_copy` did.
    """
    try:
        handle = directory.file(name, READ | os.O_DIRECT)
    except OSError as error:
        if error.errno != errno.EINVAL:
            raise
        handle = directory.file(name)
    with os.fdopen(handle, "rb", buffering=0) as file, closing(mmap.mmap(-1, _BLOCK)) as aligned:
        yield from _blocks(file, aligned)


def _blocks(file: BinaryIO, aligned: mmap.mmap) -> Iterator[bytes]:
    at, size = 0, _BLOCK
    # A block that is not full is the last; beyond it no aligned offset is left to read from.
    while size == _BLOCK:
        size = os.preadv(file.fileno(), [aligned], at)
        yield aligned[:size]
        at += size
