"""The gunicorn worker of a hub: threads, and a deadline for every request."""

from __future__ import annotations

import socket
import threading
import time
from contextlib import suppress
from typing import Any, ClassVar

from gunicorn.workers.gthread import ThreadWorker


class DeadlineWorker(ThreadWorker):  # type: ignore[misc]
    """A request that has not been read and answered in time loses its connection.

    Without this, a client that sends its request byte by byte holds a thread for ever.
    """

    request_timeout_sec: ClassVar[int] = 30

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
        deadline = time.monotonic() - self.request_timeout_sec
        with self._guard:
            late = [conn for conn, begun in self._begun.items() if begun < deadline]
        for conn in late:
            with suppress(OSError):
                conn.sock.shutdown(socket.SHUT_RDWR)
