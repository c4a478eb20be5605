"""Ctrl-C that is not lost: raised at once, and again before the program would sleep.

Python drops an exception that strikes while it tidies up; one that follows a stream would go on.

Signals that end a program, made to unwind it: what was begun is cleaned up first.
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


def handle_interrupts() -> None:
    """From now on an interruption is remembered, unless we were started to ignore it."""
    if signal.getsignal(signal.SIGINT) is not signal.SIG_IGN:
        signal.signal(signal.SIGINT, _interrupt)


def remember_interrupt() -> None:
    """By whoever heeds signals in a way of its own."""
    _asked.set()


def interruptible_sleep(seconds: float) -> None:
    if _asked.is_set():
        raise KeyboardInterrupt
    time.sleep(seconds)


def _interrupt(_signal: int, _frame: FrameType | None) -> None:
    remember_interrupt()
    raise KeyboardInterrupt


_ENDING: Final = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


@contextmanager
def signals_unwind() -> Iterator[None]:
    """The first such signal ends the block by an exception; no other disturbs what follows."""
    before = {item: signal.signal(item, _unwind) for item in _ENDING}
    try:
        yield
    finally:
        for item, handler in before.items():
            signal.signal(item, handler)


@contextmanager
def signals_blocked() -> Iterator[None]:
    """Such a signal comes after the block: what is begun in it is known when it comes."""
    signal.pthread_sigmask(signal.SIG_BLOCK, _ENDING)
    try:
        yield
    finally:
        unblock_signals()


def unblock_signals() -> None:
    signal.pthread_sigmask(signal.SIG_UNBLOCK, _ENDING)


def _unwind(number: int, _frame: FrameType | None) -> None:
    for item in _ENDING:
        signal.signal(item, signal.SIG_IGN)
    remember_interrupt()
    if number == signal.SIGINT:
        raise KeyboardInterrupt
    raise SystemExit(128 + number)
