"""The bags that lie in given directories, put together by the carrier they are parts of."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import Final

from bridge.carrier.bag_path import FOLDER, BagPath
from bridge.carrier.directory import Directory
from bridge.carrier.open_bag import Bag
from bridge.refusal import Fault, Refused
from veen.digest import h
from veen.errors import VeenError

MOST_ON_MEDIUM: Final = 100_000
"""Entries beside each other on a medium, and so bags; a hundred times what one bag may hold."""


class NoBags(VeenError):
    """Directories in which no carrier lies."""


def carriers(given: Sequence[Path]) -> list[tuple[BagPath, ...]]:
    """The bags of each carrier, by name. A directory is a bag, or a medium with bags on it.

    What is no readable bag stands alone, to be refused by whoever checks it.
    """
    found: dict[bytes, list[BagPath]] = {}
    for bag in sorted({bag for one in given for bag in _bags(one)}):
        found.setdefault(_key(bag), []).append(bag)
    if not found:
        raise NoBags(f"no carrier lies in {given[0]}; name a bag, or the root of a medium")
    return [tuple(bags) for bags in found.values()]


def listed(directory: Directory) -> list[str]:
    """The names in a directory of a medium; more of them than any exporter writes is Refused."""
    with os.scandir(directory.fd) as entries:
        names = [one.name for one in islice(entries, MOST_ON_MEDIUM + 1)]
    if len(names) > MOST_ON_MEDIUM:
        told = f"{directory.path.name}: more than {MOST_ON_MEDIUM} entries"
        raise Refused(Fault.MEDIUM, told)
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
        found = Bag(bag)
    except Refused:
        return os.fsencode(bag.path)
    found.close()
    return h(found.carrier.encode())
