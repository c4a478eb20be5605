"""The system's table of mounts, with another file system for one directory."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

TABLE = Path("/proc/self/mountinfo")


def mount_as(patch: pytest.MonkeyPatch, directory: Path, kind: str) -> None:
    """Whoever reads the table sees that a file system of this kind is mounted at a directory."""
    device, real = directory.stat().st_dev, Path.read_bytes
    number = f"{os.major(device)}:{os.minor(device)}"
    line = f"1 1 {number} / {directory} rw - {kind} none rw\n".encode()

    def read_bytes(path: Path) -> bytes:
        return line + real(path) if path == TABLE else real(path)

    patch.setattr(Path, "read_bytes", read_bytes)
