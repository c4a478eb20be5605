"""The processes that a first process starts, waits for and ends; none outlives it.

Processes of this host by boot, number and start time: a number used again is nobody of ours.
"""

from __future__ import annotations

import ctypes
import functools
import os
import signal
import subprocess
import sys
import time
from collections.abc import Container, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final, NamedTuple

_PR_SET_PDEATHSIG: Final = 1
_PR_SET_CHILD_SUBREAPER: Final = 36
_LIBC: Final = ctypes.CDLL(None)
_PAUSE_SEC: Final = 0.05
_BOOT_ID: Final = Path("/proc/sys/kernel/random/boot_id")

RUN_VARIABLE: Final = "VEEN_ZONE_RUN"
"""The environment variable that marks every process of one run of a supervisor."""


class Stat(NamedTuple):
    """What the kernel tells of a process; ``born`` is in ticks since the host booted."""

    pid: int
    state: str
    parent: int
    session: int
    born: int


@functools.cache
def boot_id() -> str:
    """The boot of this host; it changes with every reboot."""
    return _BOOT_ID.read_text().strip()


@dataclass(frozen=True, slots=True)
class Born:
    """One process and no other: process numbers and start times repeat after a reboot.

    Without a boot id nothing proves that the process is still the one that was meant, so it counts
    as ended and is never signalled.
    """

    pid: int
    born: int
    boot: str | None = None

    def is_alive(self) -> bool:
        if self.boot != boot_id():
            return False
        stat = stat_of(self.pid)
        return stat is not None and stat.born == self.born and stat.state not in "ZX"

    def send(self, number: signal.Signals) -> None:
        """Through a descriptor of the process, so that its number cannot change hands between."""
        try:
            handle = os.pidfd_open(self.pid)
        except ProcessLookupError:
            return
        try:
            if self.is_alive():
                signal.pidfd_send_signal(handle, number)
        except ProcessLookupError:
            return
        finally:
            os.close(handle)


def stat_of(pid: int) -> Stat | None:
    try:
        raw = Path(f"/proc/{pid}/stat").read_bytes()
    except (FileNotFoundError, ProcessLookupError):
        return None
    # The name of a process, in parentheses, is any bytes that it chose for itself.
    fields = raw.rpartition(b")")[2].decode("ascii").split()
    return Stat(pid, fields[0], int(fields[1]), int(fields[3]), int(fields[19]))


def born(pid: int) -> Born | None:
    stat = stat_of(pid)
    return None if stat is None else _identity(stat)


def every_process() -> Iterator[Stat]:
    for entry in Path("/proc").iterdir():
        is_pid = entry.name.isascii() and entry.name.isdecimal()
        if is_pid and (stat := stat_of(int(entry.name))) is not None:
            yield stat


def of_session(leader: Born) -> list[Born]:
    """Those in the session of a living process; nothing once it has ended.

    A session number alone proves nothing: when a session has ended, the kernel gives its number to
    another process, whose daemons then run under that number without a leader.
    """
    if not leader.is_alive():
        return []
    result = [_identity(stat) for stat in every_process() if stat.session == leader.pid]
    return result if leader.is_alive() else []


def of_run(token: str) -> list[Born]:
    """Those that carry the mark of one run of a supervisor in the environment they began with."""
    mark = f"{RUN_VARIABLE}={token}".encode()
    return [_identity(stat) for stat in every_process() if mark in _environment(stat.pid)]


def _environment(pid: int) -> list[bytes]:
    """Empty for a process of somebody else, and for one that has overwritten it."""
    try:
        return Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
    except OSError:
        return []


def _identity(stat: Stat) -> Born:
    return Born(stat.pid, stat.born, boot_id())


def below(root: int, session: int | None = None) -> list[Born]:
    """All descendants of a process that lives; or those of them in one session."""
    children: dict[int, list[Stat]] = {}
    for stat in every_process():
        children.setdefault(stat.parent, []).append(stat)
    result, left = [], list(children.get(root, ()))
    while left:
        item = left.pop()
        if session is None or item.session == session:
            result.append(_identity(item))
        left += children.get(item.pid, ())
    return result


def end_processes(them: Iterable[Born], timeout_sec: float) -> None:
    """Ask each to end, and after a while kill those that did not."""
    those = list(them)
    for item in those:
        item.send(signal.SIGTERM)
    if not wait_for(those, timeout_sec):
        for item in those:
            item.send(signal.SIGKILL)
        wait_for(those, timeout_sec)


def wait_for(those: Iterable[Born], timeout_sec: float) -> bool:
    """Whether all of them have ended by then."""
    deadline, left = time.monotonic() + timeout_sec, list(those)
    while left := [item for item in left if item.is_alive()]:
        if time.monotonic() > deadline:
            return False
        time.sleep(_PAUSE_SEC)
    return True


def end_with_parent() -> None:
    """To be called in a child: it does not outlive whoever started it."""
    signal.pthread_sigmask(signal.SIG_UNBLOCK, signal.valid_signals())
    _LIBC.prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)


def adopt_orphans() -> None:
    """From now on whoever loses its parent below this process is its child."""
    _LIBC.prctl(_PR_SET_CHILD_SUBREAPER, 1)


def bury(but: Container[int] = ()) -> None:
    """Take note of children that have ended; adopted ones too, not those in ``but``."""
    with suppress(ChildProcessError):
        while (result := os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)) is not None:
            if result.si_pid in but:
                return
            os.waitpid(result.si_pid, 0)


SIGNALS: Final = frozenset({signal.SIGCHLD, signal.SIGTERM, signal.SIGINT})
"""What the first process waits for, and blocks until then."""

EXIT_REFUSED: Final = 3
"""Exit code of a process that would not start; standard error says why."""

STOP_SEC: Final = 60.0
"""How long a child may take to end before it is killed."""

_READY: Final = b"+"


def start_ready(command: Sequence[str]) -> subprocess.Popen[bytes] | None:
    """A child once it has said that it is ready; None when it ended, saying why."""
    reading, writing = os.pipe()
    words = [*command, "--ready-fd", str(writing)]
    process = subprocess.Popen(words, pass_fds=[writing])  # noqa: S603
    os.close(writing)
    is_ready = os.read(reading, 1) == _READY
    os.close(reading)
    if is_ready:
        return process
    process.wait()
    return None


def say_ready(ready_fd: int | None) -> None:
    """By the child, to whoever started it and waits."""
    if ready_fd is not None:
        os.write(ready_fd, _READY)
        os.close(ready_fd)


def end_with(parent: int | None) -> None:
    """By the child: end when its parent does, or at once when that has ended already."""
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)
    if parent is not None and os.getppid() != parent:
        sys.exit(EXIT_REFUSED)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, SIGNALS)


def end_process(process: subprocess.Popen[bytes]) -> None:
    """Ask it to end, and kill it where it does not."""
    if process.poll() is not None:
        return
    process.terminate()
    try:
        process.wait(STOP_SEC)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
