"""Ctrl-C that is not lost: raised at once, and again before the program would sleep.

Python drops an exception that strikes while it tidies up; one that follows a stream would go on.
"""

from __future__ import annotations

import signal
import time
from threading import Event
from types import FrameType

_asked = Event()


def heed() -> None:
    """From now on an interruption is remembered, unless we were started to ignore it."""
    if signal.getsignal(signal.SIGINT) is not signal.SIG_IGN:
        signal.signal(signal.SIGINT, _interrupt)


def remember() -> None:
    """By whoever heeds signals in a way of its own."""
    _asked.set()


def sleep(seconds: float) -> None:
    if _asked.is_set():
        raise KeyboardInterrupt
    time.sleep(seconds)


def _interrupt(_signal: int, _frame: FrameType | None) -> None:
    remember()
    raise KeyboardInterrupt
