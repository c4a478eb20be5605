"""Where a bag lies: the root of a medium, and the names that lead from it to the bag.

A name on a medium may be any bytes. One that is not plain ASCII of moderate length is replaced by
the hash of its bytes wherever it is shown, stored or passed on, and the hash finds it again.
"""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from bridge.carrier.directory import Directory
from bridge.printable import printable
from veen.digest import h

FOLDER: Final = "agb0"
"""The directory on a medium that holds its bags."""
_PLAIN: Final = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._+=@-]{0,127}")
_HASHED: Final = re.compile(r"carrier-[0-9a-f]{64}")
_SHOWN: Final = 60


def carrier_name(name: str) -> str:
    """The name itself if it is plain, else ``carrier-`` and the SHA-256 of its bytes."""
    return name if _PLAIN.fullmatch(name) else f"carrier-{h(os.fsencode(name)).hex()}"


def name_in_text(name: str) -> str:
    """A name for a message: plain, or its hash with the escaped beginning of it."""
    plain = carrier_name(name)
    return plain if plain == name else f"{plain} ({printable(name, _SHOWN)})"


@dataclass(frozen=True, slots=True, order=True)
class BagPath:
    """``root`` is trusted as the operator's own path; ``parts`` are opened one by one below it."""

    root: Path
    parts: tuple[str, ...] = ()

    @classmethod
    def of(cls, path: Path) -> BagPath:
        """The bag at a path; a hash in place of its name is resolved.

        A bag in a folder ``agb0`` has the directory around that folder as its medium, and so has
        the folder itself.
        """
        name = _resolved(path)
        if path.parent.name == FOLDER:
            return cls(path.parent.parent, (FOLDER, name))
        if path.name == FOLDER:
            return cls(path.parent, (FOLDER,))
        return cls(path.with_name(name)) if path.name else cls(path)

    @property
    def name(self) -> str:
        return self.parts[-1] if self.parts else self.root.name

    @property
    def path(self) -> Path:
        return self.root.joinpath(*self.parts)

    def __str__(self) -> str:
        """The path with a plain name in place of one that is not; ``of`` takes it back."""
        path = self.path
        is_shown = not self.parts and printable(path.name) == path.name
        return str(path if is_shown else path.with_name(carrier_name(path.name)))

    def open(self) -> Directory:
        """The directory of the bag; OSError where a link or another device is on the way."""
        found = Directory.root(self.root, follow=bool(self.parts))
        for part in self.parts:
            with found:
                below = found.directory(part)
            found = below
        return found


def _resolved(path: Path) -> str:
    """The name of the entry that a path stands for; one that is really called so comes first."""
    if not _HASHED.fullmatch(path.name) or os.path.lexists(path) or not path.parent.is_dir():
        return path.name
    with os.scandir(path.parent) as entries:
        found = (one.name for one in entries if carrier_name(one.name) == path.name)
        return next(found, path.name)
