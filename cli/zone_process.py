"""Processes of this host by number and birth, so that a number used again is nobody of ours."""

from __future__ import annotations

import ctypes
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


class Stat(NamedTuple):
    """What the kernel tells of a process; ``born`` is in ticks since the host began."""

    pid: int
    state: str
    parent: int
    session: int
    born: int


@dataclass(frozen=True, slots=True)
class Born:
    """One process and no other."""

    pid: int
    born: int

    def is_alive(self) -> bool:
        found = stat_of(self.pid)
        return found is not None and found.born == self.born and found.state not in "ZX"

    def send(self, number: signal.Signals) -> None:
        if self.is_alive():
            with suppress(ProcessLookupError):
                os.kill(self.pid, number)


def stat_of(pid: int) -> Stat | None:
    try:
        text = Path(f"/proc/{pid}/stat").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return None
    fields = text.rpartition(")")[2].split()
    return Stat(pid, fields[0], int(fields[1]), int(fields[3]), int(fields[19]))


def born(pid: int) -> Born | None:
    found = stat_of(pid)
    return None if found is None else Born(pid, found.born)


def everyone() -> Iterator[Stat]:
    for entry in os.scandir("/proc"):
        if entry.name.isdecimal() and (found := stat_of(int(entry.name))) is not None:
            yield found


def of_session(leader: Born) -> list[Born]:
    """Those whom a process has started, unless they went their own way; also after its end.

    While one of them is left, the number of their leader is given to nobody else.
    """
    now = stat_of(leader.pid)
    if now is not None and now.born != leader.born:
        return []
    return [Born(one.pid, one.born) for one in everyone() if one.session == leader.pid]


def below(root: int) -> list[Born]:
    """All descendants of a process that lives."""
    children: dict[int, list[Stat]] = {}
    for one in everyone():
        children.setdefault(one.parent, []).append(one)
    found, left = [], list(children.get(root, ()))
    while left:
        one = left.pop()
        found.append(Born(one.pid, one.born))
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
