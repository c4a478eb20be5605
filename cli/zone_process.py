"""Processes of this host by boot, number and start time: a number used again is nobody of ours."""

from __future__ import annotations

import ctypes
import functools
import os
import signal
import time
from collections.abc import Container, Iterable, Iterator
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
        found = stat_of(self.pid)
        return found is not None and found.born == self.born and found.state not in "ZX"

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
    found = stat_of(pid)
    return None if found is None else _identity(found)


def everyone() -> Iterator[Stat]:
    for entry in Path("/proc").iterdir():
        if entry.name.isdecimal() and (found := stat_of(int(entry.name))) is not None:
            yield found


def of_session(leader: Born) -> list[Born]:
    """Those in the session of a living process; nothing once it has ended.

    A session number alone proves nothing: when a session has ended, the kernel gives its number to
    another process, whose daemons then run under that number without a leader.
    """
    if not leader.is_alive():
        return []
    found = [_identity(one) for one in everyone() if one.session == leader.pid]
    return found if leader.is_alive() else []


def of_run(token: str) -> list[Born]:
    """Those that carry the mark of one run of a supervisor in the environment they began with."""
    mark = f"{RUN_VARIABLE}={token}".encode()
    return [_identity(one) for one in everyone() if mark in _environment(one.pid)]


def _environment(pid: int) -> list[bytes]:
    """Empty for a process of somebody else, and for one that has overwritten it."""
    try:
        return Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
    except OSError:
        return []


def _identity(one: Stat) -> Born:
    return Born(one.pid, one.born, boot_id())


def below(root: int, session: int | None = None) -> list[Born]:
    """All descendants of a process that lives; or those of them in one session."""
    children: dict[int, list[Stat]] = {}
    for one in everyone():
        children.setdefault(one.parent, []).append(one)
    found, left = [], list(children.get(root, ()))
    while left:
        one = left.pop()
        if session is None or one.session == session:
            found.append(_identity(one))
        left += children.get(one.pid, ())
    return found


def end(them: Iterable[Born], patience_sec: float) -> None:
    """Ask each to end, and after a while kill those that did not."""
    those = list(them)
    for one in those:
        one.send(signal.SIGTERM)
    if not wait_for(those, patience_sec):
        for one in those:
            one.send(signal.SIGKILL)
        wait_for(those, patience_sec)


def wait_for(those: Iterable[Born], patience_sec: float) -> bool:
    """Whether all of them have ended by then."""
    deadline, left = time.monotonic() + patience_sec, list(those)
    while left := [one for one in left if one.is_alive()]:
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
        while (found := os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)) is not None:
            if found.si_pid in but:
                return
            os.waitpid(found.si_pid, 0)
