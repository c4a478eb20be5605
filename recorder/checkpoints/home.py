"""Where recorder checkpoints and their anchors lie, in a directory and in object storage."""

from __future__ import annotations

import fcntl
import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final, NamedTuple

from veen import durable
from veen.recorder_checkpoint import RecorderCheckpoint

_NAME: Final = re.compile(r"([0-9]{20})-([0-9a-f]{64})")
_SUFFIX: Final = ".cbor"


class CheckpointName(NamedTuple):
    """Names sort by time; a hub makes no two recorder checkpoints at one."""

    created_at: int
    checkpoint_id: bytes

    @classmethod
    def of(cls, checkpoint: RecorderCheckpoint) -> CheckpointName:
        return cls(checkpoint.created_at, checkpoint.checkpoint_id)

    @property
    def stem(self) -> str:
        return f"{self.created_at:020d}-{self.checkpoint_id.hex()}"

    @property
    def file(self) -> str:
        return self.stem + _SUFFIX


def parse_name(file: str) -> CheckpointName | None:
    """The checkpoint that a file is called after, or None when it is something else's."""
    found = _NAME.fullmatch(file.removesuffix(_SUFFIX))
    return CheckpointName(int(found[1]), bytes.fromhex(found[2])) if found else None


@dataclass(frozen=True, slots=True)
class HubPrefix:
    """The keys of one hub's recorder in object storage."""

    hub_id: bytes

    @property
    def checkpoints(self) -> str:
        return f"recorder/{self.hub_id.hex()}/checkpoints/"

    def anchors(self, checkpoint_id: bytes) -> str:
        return f"recorder/{self.hub_id.hex()}/anchors/{checkpoint_id.hex()}/"


@dataclass(frozen=True, slots=True)
class Home:
    """The recorder's own directory for them. ``unstored`` are not in object storage yet."""

    root: Path

    @property
    def checkpoints(self) -> Path:
        return self.root / "checkpoints"

    @property
    def unstored(self) -> Path:
        return self.root / "unstored"

    @property
    def anchors(self) -> Path:
        return self.root / "anchors"

    @property
    def tasks(self) -> Path:
        return self.root / "tasks"

    def anchors_of(self, checkpoint_id: bytes) -> Path:
        return self.anchors / checkpoint_id.hex()

    def make(self) -> None:
        folders = (self.checkpoints, self.unstored, self.anchors, self.tasks)
        if all(folder.is_dir() for folder in folders):
            return
        for folder in folders:
            durable.make_directory(folder)
        durable.sync_directory(self.root)
        durable.sync_directory(self.root.parent)

    @contextmanager
    def held(self) -> Iterator[None]:
        """One process at a time changes it; others wait."""
        self.make()
        handle = os.open(self.root / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(handle, fcntl.LOCK_EX)
            yield
        finally:
            os.close(handle)


def files(folder: Path) -> list[str]:
    """The whole files of a folder, sorted; none where there is no folder."""
    try:
        return sorted(name for name in os.listdir(folder) if not name.startswith("."))  # noqa: PTH208
    except FileNotFoundError:
        return []
