"""Deadlines of requests: a connection that is not served in time is cut off.

Without them, a client that sends its request byte by byte holds a thread of a server for ever. A
request has two: one from its begin to the end of its answer, and a short one for what the server
waits for, which grows with every byte that arrives. A client that sends steadily is never cut off
by the second one, and one that has stopped sending is, after a few seconds.

The gunicorn worker of a hub: threads, and deadlines for every request.

The gunicorn worker of the query service: threads, and deadlines for every request.

What the services of this product offer over TLS 1.2; every suite of TLS 1.3 is AEAD already.
"""

from __future__ import annotations

import socket
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from functools import partial
from selectors import EVENT_READ
from threading import Lock
from typing import Any, ClassVar, Final, Protocol

from gunicorn.glogging import Logger
from gunicorn.workers.gthread import ThreadWorker

SLOWEST_BYTES_PER_SEC: Final = 16_384
"""A client that sends less than this, on average, is too slow."""
GRACE_UNDER_LOAD_SEC: Final = 1.0
"""How long a client may keep a thread waiting that others wait for."""


class ConnectionLine(Protocol):
    """A connection; its socket becomes another one when it begins to speak TLS."""

    sock: socket.socket


@dataclass(slots=True)
class RequestReading:
    """How long a server has waited for the bytes of one request, and how many came."""

    line: ConnectionLine
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
        self._begun: dict[int, RequestReading] = {}
        self._guard = Lock()

    @property
    def is_serving(self) -> bool:
        return bool(self._begun)

    @contextmanager
    def serving(self, line: ConnectionLine) -> Iterator[RequestReading]:
        reading = RequestReading(line, self._monotonic, self._monotonic())
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
                item.line
                for item in self._begun.values()
                if item.begun < now - self._seconds or item.is_slow(now, grace)
            ]
        for line in late:
            with suppress(OSError):
                line.sock.shutdown(socket.SHUT_RDWR)


_TURN_SEC: Final = 0.25


class ServiceLogger(Logger):  # type: ignore[misc]
    """What gunicorn says goes where the service's own log goes, which is kept within a size."""

    def setup(self, cfg: Any) -> None:
        super().setup(cfg)
        self.error_log.handlers.clear()
        self.error_log.propagate = True


class DeadlineWorker(ThreadWorker):  # type: ignore[misc]
    """A request that has not been read and answered in time loses its connection.

    A thread is taken only once the first byte has arrived, and given back soon when no more come.
    """

    request_timeout_sec: ClassVar[int] = 30
    body_timeout_sec: ClassVar[int] = 3

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self._deadlines = Deadlines(self.request_timeout_sec, time.monotonic, self.body_timeout_sec)

    def enqueue_req(self, conn: Any) -> None:
        """A new connection waits for its first byte in the loop, not in a thread."""
        if conn.initialized or conn.data_ready:
            super().enqueue_req(conn)
            return
        conn.set_timeout()
        self.pending_conns.append(conn)
        readable = partial(self.on_pending_socket_readable, conn)
        self.poller.register(conn.sock, EVENT_READ, readable)

    def handle(self, conn: Any) -> Any:
        with self._deadlines.serving(conn) as reading:
            _watch(conn, reading)
            return super().handle(conn)

    def wait_for_and_dispatch_events(self, timeout: float) -> None:
        """One turn of the worker's loop; it is short while there are deadlines to look at."""
        super().wait_for_and_dispatch_events(_TURN_SEC if self._deadlines.is_serving else timeout)

    def murder_keepalived(self, force: bool = False) -> None:
        """Called once in every turn of the worker's loop."""
        super().murder_keepalived(force)
        waiting = len(self.keepalived_conns) + len(self.pending_conns)
        self._deadlines.cut_off(under_load=self.nr_conns - waiting > self.cfg.threads)
        if not self.alive:
            for conn in self.pending_conns:
                conn.timeout = 0  # it has asked for nothing, and must not delay a stop


def _watch(conn: Any, reading: RequestReading) -> None:
    """Have every receive on a connection counted, from when its parser is made."""
    make = type(conn).init

    def init() -> None:
        make(conn)
        unreader = getattr(conn.parser, "unreader", None)
        if unreader is not None:
            unreader.chunk = partial(_receive, reading, unreader)

    conn.init = init


def _receive(reading: RequestReading, unreader: Any, size_hint: int | None = None) -> bytes:
    return reading.receive(lambda: type(unreader).chunk(unreader, size_hint))


AEAD_CIPHERS: Final = "ECDHE+AESGCM:ECDHE+CHACHA20"
"""In OpenSSL's words: forward secrecy and authenticated encryption, and nothing with CBC."""
