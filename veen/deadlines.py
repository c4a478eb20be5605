"""Deadlines of requests: a connection that is not served in time is cut off.

Without them, a client that sends its request byte by byte holds a thread of a server for ever.
"""

from __future__ import annotations

import socket
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from threading import Lock
from typing import Protocol


class Line(Protocol):
    """A connection; its socket becomes another one when it begins to speak TLS."""

    sock: socket.socket


class Deadlines:
    """``monotonic`` gives seconds; threads share it."""

    def __init__(self, seconds: float, monotonic: Callable[[], float]) -> None:
        self._seconds = seconds
        self._monotonic = monotonic
        self._begun: dict[int, tuple[Line, float]] = {}
        self._guard = Lock()

    @contextmanager
    def serving(self, line: Line) -> Iterator[None]:
        with self._guard:
            self._begun[id(line)] = line, self._monotonic()
        try:
            yield
        finally:
            with self._guard:
                del self._begun[id(line)]

    def cut_off(self) -> None:
        """End the connections whose time is over; whoever serves them finds them closed."""
        latest = self._monotonic() - self._seconds
        with self._guard:
            late = [line for line, begun in self._begun.values() if begun < latest]
        for line in late:
            with suppress(OSError):
                line.sock.shutdown(socket.SHUT_RDWR)
