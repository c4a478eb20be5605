"""A file system of its own with few inodes and little room, for tests of a full one."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest


@contextmanager
def mounted(folder: Path, *, inodes: int, size: str = "32m") -> Iterator[Path]:
    """A tmpfs; the test is skipped where mounting is not permitted."""
    folder.mkdir(parents=True, exist_ok=True)
    options = f"nr_inodes={inodes},size={size},mode=700"
    command = ["mount", "-t", "tmpfs", "-o", options, "veen-test", str(folder)]
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False)
    except FileNotFoundError:
        pytest.skip("there is no mount command")
    if done.returncode:
        pytest.skip(f"a tmpfs cannot be mounted here: {done.stderr.strip()}")
    try:
        yield folder
    finally:
        subprocess.run(["umount", "-l", str(folder)], check=True)


class Inodes:
    """Takes every inode that is left, or all but a few, and gives them back."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder / "filler"
        self._folder.mkdir()
        self._taken = 0

    def take_all_but(self, left: int) -> None:
        while os.statvfs(self._folder).f_ffree > left:
            (self._folder / str(self._taken)).touch()
            self._taken += 1

    def give_back(self) -> None:
        for path in self._folder.iterdir():
            path.unlink()


class Blocks:
    """Takes every block that is left, or all but a few, and gives them back."""

    def __init__(self, folder: Path) -> None:
        self._file = folder / "blocks"
        self._file.touch()

    def take_all_but(self, left: int) -> None:
        with self._file.open("ab", buffering=0) as file:
            while (disk := os.statvfs(self._file)).f_bavail > left:
                file.write(bytes(disk.f_frsize))

    def give_back(self) -> None:
        os.truncate(self._file, 0)
