"""The bags that lie in given directories, put together by the carrier they are parts of."""

from __future__ import annotations

import os
from collections.abc import Sequence
from itertools import islice
from pathlib import Path
from typing import Final

from bridge.carrier.medium import FOLDER
from bridge.carrier.open_bag import Bag
from bridge.refusal import Refused
from veen.digest import h
from veen.errors import VeenError

_MOST: Final = 10_000


class NoBags(VeenError):
    """Directories in which no carrier lies."""


def carriers(given: Sequence[Path]) -> list[tuple[Path, ...]]:
    """The bags of each carrier, by name. A directory is a bag, or a medium with bags on it.

    What is no readable bag stands alone, to be refused by whoever checks it.
    """
    found: dict[bytes, list[Path]] = {}
    for path in sorted({bag for one in given for bag in _bags(one)}):
        found.setdefault(_key(path), []).append(path)
    if not found:
        raise NoBags(f"no carrier lies in {given[0]}; name a bag, or the root of a medium")
    return [tuple(bags) for bags in found.values()]


def _bags(path: Path) -> list[Path]:
    folder = path / FOLDER
    if not folder.is_dir():
        return [path]
    with os.scandir(folder) as entries:
        return [folder / one.name for one in islice(entries, _MOST)]


def _key(path: Path) -> bytes:
    try:
        bag = Bag(path)
    except Refused:
        return os.fsencode(path)
    bag.close()
    return h(bag.carrier.encode())
