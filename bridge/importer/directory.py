"""The directories of an importing zone, one for each state of a carrier (AGB0 4.5).

All are on one file system and belong to the importer alone, except ``inbox``, which whoever brings
carriers may write and whose content is untrusted. The reason of a quarantined carrier is beside it.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from bridge.carrier.directory import carrier_name
from bridge.importer.reason import FORK, code_of
from veen.errors import VeenError
from veen.system import durable, filelock

_NAMES: Final = (
    "inbox",
    "staging",
    "waiting",
    "committing",
    "archive",
    "quarantine",
    "receipts",
    "approvals",
    "checkpoints",
)


class ImporterBusy(VeenError):
    """Another process imports into the same directories."""

    error_code = "BUSY"


@dataclass(frozen=True, slots=True)
class ImportDirectory:
    """The directories of an importing zone, below ``root``."""

    root: Path

    @property
    def inbox(self) -> Path:
        return self.root / "inbox"

    @property
    def staging(self) -> Path:
        return self.root / "staging"

    @property
    def ledger(self) -> Path:
        return self.root / "ledger.db"

    @property
    def approvals(self) -> Path:
        return self.root / "approvals"

    @property
    def receipts(self) -> Path:
        return self.root / "receipts"

    def checkpoint(self, hub_id: bytes) -> Path:
        return self.root / "checkpoints" / f"{hub_id.hex()}.cbor"

    def waiting(self, bundle_id: bytes) -> Path:
        return self.root / "waiting" / bundle_id.hex()

    def committing(self, bundle_id: bytes) -> Path:
        return self.root / "committing" / bundle_id.hex()

    def archive(self, name: str) -> Path:
        return self.root / "archive" / name

    def quarantine(self, name: str) -> Path:
        return self.root / "quarantine" / name

    def inside(self, path: Path) -> str:
        return path.relative_to(self.root).as_posix()

    def create(self) -> None:
        if all((self.root / name).is_dir() for name in _NAMES):
            return
        durable.make_directory(self.root)
        for name in _NAMES:
            durable.make_directory(self.root / name)
        durable.sync_directory(self.root)
        durable.sync_directory(self.root.parent)

    def attempt(self, name: str) -> Path:
        """Create a private directory in staging, durably."""
        folder = self.staging / name
        folder.mkdir(mode=durable.DIR_MODE)
        durable.sync_directory(self.staging)
        return folder

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Hold the importer's lock, which is released when the process ends."""
        self.create()
        busy = ImporterBusy(
            f"{self.root} is in use by another import; wait for it to end, then run this again"
        )
        with filelock.locked(self.root / "lock", busy=busy):
            yield

    def move(self, source: str, target: str) -> None:
        """Move a directory inside the import directory, or complete an interrupted move.

        A name identifies its content: if the target is already there, the source is removed.
        """
        old, new = self.root / source, self.root / target
        if not os.path.lexists(old):
            return
        if self.is_filled(new):
            self.remove(source)
            return
        self.make_folder(new.parent)
        durable.rename(old, new)
        durable.sync_directory(old.parent)

    def is_filled(self, place: Path) -> bool:
        return place.is_dir() and any(place.iterdir())

    def left_waiting(self, bundle_id: bytes) -> tuple[str, ...]:
        """The held copy of a bundle, if there is one, to be removed once another copy of the bundle
        has an outcome.
        """
        place = self.waiting(bundle_id)
        return (self.inside(place),) if place.is_dir() else ()

    def left_in_quarantine(self, bundle_id: bytes) -> tuple[str, ...]:
        """Quarantined copies of a bundle, to be removed once it is imported.

        Of a copy with evidence of two histories only the carrier is removed.
        """
        left = []
        for path in sorted((self.root / "quarantine").glob(f"{bundle_id.hex()}*")):
            is_evidence = code_of(path) == FORK
            left += [bag for bag in path.iterdir() if bag.is_dir()] if is_evidence else [path]
        return tuple(self.inside(path) for path in left)

    def make_folder(self, folder: Path) -> None:
        """Create a directory below those of an importing zone, durably."""
        if not folder.is_dir():
            durable.make_directory(folder)
            durable.sync_directory(folder.parent)

    def remove(self, name: str) -> None:
        """Remove the entry at a name, of any kind; links are not followed."""
        path = self.root / name
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path)
        else:
            path.unlink(missing_ok=True)

    def tidy(self, in_use: frozenset[str]) -> None:
        """Remove what interrupted runs have left behind."""
        for path in sorted(self.staging.iterdir()):
            if self.inside(path) not in in_use:
                self.remove(self.inside(path))
        for folder in (self.inbox, self.receipts, self.root / "checkpoints"):
            for path in sorted(folder.iterdir()):
                if path.name.startswith("."):
                    self.remove(self.inside(path))

    def name_inbox(self) -> None:
        """Give every bag of the inbox a name that can be stored and shown.

        The names are untrusted; a name that is not plain is replaced by its hash.
        """
        for name in sorted(path.name for path in self.inbox.iterdir()):
            plain, number = carrier_name(name), 1
            if plain == name:
                continue
            free = plain
            while os.path.lexists(self.inbox / free):
                number += 1
                free = f"{plain}-{number}"
            durable.rename(self.inbox / name, self.inbox / free)
