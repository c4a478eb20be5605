"""The exporter's state directory: its lock, its staging area, its history, its last checkpoint."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from veen.errors import VeenError
from veen.recorder_checkpoint import RecorderCheckpoint
from veen.system import durable, filelock

_MAX_BYTES: Final = 1 << 24


class ExporterBusy(VeenError):
    """Another exporter holds the lock."""

    error_code = "BUSY"


@dataclass(frozen=True, slots=True)
class ExportState:
    root: Path

    @property
    def staging(self) -> Path:
        return self.root / "staging"

    @property
    def history(self) -> Path:
        """The database of the ExportHistory."""
        return self.root / "history.sqlite"

    @property
    def _last(self) -> Path:
        return self.root / "checkpoint.cbor"

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Hold the lock; it is released when the process ends, however it ends."""
        durable.make_directory(self.root)
        busy = ExporterBusy(f"another export is running on {self.root}; wait for its end")
        with filelock.locked(self.root / "lock", busy=busy):
            yield

    def attempt(self, name: str) -> Path:
        """An empty private directory; what an earlier attempt left is removed."""
        self.clear()
        folder = self.staging / name
        durable.make_directory(folder)
        return folder

    def clear(self) -> None:
        shutil.rmtree(self.staging, ignore_errors=True)

    def left(self) -> list[Path]:
        """What a failed run has left behind."""
        return sorted(self.staging.iterdir()) if self.staging.is_dir() else []

    def last_checkpoint(self) -> RecorderCheckpoint | None:
        try:
            with self._last.open("rb") as file:
                return RecorderCheckpoint.decode(file.read(_MAX_BYTES))
        except FileNotFoundError:
            return None

    def store_checkpoint(self, checkpoint: RecorderCheckpoint) -> None:
        durable.write(self._last, checkpoint.encode())
