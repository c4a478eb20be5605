"""The data directory: the whole of a hub, portable as it stands (spec 4.8.3, 8.4)."""

from __future__ import annotations

import fcntl
import logging
import os
import shlex
import stat
from dataclasses import dataclass
from pathlib import Path

from hub.storage.lock_holder import Holder
from veen import durable, layout
from veen.errors import VeenError

_log = logging.getLogger(__name__)


class Locked(VeenError):
    """Another hub holds the directory, or may still hold it."""


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
        """Reported equivocations and cut tails: kept, never read by the hub."""
        return self.root / "evidence"

    @property
    def derived(self) -> Path:
        """Whatever ``veen hub rebuild`` makes again from the log."""
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
        """Where the running hub answers, for commands that are given its directory."""
        return self.run / "hub.url"

    @property
    def pid_file(self) -> Path:
        return self.run / "hub.pid"

    def file(self, name: str) -> Path:
        """A file named by ``veen.layout``."""
        return self.root / name

    def log_names(self) -> list[str]:
        """The names of the files of the log, as ``veen.layout`` writes them."""
        return [f"log/{path.name}" for path in self.log.iterdir()]

    def recorder_names(self) -> list[str]:
        """The same for recorder checkpoints; a directory may be older than the first of them."""
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
        """The root of a volume may be somebody else's; all that is in it is private by itself."""
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


class Lock:
    """The one writer's hold on a directory, released by the end of its process."""

    def __init__(self, datadir: DataDir) -> None:
        self._path = datadir.root / "lock"
        self._fd = durable.open_file(self._path, os.O_RDWR | os.O_CREAT)
        holder = self._path.read_text(errors="replace")
        try:
            fcntl.flock(self._fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(self._fd)
            raise Locked(
                f"{datadir.root} is held by another hub or command ({Holder.describe(holder)}): "
                "stop that hub first, with veen hub stop --data-dir "
                f"{shlex.quote(str(datadir.root))}"
            ) from None
        self._refuse_foreign(datadir, holder)
        os.ftruncate(self._fd, 0)
        durable.write_at(self._fd, Holder.ourselves().encode(), 0)

    def release(self) -> None:
        os.ftruncate(self._fd, 0)
        os.close(self._fd)

    def _refuse_foreign(self, datadir: DataDir, text: str) -> None:
        """A lock that another host may still hold, where the file system does not share locks."""
        holder = Holder.decode(text)
        if holder is None or holder.is_provably_gone(datadir.root.resolve()):
            return
        os.close(self._fd)
        raise Locked(
            f"{datadir.root} was last held by process {holder.pid} of host {holder.host!r}, which "
            "did not stop cleanly, and lies on a file system that several hosts can share. If no "
            f"hub runs there any more, delete {self._path} and start again."
        )


def is_held(datadir: DataDir) -> bool:
    """Whether a hub of this host runs on a directory."""
    try:
        handle = os.open(datadir.root / "lock", os.O_RDWR)
    except FileNotFoundError:
        return False
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(handle)
    return False
