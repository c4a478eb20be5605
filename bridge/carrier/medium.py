"""Writing a bag to a medium that may fail at any byte: synced, read back, signed last (AGB0 4.9).

A directory without ``carrier.sig`` was not finished. Nothing on a medium is ever overwritten, and
no sync is tried again: after a failure the medium is to be replaced.

Bringing what was written to a medium out of the memory of the machine.

The bags that lie in given directories, put together by the carrier they are parts of.

The standalone verifier on every medium: one file that checks carriers where nothing of this
program is installed. Its name has its hash; docs/bridge-format.md has it too.
"""

from __future__ import annotations

import ctypes
import errno
import mmap
import os
import stat
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, closing, suppress
from itertools import islice
from pathlib import Path
from typing import BinaryIO, Final

from bridge.carrier.bag import DATA, SIGNATURE, TAGGED, TAGMANIFEST, Bag
from bridge.carrier.directory import FOLDER, LEADS_ELSEWHERE, READ, BagPath, Directory
from bridge.errors import CarrierFault, Refused
from veen.digest import h, h_blocks, h_file
from veen.errors import VeenError
from veen.system import durable
from veen.system.environment import Count, Progress, no_progress

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
        detail = os.strerror(ctypes.get_errno())
        raise durable.SyncFailed(f"sync of the file system of {medium.path} failed: {detail}")


_BLOCK: Final = 1 << 20
_NEW: Final = os.O_WRONLY | os.O_CREAT | os.O_EXCL
_SPARE: Final = 1 << 20
"""What a file system takes for directories and tables, at least."""
_LARGEST_FILE: Final = {"vfat": (1 << 32) - 1, "msdos": (1 << 32) - 1}


class BadMedium(VeenError):
    """A medium that cannot be written, or does not hold what was written to it; ``offset`` is that
    of the first byte of a file that is another, where that is what is wrong.
    """

    def __init__(self, detail: str, offset: int | None = None) -> None:
        super().__init__(detail)
        self.offset = offset


def write_medium(bag: Path, medium: Path, progress: Progress = no_progress) -> Path:
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


def verify_written(bag: Path, root: Directory, progress: Progress = no_progress) -> None:
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
    return sum(path.stat().st_size for path in bag.rglob("*") if path.is_file())


def verify_room(bags: Sequence[Path], medium: Path) -> None:
    """Refuse a medium that cannot take all of these bags, before a byte is written to it."""
    sizes = [path.stat().st_size for bag in bags for path in bag.rglob("*") if path.is_file()]
    if not sizes:
        return
    result = os.statvfs(medium)
    if result.f_flag & os.ST_RDONLY:
        raise BadMedium(f"{medium} is read-only; unlock it, or take another one")
    free, needed = result.f_bavail * result.f_frsize, sum(sizes) + len(bags) * _SPARE
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
        result = h_blocks(count.through(_from_medium(directory, name)))
    except OSError as error:
        raise BadMedium(
            f"{target} cannot be read back: {error.strerror}; take another medium"
        ) from error
    if result != due:
        at = _first_difference(source, directory, name)
        raise BadMedium(
            f"{target} does not read back as it was written, from byte {at} on; "
            "take another medium",
            at,
        )


def _first_difference(source: Path, directory: Directory, name: str) -> int:
    at = 0
    with source.open("rb") as file:
        for result in _from_medium(directory, name):
            due = file.read(len(result))
            if result != due:
                pairs = enumerate(zip(result, due, strict=False))
                return at + next((number for number, (a, b) in pairs if a != b), len(due))
            at += len(result)
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


MOST_ON_MEDIUM: Final = 100_000
"""Entries beside each other on a medium, and so bags; a hundred times what one bag may hold."""


class NoBags(VeenError):
    """Directories in which no carrier lies."""


def carriers(given: Sequence[Path]) -> list[tuple[BagPath, ...]]:
    """The bags of each carrier, by name. A directory is a bag, or a medium with bags on it.

    What is no readable bag stands alone, to be refused by whoever checks it.
    """
    result: dict[bytes, list[BagPath]] = {}
    for bag in sorted({bag for path in given for bag in _bags(path)}):
        result.setdefault(_key(bag), []).append(bag)
    if not result:
        raise NoBags(f"no carrier lies in {given[0]}; name a bag, or the root of a medium")
    return [tuple(bags) for bags in result.values()]


def listed(directory: Directory) -> list[str]:
    """The names in a directory of a medium; more of them than any exporter writes is Refused."""
    with os.scandir(directory.fd) as entries:
        names = [entry.name for entry in islice(entries, MOST_ON_MEDIUM + 1)]
    if len(names) > MOST_ON_MEDIUM:
        detail = f"{directory.path.name}: more than {MOST_ON_MEDIUM} entries"
        raise Refused(CarrierFault.MEDIUM, detail)
    return names


def is_bag(directory: Directory, name: str) -> bool:
    """Whether an entry is to be judged as a bag: a directory, and what is refused as one: a link,
    and an entry that cannot be looked at.
    """
    try:
        kind = stat.S_IFMT(directory.status(name).st_mode)
    except OSError:
        return True
    return kind in (stat.S_IFDIR, stat.S_IFLNK)


def _bags(path: Path) -> Iterator[BagPath]:
    """The bags in the folder of a medium; else the directory itself is one.

    A folder that is a link, or on another device, is passed on as a bag: it is refused as such.
    """
    if path.name == FOLDER:
        path = path.parent
    try:
        with Directory.root(path) as root:
            has_folder = root.exists(FOLDER)
    except OSError:
        has_folder = False
    if not has_folder:
        yield BagPath.of(path)
        return
    folder = BagPath(path, (FOLDER,))
    try:
        with folder.open() as directory:
            names = [name for name in listed(directory) if is_bag(directory, name)]
    except OSError:
        yield folder
        return
    yield from (BagPath(path, (FOLDER, name)) for name in names)


def _key(bag: BagPath) -> bytes:
    try:
        result = Bag(bag)
    except Refused:
        return os.fsencode(bag.path)
    result.close()
    return h(result.carrier.encode())


SOURCE: Final = Path(__file__).parents[1] / "standalone_verifier.py"
_NAME_DIGITS: Final = 16


def verifier_name() -> str:
    return f"agb0-verifier-{h(SOURCE.read_bytes()).hex()[:_NAME_DIGITS]}.py"


def has_verifier(medium: Path) -> bool:
    """Whether it lies there; other bytes under its name are refused: people would run them."""
    raw, name = SOURCE.read_bytes(), verifier_name()
    with Directory.root(medium) as root:
        if not root.exists(name):
            return False
        if read_small(root, name, len(raw) + 1) != raw:
            raise BadMedium(
                f"{medium / name}: expected the verifier whose hash is in its name, got other "
                "bytes; do not run it, and take another medium"
            )
        return True


def put_verifier(medium: Path) -> None:
    """Write the verifier to the root of a medium, whole or not at all."""
    if has_verifier(medium):
        return
    name = verifier_name()
    with Directory.root(medium) as root:
        partial = f"{name}.part"
        with suppress(FileNotFoundError):
            os.unlink(partial, dir_fd=root.fd)
        write_file(SOURCE, root, partial)
        os.rename(partial, name, src_dir_fd=root.fd, dst_dir_fd=root.fd)
        root.sync()
