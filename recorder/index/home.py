"""Where an index lives: a directory of generations, of which one is current.

lock         held by whoever writes
current      a link to the generation that is read
g-1/         index.sqlite and nodes/, the first that was built
imports.cbor the import streams that are taken up, if any
"""

from __future__ import annotations

import fcntl
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from veen import durable
from veen.errors import VeenError

_CURRENT: Final = "current"
_PREFIX: Final = "g-"


class NoIndex(VeenError):
    """A directory in which no index was built yet."""


class IndexBusy(VeenError):
    """Another process writes this index."""


@dataclass(frozen=True, slots=True)
class Generation:
    """One index, whole: the database and the nodes of each stream."""

    root: Path

    @property
    def database(self) -> Path:
        return self.root / "index.sqlite"

    def nodes(self, stream_no: int) -> Path:
        return self.root / "nodes" / f"{stream_no:08d}"


@dataclass(frozen=True, slots=True)
class IndexHome:
    root: Path

    @property
    def imports(self) -> Path:
        return self.root / "imports.cbor"

    @property
    def stream_map(self) -> Path:
        """The stream map that was accepted last; it outlives every generation."""
        return self.root / "stream_map.json"

    def exists(self) -> bool:
        return (self.root / _CURRENT).is_symlink()

    def current(self) -> Generation:
        """The generation that is read; what was opened of it stays whole after a swap."""
        if not self.exists():
            raise NoIndex(f"{self.root} holds no index yet: run veen recorder index follow")
        return Generation((self.root / _CURRENT).resolve())

    def fresh(self) -> Generation:
        """An empty generation beside the others; the caller holds the lock."""
        numbers = [int(one.name.removeprefix(_PREFIX)) for one in self.root.glob(f"{_PREFIX}*")]
        found = Generation(self.root / f"{_PREFIX}{max(numbers, default=0) + 1}")
        durable.make_directory(found.root / "nodes")
        durable.sync_directory(found.root)
        return found

    def swap(self, to: Generation) -> None:
        """Let a generation be the current one, at once or not at all."""
        link = self.root / f".{_CURRENT}"
        link.unlink(missing_ok=True)
        link.symlink_to(to.root.name)
        durable.rename(link, self.root / _CURRENT)

    def sweep(self) -> None:
        """Remove every generation but the current one: those it followed, and unfinished ones."""
        kept = self.current().root
        for one in self.root.glob(f"{_PREFIX}*"):
            if one.resolve() != kept:
                shutil.rmtree(one)

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Nobody else writes meanwhile; readers do not care."""
        durable.make_directory(self.root)
        handle = os.open(self.root / "lock", os.O_RDWR | os.O_CREAT, durable.FILE_MODE)
        try:
            try:
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError as error:
                raise IndexBusy(f"another process writes {self.root}: stop it first") from error
            yield
        finally:
            os.close(handle)
