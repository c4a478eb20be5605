"""Reading and writing media that may fail at any byte: synced, read back, signed last (AGB0 4.9).

A bag without ``carrier.sig`` was not finished. Nothing on a medium is ever overwritten, and a
failed sync is never retried: the medium has to be replaced. Every medium also gets the standalone
verifier, a single file that checks carriers where this program is not installed; its name contains
its hash, which docs/bridge-format.md lists.
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
from bridge.errors import CarrierFault, CarrierRefused
from veen.digest import h, h_blocks, h_file
from veen.errors import VeenError
from veen.system import durable
from veen.system.environment import Progress, ProgressCounter, no_progress

_BLOCK: Final = 1 << 20
_NEW: Final = os.O_WRONLY | os.O_CREAT | os.O_EXCL
_SPARE: Final = 1 << 20
"""Space for directories and tables of a file system."""
_LARGEST_FILE: Final = {"vfat": (1 << 32) - 1, "msdos": (1 << 32) - 1}
MOST_ON_MEDIUM: Final = 100_000
"""The maximum number of entries, and so of bags, on a medium."""
SOURCE: Final = Path(__file__).parents[1] / "standalone_verifier.py"
_NAME_DIGITS: Final = 16


def sync_directories(directories: Iterable[Directory]) -> None:
    for directory in directories:
        directory.sync()


def sync_file_system(medium: Directory) -> None:
    """Sync the file system of a medium, including its tables.

    Every file and directory of ours was synced before. So nothing is lost if the system has no such
    call; a failure is as final as that of any other sync.
    """
    libc = ctypes.CDLL(None, use_errno=True)
    call: Callable[[int], int] | None = getattr(libc, "syncfs", None)
    if call is None:
        return
    if call(medium.fd) != 0 and ctypes.get_errno() != errno.ENOSYS:
        detail = os.strerror(ctypes.get_errno())
        raise durable.SyncFailed(f"sync of the file system of {medium.path} failed: {detail}")


class BadMedium(VeenError):
    """A medium that cannot be written, or does not hold what was written to it; ``offset`` is that
    of the first differing byte of a file, if one differs.
    """

    def __init__(self, detail: str, offset: int | None = None) -> None:
        super().__init__(detail)
        self.offset = offset


def write_medium(bag: Path, medium: Path, progress: Progress = no_progress) -> Path:
    """Copy a staged bag to ``medium``; return its directory, which is synced and read back.

    ``progress`` counts bytes, both when they are written and when they are read.
    """
    verify_free_space([bag], medium)
    count = ProgressCounter(2 * _size(bag), progress)
    with ExitStack() as stack:
        top = stack.enter_context(Directory.root(medium))
        folder = stack.enter_context(_folder(top))
        root = stack.enter_context(_new_directory(folder, bag.name))
        data = stack.enter_context(root.make(DATA))
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
    """Raise BadMedium if a directory of a medium differs from the staged bag."""
    count = ProgressCounter(_size(bag), progress)
    with root.directory(DATA) as data:
        for path in _volumes(bag):
            _read_back(path, data, count)
    for name in (*TAGGED, TAGMANIFEST, SIGNATURE):
        _read_back(bag / name, root, count)


def write_file(source: Path, directory: Directory, name: str) -> None:
    """Copy one file to a medium under another name, sync it and read it back."""
    count = ProgressCounter(2 * source.stat().st_size)
    _copy(source, directory, count, name)
    sync_directories((directory,))
    _read_back(source, directory, count, name)


def read_small(directory: Directory, name: str, most: int) -> bytes:
    """The first bytes of a file of a medium, at most ``most``."""
    with os.fdopen(directory.file(name), "rb") as file:
        return file.read(most)


def _volumes(bag: Path) -> list[Path]:
    return sorted((bag / DATA).iterdir())


def _size(bag: Path) -> int:
    return sum(path.stat().st_size for path in bag.rglob("*") if path.is_file())


def verify_free_space(bags: Sequence[Path], medium: Path) -> None:
    """Raise BadMedium if a medium has no space for all of these bags, before it is written to."""
    sizes = [path.stat().st_size for bag in bags for path in bag.rglob("*") if path.is_file()]
    if not sizes:
        return
    file_system = os.statvfs(medium)
    if file_system.f_flag & os.ST_RDONLY:
        raise BadMedium(f"{medium} is read-only; unlock it, or use another medium")
    free, needed = file_system.f_bavail * file_system.f_frsize, sum(sizes) + len(bags) * _SPARE
    if free < needed:
        raise BadMedium(
            f"{medium}: expected {needed} bytes free, got {free}; use another medium, or several, "
            "with --medium for each"
        )
    largest = _LARGEST_FILE.get(_file_system(medium))
    if largest is not None and max(sizes) > largest:
        raise BadMedium(
            f"{medium}: a volume has {max(sizes)} bytes, files may have {largest} at most; set "
            '[export] medium = "fat32"'
        )


def _file_system(medium: Path) -> str:
    """The kernel's name of the file system type of a medium; empty if unknown."""
    device = medium.stat().st_dev
    number = f"{os.major(device)}:{os.minor(device)}".encode()
    # Mount points are bytes: they may contain a volume label with any Unicode line break.
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
            f"or another device ({error.strerror}); use another medium"
        ) from error


