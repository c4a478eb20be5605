"""The gunicorn worker of the query service: threads, and a deadline for every request."""

from __future__ import annotations

import time
from typing import Any, ClassVar

from gunicorn.workers.gthread import ThreadWorker

from veen.deadlines import Deadlines


class DeadlineWorker(ThreadWorker):  # type: ignore[misc]
    """A request that has not been read and answered in time loses its connection."""

    request_timeout_sec: ClassVar[int] = 30

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self._deadlines = Deadlines(self.request_timeout_sec, time.monotonic)

    def handle(self, conn: Any) -> Any:
        with self._deadlines.serving(conn):
            return super().handle(conn)

    def murder_keepalived(self, force: bool = False) -> None:
        """Called by the worker's loop about once a second."""
        super().murder_keepalived(force)
        self._deadlines.cut_off()
