"""Who holds the lock of a data directory, and whether that process is provably gone.

The kernel gives up a lock with the process that took it, so whoever gets the lock knows that nobody
else of this kernel has it. Only on a file system that several hosts can mount at once may a process
of another host still hold what it wrote into the file.
"""

from __future__ import annotations

import json
import os
import re
import socket
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final

_BOOT_ID: Final = Path("/proc/sys/kernel/random/boot_id")
_MOUNTS: Final = Path("/proc/self/mountinfo")
_OCTAL: Final = re.compile(r"\\([0-7]{3})")
"""How the kernel writes blanks, line ends, ``#`` and backslashes of a name."""
_LOCAL: Final = frozenset({
    "bcachefs", "btrfs", "exfat", "ext2", "ext3", "ext4", "f2fs", "fuseblk", "jfs", "nilfs2",
    "overlay", "ramfs", "reiserfs", "tmpfs", "ubifs", "vfat", "xfs", "zfs",
})  # fmt: skip
"""File systems that one kernel has at a time."""


@dataclass(frozen=True, slots=True)
class Holder:
    """A process as it writes itself into the lock; locks of earlier versions have no ``boot``."""

    host: str
    pid: int
    boot: str | None = None

    @classmethod
    def ourselves(cls) -> Holder:
        return cls(socket.gethostname(), os.getpid(), boot_id())

    @classmethod
    def decode(cls, text: str) -> Holder | None:
        """None for a lock let go, or torn by a crash while it was written."""
        try:
            found: Any = json.loads(text)
            return cls(str(found["host"]), int(found["pid"]), found.get("boot"))
        except (ValueError, TypeError, KeyError, AttributeError):
            return None

    @classmethod
    def describe(cls, text: str) -> str:
        """Who holds a lock, for people."""
        found = cls.decode(text)
        if found is None:
            return "its lock does not say by which process"
        return f"process {found.pid} on host {found.host}"

    def encode(self) -> bytes:
        return json.dumps(asdict(self)).encode()

    def is_provably_gone(self, directory: Path) -> bool:
        """To be asked by whoever has got the lock. A name that differs proves nothing: hosts are
        renamed, containers get a new one with each start, and directories move.
        """
        if self.boot is not None and self.boot == boot_id():
            return True
        return self.host == socket.gethostname() or is_local(directory)


def boot_id() -> str | None:
    """The running kernel; None where it does not tell."""
    try:
        return _BOOT_ID.read_text().strip()
    except OSError:
        return None


def is_local(directory: Path) -> bool:
    """Whether only this kernel can have mounted the file system of a directory."""
    return file_system(directory, os.fsdecode(_MOUNTS.read_bytes())) in _LOCAL


def file_system(directory: Path, mountinfo: str) -> str | None:
    """The type of the file system of a directory: that of the last mount nearest to it."""
    found, depth = None, -1
    for point, kind in _mounts(mountinfo):
        if directory.is_relative_to(point) and len(point.parts) >= depth:
            found, depth = kind, len(point.parts)
    return found


def _mounts(mountinfo: str) -> Iterator[tuple[Path, str]]:
    """Mount points and types; the kernel writes a blank in a name as ``\\040``."""
    for line in filter(None, mountinfo.split("\n")):
        mounted, _, rest = line.partition(" - ")
        point = _OCTAL.sub(lambda found: chr(int(found[1], 8)), mounted.split(" ")[4])
        yield Path(point), rest.split(" ")[0]