def _new_directory(folder: Directory, name: str) -> Directory:
    try:
        return folder.make(name)
    except FileExistsError:
        raise BadMedium(
            f"{folder.path / name} exists; verify it if it is complete, or use another medium"
        ) from None


def _copy(source: Path, directory: Directory, count: ProgressCounter, name: str = "") -> None:
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


def _read_back(source: Path, directory: Directory, count: ProgressCounter, name: str = "") -> None:
    """Raise BadMedium if a file differs, read from the medium and not from the page cache."""
    name = name or source.name
    target = directory.path / name
    with source.open("rb") as file:
        expected = h_file(file)
    try:
        digest = h_blocks(count.through(_from_medium(directory, name)))
    except OSError as error:
        raise BadMedium(
            f"{target} cannot be read back: {error.strerror}; use another medium"
        ) from error
    if digest != expected:
        at = _first_difference(source, directory, name)
        raise BadMedium(
            f"{target} does not read back as it was written, from byte {at} on; use another medium",
            at,
        )


def _first_difference(source: Path, directory: Directory, name: str) -> int:
    at = 0
    with source.open("rb") as file:
        for block in _from_medium(directory, name):
            expected = file.read(len(block))
            if block != expected:
                pairs = enumerate(zip(block, expected, strict=False))
                return at + next((number for number, (a, b) in pairs if a != b), len(expected))
            at += len(block)
    return at


def _from_medium(directory: Directory, name: str) -> Iterator[bytes]:
    """The blocks of a file, read with O_DIRECT. For a file system without it, ``_copy`` has dropped
    the cached pages.
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
    # A short block is the last: there is no aligned offset after it.
    while size == _BLOCK:
        size = os.preadv(file.fileno(), [aligned], at)
        yield aligned[:size]
        at += size


class NoBags(VeenError):
    """Directories without any carrier."""


def carriers(given: Sequence[Path]) -> list[tuple[BagPath, ...]]:
    """The bags of each carrier in given directories, each a bag or the root of a medium.

    What is no readable bag is a carrier of its own, to be refused by its verification.
    """
    by_carrier: dict[bytes, list[BagPath]] = {}
    for bag in sorted({bag for path in given for bag in _bags(path)}):
        by_carrier.setdefault(_key(bag), []).append(bag)
    if not by_carrier:
        raise NoBags(f"no carrier in {given[0]}; give a bag, or the root of a medium")
    return [tuple(bags) for bags in by_carrier.values()]


def listed(directory: Directory) -> list[str]:
    """The names in a directory of a medium; CarrierRefused if there are too many."""
    with os.scandir(directory.fd) as entries:
        names = [entry.name for entry in islice(entries, MOST_ON_MEDIUM + 1)]
    if len(names) > MOST_ON_MEDIUM:
        detail = f"{directory.path.name}: more than {MOST_ON_MEDIUM} entries"
        raise CarrierRefused(CarrierFault.MEDIUM, detail)
    return names


def is_bag(directory: Directory, name: str) -> bool:
    """Whether to process an entry as a bag: a directory, and also a link or an unreadable entry,
    which are then refused.
    """
    try:
        kind = stat.S_IFMT(directory.status(name).st_mode)
    except OSError:
        return True
    return kind in (stat.S_IFDIR, stat.S_IFLNK)


def _bags(path: Path) -> Iterator[BagPath]:
    """The bags in the directory ``agb0`` of a medium, else the directory itself.

    If ``agb0`` is a link or on another device, it is returned as a bag, and is refused as such.
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


def _key(path: BagPath) -> bytes:
    try:
        bag = Bag(path)
    except CarrierRefused:
        return os.fsencode(path.path)
    bag.close()
    return h(bag.carrier.encode())


def verifier_name() -> str:
    return f"agb0-verifier-{h(SOURCE.read_bytes()).hex()[:_NAME_DIGITS]}.py"


def has_verifier(medium: Path) -> bool:
    """Whether the verifier is on the medium; BadMedium if its file has other content, which people
    might run.
    """
    raw, name = SOURCE.read_bytes(), verifier_name()
    with Directory.root(medium) as root:
        if not root.exists(name):
            return False
        if read_small(root, name, len(raw) + 1) != raw:
            raise BadMedium(
                f"{medium / name}: expected the verifier whose hash is in its name, got other "
                "bytes; do not run it, and use another medium"
            )
        return True


def put_verifier(medium: Path) -> None:
    """Write the verifier to the root of a medium, atomically."""
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
