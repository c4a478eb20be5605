"""Taking a bag in from a place that nobody vouches for: a copy is made once, and all that follows
is about that copy (AGB0 4.5).

Links, devices and pipes are never opened. Nothing is written to where the bag comes from.
"""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Final

from bridge.carrier.bag import CARRIER, DATA, SIGNATURE, TAGGED, TAGMANIFEST
from bridge.carrier.medium import FOLDER
from bridge.carrier.open_bag import MAX_ENTRIES, MAX_TAG_BYTES, folded
from bridge.carrier.watch import Count
from bridge.printable import printable
from bridge.refusal import Fault, Refused
from veen import durable
from veen.client.progress import Progress, untold
from veen.digest import Hasher, h, h_file

_KNOWN: Final = frozenset({*TAGGED, TAGMANIFEST, SIGNATURE})
_READ: Final = os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK
_NEW: Final = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
_BLOCK: Final = 1 << 20
_NUMBER: Final = re.compile(r"([0-9]+)")
MAX_NAME: Final = 255
MOST_ON_MEDIUM: Final = 100_000
"""Entries beside each other on a medium, and so bags; a hundred times what one bag may hold."""


@dataclass(frozen=True, slots=True)
class Received:
    """A bag as it was copied: where it lies, and the hash of the list of its files' hashes."""

    root: Path
    sha256: bytes


def bags_on(medium: Path) -> list[Path]:
    """The bags that a medium holds: those in its folder ``agb0``, itself, or those in it.

    They are in the order of the numbers in their names, which tell where a bundle begins. One that
    cannot be listed, or holds more than any exporter writes, is Refused.
    """
    try:
        return _bags_on(medium)
    except OSError as error:
        raise _unreadable(medium.name, error) from error


def _bags_on(medium: Path) -> list[Path]:
    if (medium / CARRIER).exists():
        return [medium]
    folder = medium / FOLDER
    place = folder if folder.is_dir() and not folder.is_symlink() else medium
    with os.scandir(place) as entries:
        names = [one.name for one in islice(entries, MOST_ON_MEDIUM + 1)]
    if len(names) > MOST_ON_MEDIUM:
        raise Refused(Fault.MEDIUM, f"{printable(place.name)}: more than {MOST_ON_MEDIUM} entries")
    found = [place / name for name in sorted(names, key=_by_numbers) if not name.startswith(".")]
    return [one for one in found if one.is_symlink() or one.is_dir()]


def _by_numbers(name: str) -> list[tuple[int, str]]:
    """2 before 10; a name that no exporter writes sorts somewhere, and the same every time."""
    parts = _NUMBER.split(name[:MAX_NAME])
    return [(int(one) if one.isascii() and one.isdigit() else 0, one) for one in parts]


def partial_name(bag: Path, inbox: Path) -> Path:
    """Where a bag of a medium is copied to before it is whole; a name that is free without its
    dot, so that neither the same bag again nor another of its name is in the way.
    """
    name, number = printable(bag.name), 1
    while (inbox / name).exists():
        number += 1
        name = f"{printable(bag.name)}-{number}"
    return inbox / f".{name}"


def fetch(bag: Path, partial: Path, most: int, progress: Progress = untold) -> None:
    """Copy a bag from a medium into the inbox, where it appears whole or not at all."""
    copy_bag(bag, partial, most, progress)
    durable.rename(partial, partial.with_name(partial.name.removeprefix(".")))


def copy_bag(bag: Path, target: Path, most: int, progress: Progress = untold) -> Received:
    """Copy the files of a bag, at most so many bytes; what a bag may not hold is Refused.

    ``progress`` hears of the bytes of its volumes.
    """
    count = Count(volume_bytes(bag), progress)
    target.mkdir(mode=durable.DIR_MODE)
    (target / DATA).mkdir(mode=durable.DIR_MODE)
    lines: list[str] = []
    with ExitStack() as closing:
        root = closing.enter_context(_directory(os.fspath(bag), None))
        for name, kind in _listed(root, bag.name):
            if name in _KNOWN:
                _refuse_unless_file(name, kind)
                digest, _ = _copy(name, root, target / name, MAX_TAG_BYTES + 1, Count(0))
                lines.append(f"{digest.hex()}  {name}\n")
            elif name == DATA:
                data = closing.enter_context(_directory(DATA, root))
                lines += _copy_volumes(data, target / DATA, most, count)
            else:
                _refuse_unless_file(name, kind)
    durable.sync_directory(target / DATA)
    durable.sync_directory(target)
    return Received(target, h("".join(sorted(lines)).encode()))


