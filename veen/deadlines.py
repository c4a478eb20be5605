"""Deadlines of requests: a connection that is not served in time is cut off.

Without them, a client that sends its request byte by byte holds a thread of a server for ever. A
request has two: one from its begin to the end of its answer, and a short one for what the server
waits for, which grows with every byte that arrives. A client that sends steadily is never cut off
by the second one, and one that has stopped sending is, after a few seconds.
"""

from __future__ import annotations

import socket
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from threading import Lock
from typing import Final, Protocol

SLOWEST_BYTES_PER_SEC: Final = 16_384
"""A client that sends less than this, on average, is too slow."""
GRACE_UNDER_LOAD_SEC: Final = 1.0
"""How long a client may keep a thread waiting that others wait for."""


class Line(Protocol):
    """A connection; its socket becomes another one when it begins to speak TLS."""

    sock: socket.socket


@dataclass(slots=True)
class Reading:
    """How long a server has waited for the bytes of one request, and how many came."""

    line: Line
    monotonic: Callable[[], float]
    begun: float
    received: int = 0
    _spent: float = 0.0
    _waiting_since: float | None = field(default=None)

    def __post_init__(self) -> None:
        # What comes before the first byte, a TLS handshake for one, is waiting too.
        self._waiting_since = self.begun

    def receive(self, receive: Callable[[], bytes]) -> bytes:
        """Receive bytes, and count the time it takes."""
        self._waiting_since = self.monotonic()
        try:
            data = receive()
            self.received += len(data)
            return data
        finally:
            self._spent += self.monotonic() - self._waiting_since
            self._waiting_since = None

    def is_slow(self, now: float, grace_sec: float) -> bool:
        """Whether the server waits, and has waited longer than the bytes so far are worth."""
        since = self._waiting_since
        if since is None:
            return False
        return self._spent + now - since > grace_sec + self.received / SLOWEST_BYTES_PER_SEC


class Deadlines:
    """``monotonic`` gives seconds; threads share it."""

    def __init__(
        self, seconds: float, monotonic: Callable[[], float], body_seconds: float | None = None
    ) -> None:
        self._seconds = seconds
        self._body_seconds = seconds if body_seconds is None else min(body_seconds, seconds)
        self._monotonic = monotonic
        self._begun: dict[int, Reading] = {}
        self._guard = Lock()

    @property
    def is_serving(self) -> bool:
        return bool(self._begun)

    @contextmanager
    def serving(self, line: Line) -> Iterator[Reading]:
        reading = Reading(line, self._monotonic, self._monotonic())
        with self._guard:
            self._begun[id(line)] = reading
        try:
            yield reading
        finally:
            with self._guard:
                del self._begun[id(line)]

    def cut_off(self, *, under_load: bool = False) -> None:
        """End the connections whose time is over; whoever serves them finds them closed.

        ``under_load`` says that other requests wait for a thread.
        """
        now = self._monotonic()
        grace = min(self._body_seconds, GRACE_UNDER_LOAD_SEC) if under_load else self._body_seconds
        with self._guard:
            late = [
                one.line
                for one in self._begun.values()
                if one.begun < now - self._seconds or one.is_slow(now, grace)
            ]
        for line in late:
            with suppress(OSError):
                line.sock.shutdown(socket.SHUT_RDWR)
