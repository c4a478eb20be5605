"""The processes that a first process starts, waits for and ends; none outlives it."""

from __future__ import annotations

import ctypes
import os
import signal
import subprocess
import sys
from collections.abc import Sequence
from typing import Final

SIGNALS: Final = frozenset({signal.SIGCHLD, signal.SIGTERM, signal.SIGINT})
"""What the first process waits for, and blocks until then."""

REFUSED: Final = 3
"""Exit code of a process that would not start; standard error says why."""

STOP_SEC: Final = 60.0
"""How long a child may take to end before it is killed."""

_READY: Final = b"+"
_PR_SET_PDEATHSIG: Final = 1


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
        sys.exit(REFUSED)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, SIGNALS)


def end(process: subprocess.Popen[bytes]) -> None:
    """Ask it to end, and kill it where it does not."""
    if process.poll() is not None:
        return
    process.terminate()
    try:
        process.wait(STOP_SEC)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