def volume_bytes(bag: Path) -> int:
    """How much the volumes of a bag are; what cannot be listed is refused by whoever copies it."""
    try:
        with _directory(os.fspath(bag), None) as root, _directory(DATA, root) as data:
            found = [_status(name, data) for name, _ in _listed(data, DATA)]
    except Refused:
        return 0
    return sum(one.st_size for one in found if stat.S_ISREG(one.st_mode))


def _copy_volumes(data: int, target: Path, most: int, count: Count) -> Iterator[str]:
    for name, kind in _listed(data, DATA):
        _refuse_unless_file(name, kind)
        if kind == stat.S_IFDIR:
            continue
        digest, size = _copy(name, data, target / name, most, count)
        most -= size
        yield f"{digest.hex()}  {DATA}/{printable(name)}\n"


def _copy(name: str, folder: int, target: Path, most: int, count: Count) -> tuple[bytes, int]:
    """Copy at most so many bytes of a file and sync them; their hash and how many they are."""
    digest, at = Hasher(), 0
    try:
        source = os.open(name, _READ, dir_fd=folder)
    except OSError as error:
        raise _unreadable(name, error) from error
    out = os.open(target, _NEW, durable.FILE_MODE)
    try:
        if not stat.S_ISREG(_mode(source, name)):
            raise Refused(Fault.MEDIUM, f"{printable(name)} is no regular file")
        while block := _read(source, min(_BLOCK, most - at + 1), name):
            if at + len(block) > most:
                raise Refused(Fault.BUNDLE_SIZE, f"{printable(name)} goes beyond {most} bytes")
            durable.write_at(out, block, at)
            digest.update(block)
            at += len(block)
            count.add(len(block))
        durable.sync(out)
    finally:
        os.close(source)
        os.close(out)
    return digest.digest(), at


def _mode(source: int, name: str) -> int:
    try:
        return os.fstat(source).st_mode
    except OSError as error:
        raise _unreadable(name, error) from error


def _read(source: int, size: int, name: str) -> bytes:
    try:
        return os.read(source, size)
    except OSError as error:
        raise _unreadable(name, error) from error


@contextmanager
def _directory(path: str, within: int | None) -> Iterator[int]:
    try:
        handle = os.open(path, _READ | os.O_DIRECTORY, dir_fd=within)
    except OSError as error:
        raise _unreadable(path, error) from error
    try:
        yield handle
    finally:
        os.close(handle)


def _listed(folder: int, what: str) -> list[tuple[str, int]]:
    """Names with the kind of file each is, looked at without opening it."""
    try:
        with os.scandir(folder) as entries:
            names = [entry.name for entry in islice(entries, MAX_ENTRIES + 1)]
    except OSError as error:
        raise _unreadable(what, error) from error
    if len(names) > MAX_ENTRIES:
        raise Refused(Fault.MEDIUM, f"{printable(what)}: more than {MAX_ENTRIES} files")
    if len({folded(name) for name in names}) != len(names):
        raise Refused(Fault.MEDIUM, f"{printable(what)}: two names differ in case or form alone")
    return [(name, stat.S_IFMT(_status(name, folder).st_mode)) for name in sorted(names)]


def _status(name: str, folder: int) -> os.stat_result:
    try:
        return os.stat(name, dir_fd=folder, follow_symlinks=False)
    except OSError as error:
        raise _unreadable(name, error) from error


def _refuse_unless_file(name: str, kind: int) -> None:
    if kind not in (stat.S_IFREG, stat.S_IFDIR):
        raise Refused(Fault.MEDIUM, f"{printable(name)} is a link, a device or a pipe")


def _unreadable(name: str, error: OSError) -> Refused:
    return Refused(Fault.MEDIUM, f"{printable(name)} cannot be read: {error.strerror}")


def digest_of(folder: Path) -> bytes:
    """The hash of what was copied of bags that could not be copied whole."""
    lines = []
    for path in sorted(folder.rglob("*")):
        if path.is_file() and not path.is_symlink():
            with path.open("rb") as file:
                lines.append(f"{h_file(file).hex()}  {printable(str(path.relative_to(folder)))}\n")
    return h("".join(lines).encode())
