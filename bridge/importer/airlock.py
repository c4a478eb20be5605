"""The directories of an importing zone: where a carrier is, is how far it has come (AGB0 4.5).

All lie on one file system and belong to the importer alone, but for ``inbox``, which may be
written by whoever brings carriers and is believed in nothing.

What lies in quarantine, and why: read back from the reasons beside the carriers.
"""

from __future__ import annotations

import fcntl
import json
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from heapq import nlargest
from pathlib import Path
from typing import Any, Final

from bridge.carrier.directory import carrier_name
from veen.errors import VeenError
from veen.system import durable

REASON: Final = "reason.json"
KEPT: Final = "kept"
HASHES: Final = "hashes"
"""``kept`` in a reason: nothing of the carrier lies here but the list of its hashes."""
FORK: Final = "E.SEQ/FORK"
"""The code of what is evidence that a hub signed two histories."""
_MOST_BYTES: Final = 8 << 20
"""Two checkpoints are evidence, and are written in hex."""


@dataclass(frozen=True, slots=True)
class QuarantinedCarrier:
    """One carrier that is kept apart; ``path`` is where."""

    path: Path
    code: str
    detail: str


def quarantined(folder: Path, most: int) -> tuple[list[QuarantinedCarrier], int]:
    """The newest, so many of them, and how many there are."""
    if not folder.is_dir():
        return [], 0
    with os.scandir(folder) as entries:
        result = [(entry.stat(follow_symlinks=False).st_mtime_ns, entry.name) for entry in entries]
    return [_one(folder / name) for _, name in nlargest(most, result)], len(result)


def code_of(folder: Path) -> str | None:
    """Why what lies in a folder does; None where nothing but the reason is left, or not even it.

    Where nothing but hashes was ever kept, the reason is enough.
    """
    reason = _read(folder)
    is_stored = reason.get(KEPT) == HASHES or (
        folder.is_dir() and any(path.name != REASON for path in folder.iterdir())
    )
    return str(reason["code"]) if is_stored and "code" in reason else None


def _one(path: Path) -> QuarantinedCarrier:
    reason = _read(path)
    code = str(reason.get("code", "unknown"))
    # A reason.json of an earlier version has its detail under "told".
    detail = reason.get("detail", reason.get("told", f"its {REASON} cannot be read"))
    return QuarantinedCarrier(path, code, str(detail))


def _read(folder: Path) -> dict[str, Any]:
    try:
        with (folder / REASON).open("rb") as file:
            document = json.loads(file.read(_MOST_BYTES))
    except (OSError, ValueError):
        return {}
    return document if isinstance(document, dict) else {}


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


@dataclass(frozen=True, slots=True)
class Airlock:
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
        """A new folder of our own, which is there to stay."""
        made = self.staging / name
        made.mkdir(mode=durable.DIR_MODE)
        durable.sync_directory(self.staging)
        return made

    @contextmanager
    def locked(self) -> Iterator[None]:
        """One importer at a time; the lock ends with the process, however that ends."""
        self.create()
        handle = os.open(self.root / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(handle)
            raise ImporterBusy(
                f"{self.root} is in use by another import; wait for it to end, then run this again"
            ) from None
        try:
            yield
        finally:
            os.close(handle)

    def move(self, source: str, target: str) -> None:
        """Move a directory, or finish a move that was cut short: source and target are inside.

        A name says what lies there: what is there already is not needed twice.
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
        """The copy of a bundle that waits, if there is one; of use to whoever decides by another
        copy what becomes of the bundle.
        """
        place = self.waiting(bundle_id)
        return (self.inside(place),) if place.is_dir() else ()

    def left_in_quarantine(self, bundle_id: bytes) -> tuple[str, ...]:
        """Copies of a bundle from when it could not go in: once it is imported, none lies there.

        Of one that showed two histories of a hub, the evidence stays and the carrier goes.
        """
        result = []
        for path in sorted((self.root / "quarantine").glob(f"{bundle_id.hex()}*")):
            is_evidence = code_of(path) == FORK
            result += [bag for bag in path.iterdir() if bag.is_dir()] if is_evidence else [path]
        return tuple(self.inside(item) for item in result)

    def make_folder(self, folder: Path) -> None:
        """A folder one below those of the airlock, on disk as well as what will lie in it."""
        if not folder.is_dir():
            durable.make_directory(folder)
            durable.sync_directory(folder.parent)

    def remove(self, name: str) -> None:
        """Remove what lies at a name, whatever it is; links are removed and not followed."""
        path = self.root / name
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path)
        else:
            path.unlink(missing_ok=True)

    def tidy(self, in_use: frozenset[str]) -> None:
        """Remove what runs that were cut short have left behind."""
        for path in sorted(self.staging.iterdir()):
            if self.inside(path) not in in_use:
                self.remove(self.inside(path))
        for folder in (self.inbox, self.receipts, self.root / "checkpoints"):
            for path in sorted(folder.iterdir()):
                if path.name.startswith("."):
                    self.remove(self.inside(path))

    def name_inbox(self) -> None:
        """Give every bag of the inbox a name that can be stored and shown.

        Whoever brings carriers may call them anything; what is not plain becomes its hash.
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
