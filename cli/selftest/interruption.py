"""Signals that end a program, made to unwind it: what was begun is cleaned up first."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Final

from cli import interrupt

_ENDING: Final = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


@contextmanager
def unwinding() -> Iterator[None]:
    """The first such signal ends the block by an exception; no other disturbs what follows."""
    before = {one: signal.signal(one, _unwind) for one in _ENDING}
    try:
        yield
    finally:
        for one, handler in before.items():
            signal.signal(one, handler)


@contextmanager
def held_back() -> Iterator[None]:
    """Such a signal comes after the block: what is begun in it is known when it comes."""
    signal.pthread_sigmask(signal.SIG_BLOCK, _ENDING)
    try:
        yield
    finally:
        let_go()


def let_go() -> None:
    signal.pthread_sigmask(signal.SIG_UNBLOCK, _ENDING)


def _unwind(number: int, _frame: FrameType | None) -> None:
    for one in _ENDING:
        signal.signal(one, signal.SIG_IGN)
    interrupt.remember()
    if number == signal.SIGINT:
        raise KeyboardInterrupt
    raise SystemExit(128 + number)
