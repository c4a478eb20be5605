"""Child processes: starting, waiting for readiness, identifying and ending them.

A process is identified by boot id, pid and start time, since pids are reused. Children end with
their parent (PR_SET_PDEATHSIG).
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
_EVERY_SIGNAL: Final = frozenset(signal.valid_signals())
_PAUSE_SEC: Final = 0.05
_BOOT_ID: Final = Path("/proc/sys/kernel/random/boot_id")

RUN_VARIABLE: Final = "VEEN_ZONE_RUN"
"""The environment variable that marks every process of one run of a supervisor."""
SIGNALS: Final = frozenset({signal.SIGCHLD, signal.SIGTERM, signal.SIGINT})
"""The signals that a supervisor blocks and waits for."""
EXIT_REFUSED: Final = 3
"""The exit code of a process that refuses to start; standard error says why."""
STOP_SEC: Final = 60.0
"""How long a child may take to end before it is killed."""
_READY: Final = b"+"


class Stat(NamedTuple):
    """Fields of /proc/PID/stat; ``born`` is in ticks since boot."""

    pid: int
    state: str
    parent: int
    session: int
    born: int


@functools.cache
def boot_id() -> str:
    """The id of the current boot of this host."""
    return _BOOT_ID.read_text().strip()


@dataclass(frozen=True, slots=True)
class Born:
    """The identity of a process: pids and start times repeat after a reboot.

    Without a boot id the process cannot be identified, so it counts as ended and is never
    signalled.
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
        """Send a signal through a pidfd, so that a reused pid is never signalled."""
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
    # The name, in parentheses, can have any bytes.
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
    """The processes in the session of a living process; empty once it has ended.

    A session id alone identifies nothing: it is reused after the session has ended, and the
    daemons of another process then have it without a leader.
    """
    if not leader.is_alive():
        return []
    members = [_identity(stat) for stat in every_process() if stat.session == leader.pid]
    return members if leader.is_alive() else []


def of_run(token: str) -> list[Born]:
    """The processes of a run of a supervisor, by a variable in their initial environment."""
    mark = f"{RUN_VARIABLE}={token}".encode()
    return [_identity(stat) for stat in every_process() if mark in _environment(stat.pid)]


def _environment(pid: int) -> list[bytes]:
    """The environment of a process; empty if it is not readable."""
    try:
        return Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
    except OSError:
        return []


def _identity(stat: Stat) -> Born:
    return Born(stat.pid, stat.born, boot_id())


def below(root: int, session: int | None = None) -> list[Born]:
    """The descendants of a living process, or those of them in a session."""
    children: dict[int, list[Stat]] = {}
    for stat in every_process():
        children.setdefault(stat.parent, []).append(stat)
    descendants, left = [], list(children.get(root, ()))
    while left:
        stat_ = left.pop()
        if session is None or stat_.session == session:
            descendants.append(_identity(stat_))
        left += children.get(stat_.pid, ())
    return descendants


def end_processes(born: Iterable[Born], timeout_sec: float) -> None:
    """Terminate processes, and kill those that have not ended after the timeout."""
    processes = list(born)
    for process in processes:
        process.send(signal.SIGTERM)
    if not wait_for(processes, timeout_sec):
        for process in processes:
            process.send(signal.SIGKILL)
        wait_for(processes, timeout_sec)


def wait_for(processes: Iterable[Born], timeout_sec: float) -> bool:
    """Wait for processes to end; whether all of them did within the timeout."""
    deadline, left = time.monotonic() + timeout_sec, list(processes)
    while left := [process for process in left if process.is_alive()]:
        if time.monotonic() > deadline:
            return False
        time.sleep(_PAUSE_SEC)
    return True


def end_with_parent() -> None:
    """Make the calling child end with its parent; for the time between fork and exec.

    Signals that the parent has blocked are unblocked, since the child inherits its mask.
    """
    signal.pthread_sigmask(signal.SIG_UNBLOCK, _EVERY_SIGNAL)
    _LIBC.prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)


def adopt_orphans() -> None:
    """Become the subreaper: orphaned descendants become children of this process."""
    _LIBC.prctl(_PR_SET_CHILD_SUBREAPER, 1)


def bury(but: Container[int] = ()) -> None:
    """Reap ended children, adopted ones too, except those in ``but``."""
    with suppress(ChildProcessError):
        while (ended := os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)) is not None:
            if ended.si_pid in but:
                return
            os.waitpid(ended.si_pid, 0)


def start_ready(command: Sequence[str]) -> subprocess.Popen[bytes] | None:
    """Start a child and wait until it is ready; None if it ended instead."""
    reading, writing = os.pipe()
    argv = [*command, "--ready-fd", str(writing)]
    process = subprocess.Popen(argv, pass_fds=[writing])  # noqa: S603
    os.close(writing)
    is_ready = os.read(reading, 1) == _READY
    os.close(reading)
    if is_ready:
        return process
    process.wait()
    return None


def say_ready(ready_fd: int | None) -> None:
    """Report readiness from a child to its parent."""
    if ready_fd is not None:
        os.write(ready_fd, _READY)
        os.close(ready_fd)


def end_with(parent: int | None) -> None:
    """Make the calling child end with its parent, or at once if that has ended already."""
    _LIBC.prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)
    if parent is not None and os.getppid() != parent:
        sys.exit(EXIT_REFUSED)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, SIGNALS)


def end_process(process: subprocess.Popen[bytes]) -> None:
    """Terminate a child, and kill it if it does not end."""
    if process.poll() is not None:
        return
    process.terminate()
    try:
        process.wait(STOP_SEC)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
