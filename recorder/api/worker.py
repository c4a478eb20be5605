"""The gunicorn worker of the query service: threads, and a deadline for every request.

The hub has one of its own like it: neither may import the other, and veen knows no web server.
"""

from __future__ import annotations

import socket
import threading
import time
from contextlib import suppress
from typing import Any, Final

from gunicorn.workers.gthread import ThreadWorker

REQUEST_SEC: Final = 30
"""Longer than a submission waits for its receipt and for its result."""


class DeadlineWorker(ThreadWorker):  # type: ignore[misc]
    """Without a deadline, a client that sends byte by byte holds a thread for ever."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self._begun: dict[Any, float] = {}
        self._guard = threading.Lock()

    def handle(self, conn: Any) -> Any:
        with self._guard:
            self._begun[conn] = time.monotonic()
        try:
            return super().handle(conn)
        finally:
            with self._guard:
                self._begun.pop(conn, None)

    def murder_keepalived(self, force: bool = False) -> None:
        """Called by the worker's loop about once a second."""
        super().murder_keepalived(force)
        deadline = time.monotonic() - REQUEST_SEC
        with self._guard:
            late = [conn for conn, begun in self._begun.items() if begun < deadline]
        for conn in late:
            with suppress(OSError):
                conn.sock.shutdown(socket.SHUT_RDWR)
