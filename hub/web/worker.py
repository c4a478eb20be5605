"""The gunicorn worker of a hub: threads, and deadlines for every request."""

from __future__ import annotations

import time
from functools import partial
from selectors import EVENT_READ
from typing import Any, ClassVar, Final

from gunicorn.glogging import Logger
from gunicorn.workers.gthread import ThreadWorker

from veen.deadlines import Deadlines, Reading

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


def _watch(conn: Any, reading: Reading) -> None:
    """Have every receive on a connection counted, from when its parser is made."""
    make = type(conn).init

    def init() -> None:
        make(conn)
        unreader = getattr(conn.parser, "unreader", None)
        if unreader is not None:
            unreader.chunk = partial(_receive, reading, unreader)

    conn.init = init


def _receive(reading: Reading, unreader: Any, size_hint: int | None = None) -> bytes:
    return reading.receive(lambda: type(unreader).chunk(unreader, size_hint))
