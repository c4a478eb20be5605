"""Signal handling: interrupts that are not lost, and signals that unwind the program.

Python drops a KeyboardInterrupt that is raised during cleanup. It is therefore remembered, and
raised again before the program sleeps.
"""

from __future__ import annotations

import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager
from threading import Event
from types import FrameType
from typing import Final

_asked = Event()
_ENDING: Final = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


def handle_interrupts() -> None:
    """Remember interrupts from now on, unless SIGINT is ignored."""
    if signal.getsignal(signal.SIGINT) is not signal.SIG_IGN:
        signal.signal(signal.SIGINT, _interrupt)


def remember_interrupt() -> None:
    """Remember an interrupt, for callers with their own signal handler."""
    _asked.set()


def interruptible_sleep(seconds: float) -> None:
    if _asked.is_set():
        raise KeyboardInterrupt
    time.sleep(seconds)


def _interrupt(_signal: int, _frame: FrameType | None) -> None:
    remember_interrupt()
    raise KeyboardInterrupt


@contextmanager
def signals_unwind() -> Iterator[None]:
    """Raise an exception in the block at the first ending signal; ignore the following ones."""
    before = {number: signal.signal(number, _unwind) for number in _ENDING}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


@contextmanager
def signals_blocked() -> Iterator[None]:
    """Defer ending signals until after the block."""
    signal.pthread_sigmask(signal.SIG_BLOCK, _ENDING)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_UNBLOCK, _ENDING)


def _unwind(number: int, _frame: FrameType | None) -> None:
    for ending in _ENDING:
        signal.signal(ending, signal.SIG_IGN)
    remember_interrupt()
    if number == signal.SIGINT:
        raise KeyboardInterrupt
    raise SystemExit(128 + number)
