"""The data directory of a hub, and the lock of its single writer (spec 4.8.3, 8.4).

The directory is the whole hub and can be moved. The kernel releases a lock with the process that
holds it, so a process that gets the lock knows that no other process of this kernel has it. Only
on a file system that several hosts can mount may a process of another host still hold it;
``Holder`` in the lock file says which.
"""

from __future__ import annotations

import json
import logging
import os
import re
import shlex
import socket
import stat
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final

from veen.errors import VeenError
from veen.log import layout
from veen.system import durable, filelock
from veen.system.filelock import HolderLock, LockHeld

_BOOT_ID: Final = Path("/proc/sys/kernel/random/boot_id")
_MOUNTS: Final = Path("/proc/self/mountinfo")
_OCTAL: Final = re.compile(r"\\([0-7]{3})")
"""The escape of blanks, line ends, ``#`` and backslashes in mountinfo."""
_LOCAL: Final = frozenset({
    "bcachefs", "btrfs", "exfat", "ext2", "ext3", "ext4", "f2fs", "fuseblk", "jfs", "nilfs2",
    "overlay", "ramfs", "reiserfs", "tmpfs", "ubifs", "vfat", "xfs", "zfs",
})  # fmt: skip
"""File systems that only one kernel can mount at a time."""
_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Holder:
    """The process in a lock file; locks of earlier versions have no ``boot``."""

    host: str
    pid: int
    boot: str | None = None

    @classmethod
    def ourselves(cls) -> Holder:
        return cls(socket.gethostname(), os.getpid(), boot_id())

    @classmethod
    def decode(cls, text: str) -> Holder | None:
        """The holder, or None for a released lock or one torn by a crash."""
        try:
            document: Any = json.loads(text)
            return cls(str(document["host"]), int(document["pid"]), document.get("boot"))
        except (ValueError, TypeError, KeyError, AttributeError):
            return None

    @classmethod
    def describe(cls, text: str) -> str:
        """The holder of a lock in words."""
        holder = cls.decode(text)
        if holder is None:
            return "its lock does not say by which process"
        return f"process {holder.pid} on host {holder.host}"

    def encode(self) -> str:
        return json.dumps(asdict(self))

    def is_provably_gone(self, directory: Path) -> bool:
        """Whether the process has ended, for a caller that has the lock.

        Another host name proves nothing: hosts are renamed, containers get a new name with each
        start, and directories move.
        """
        if self.boot is not None and self.boot == boot_id():
            return True
        return self.host == socket.gethostname() or is_local(directory)


def boot_id() -> str | None:
    """The boot id of the running kernel, or None where there is none."""
    try:
        return _BOOT_ID.read_text().strip()
    except OSError:
        return None


def is_local(directory: Path) -> bool:
    """Whether the file system of a directory can be mounted by this kernel alone."""
    return file_system(directory, os.fsdecode(_MOUNTS.read_bytes())) in _LOCAL


def file_system(directory: Path, mountinfo: str) -> str | None:
    """The type of the file system of a directory: that of the last mount nearest to it."""
    nearest, depth = None, -1
    for point, kind in _mounts(mountinfo):
        if directory.is_relative_to(point) and len(point.parts) >= depth:
            nearest, depth = kind, len(point.parts)
    return nearest


def _mounts(mountinfo: str) -> Iterator[tuple[Path, str]]:
    """Mount points and types; the kernel writes a blank in a name as ``\\040``."""
    for line in filter(None, mountinfo.split("\n")):
        mounted, _, rest = line.partition(" - ")
        point = _OCTAL.sub(lambda match: chr(int(match[1], 8)), mounted.split(" ")[4])
        yield Path(point), rest.split(" ")[0]


class DataDirLocked(VeenError):
    """Another hub holds the directory, or may still hold it."""

    error_code = "LOCKED"


