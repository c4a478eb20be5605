"""The exporter's own directory: its lock, what it builds, and what it has seen of the hub."""

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
from veen.recorder_checkpoint import RecorderCheckpoint

_MAX_BYTES: Final = 1 << 24


class Busy(VeenError):
    """Another exporter is at work."""


@dataclass(frozen=True, slots=True)
class ExportState:
    root: Path

    @property
    def staging(self) -> Path:
        return self.root / "staging"

    @property
    def _last(self) -> Path:
        return self.root / "checkpoint.cbor"

    @contextmanager
    def locked(self) -> Iterator[None]:
        """One exporter at a time, until it ends in whatever way."""
        durable.make_directory(self.root)
        handle = os.open(self.root / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            try:
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                raise Busy(f"another export is running on {self.root}; wait for its end") from None
            yield
        finally:
            os.close(handle)

    def attempt(self, name: str) -> Path:
        """An empty private directory; what an earlier attempt left is given up."""
        self.clear()
        folder = self.staging / name
        durable.make_directory(folder)
        return folder

    def clear(self) -> None:
        shutil.rmtree(self.staging, ignore_errors=True)

    def left(self) -> list[Path]:
        """What a run that failed has kept."""
        return sorted(self.staging.iterdir()) if self.staging.is_dir() else []

    def last_checkpoint(self) -> RecorderCheckpoint | None:
        try:
            with self._last.open("rb") as file:
                return RecorderCheckpoint.decode(file.read(_MAX_BYTES))
        except FileNotFoundError:
            return None

    def keep_checkpoint(self, checkpoint: RecorderCheckpoint) -> None:
        durable.write(self._last, checkpoint.encode())
