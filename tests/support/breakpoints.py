"""Breakpoints: something happens when a function of a running program is called or has returned.

As with a debugger, nothing is replaced, and the function does what it does. This is for what the
program does not foresee at that moment: a kill, a signal, a file that changes. A breakpoint holds
in the current thread and in those that are started later.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import CodeType, FrameType
from typing import Any, Literal

Event = Literal["call", "return"]


@contextmanager
def before(
    function: Callable[..., Any], action: Callable[[], None], turn: int = 1
) -> Iterator[None]:
    """Run an action when a function is called for the nth time, before its first line."""
    with _observed(function, action, turn, "call"):
        yield


@contextmanager
def after(
    function: Callable[..., Any], action: Callable[[], None], turn: int = 1
) -> Iterator[None]:
    """Run an action when a function has returned for the nth time."""
    with _observed(function, action, turn, "return"):
        yield


def kill() -> None:
    """End this process at once, as a loss of power or the system would."""
    os.kill(os.getpid(), signal.SIGKILL)


AT = {"before": before, "after": after}


def interrupt() -> None:
    """What Ctrl-C does at that moment."""
    raise KeyboardInterrupt


@contextmanager
def _observed(
    function: Callable[..., Any], action: Callable[[], None], turn: int, event: Event
) -> Iterator[None]:
    code: CodeType = function.__code__
    left = turn

    def observe(frame: FrameType, happened: str, _: Any) -> None:
        nonlocal left
        if frame.f_code is code and happened == event:
            left -= 1
            if left == 0:
                action()

    earlier, of_threads = sys.getprofile(), threading.getprofile()
    sys.setprofile(observe)
    threading.setprofile(observe)
    try:
        yield
    finally:
        sys.setprofile(earlier)
        threading.setprofile(of_threads)