@dataclass(frozen=True, slots=True)
class DataDir:
    root: Path

    @property
    def log(self) -> Path:
        return self.root / "log"

    @property
    def recorder(self) -> Path:
        """The recorder checkpoints, one document a file."""
        return self.root / layout.RECORDER

    @property
    def keys(self) -> Path:
        return self.root / "keys"

    @property
    def evidence(self) -> Path:
        """Reported equivocations and cut tails; the hub never reads them."""
        return self.root / "evidence"

    @property
    def derived(self) -> Path:
        """Derived state, which ``veen hub rebuild`` rebuilds from the log."""
        return self.root / "derived"

    @property
    def index(self) -> Path:
        return self.derived / "index.sqlite"

    @property
    def run(self) -> Path:
        """Sockets, PID file and metrics of a running hub."""
        return self.root / "run"

    @property
    def socket(self) -> Path:
        return self.run / "sequencer.sock"

    @property
    def address_file(self) -> Path:
        """The URL of the running hub, for commands that are given its directory."""
        return self.run / "hub.url"

    @property
    def pid_file(self) -> Path:
        return self.run / "hub.pid"

    def file(self, name: str) -> Path:
        """A file named by ``veen.log.layout``."""
        return self.root / name

    def log_names(self) -> list[str]:
        """The names of the files of the log, as ``veen.log.layout`` writes them."""
        return [f"log/{path.name}" for path in self.log.iterdir()]

    def recorder_names(self) -> list[str]:
        """The names of recorder checkpoints; an old directory may have no folder for them."""
        if not self.recorder.is_dir():
            return []
        return [f"{layout.RECORDER}/{path.name}" for path in self.recorder.iterdir()]

    def nodes(self, label: bytes) -> Path:
        return self.derived / f"nodes-{label.hex()}.bin"

    def create(self) -> None:
        for path in (
            self.root, self.log, self.recorder, self.keys, self.evidence, self.derived, self.run,
        ):  # fmt: skip
            durable.make_directory(path)
        self._make_private()

    def _make_private(self) -> None:
        """Restrict the directory to its owner; the root of a volume may belong to someone else."""
        try:
            self.root.chmod(durable.DIR_MODE)
        except PermissionError:
            mode = stat.S_IMODE(self.root.stat().st_mode)
            if mode & ~durable.DIR_MODE:
                _log.warning(
                    "%s has mode %04o and belongs to another user: its files are private, their "
                    "names are not; make it 0700 and your own",
                    self.root,
                    mode,
                )

    def is_empty(self) -> bool:
        """Whether no message was ever logged here."""
        return next(self.log.glob("chunk-*"), None) is None


class DataDirLock:
    """The writer's exclusive lock on a directory, released when its process ends."""

    def __init__(self, datadir: DataDir) -> None:
        self._path = datadir.root / "lock"
        try:
            self._lock = HolderLock(durable.open_file(self._path, os.O_RDWR | os.O_CREAT))
        except LockHeld as error:
            raise DataDirLocked(
                f"{datadir.root} is held by another hub or command "
                f"({Holder.describe(error.holder)}): stop that hub first, with "
                f"veen hub stop --data-dir {shlex.quote(str(datadir.root))}"
            ) from None
        self._verify_last_holder(datadir)
        self._lock.write_holder(Holder.ourselves().encode())

    def release(self) -> None:
        self._lock.release()

    def _verify_last_holder(self, datadir: DataDir) -> None:
        """Raise DataDirLocked if a process of another host may still hold the lock."""
        holder = Holder.decode(self._lock.last_holder)
        if holder is None or holder.is_provably_gone(datadir.root.resolve()):
            return
        self._lock.abandon()
        raise DataDirLocked(
            f"{datadir.root} was last held by process {holder.pid} of host {holder.host!r}, which "
            "did not stop cleanly, and lies on a file system that several hosts can share. If no "
            f"hub runs there any more, delete {self._path} and start again."
        )


def is_held(datadir: DataDir) -> bool:
    """Whether a hub of this host runs on a directory."""
    return filelock.is_locked(datadir.root / "lock")
