"""gunicorn's ASGI worker with the deadlines, limits and stop of all services.

gunicorn's worker has no deadline for the bytes of a request, waits for idle connections when it
stops, takes any number of connections, closes a connection whose client has finished sending, and
serves without TLS when the certificate cannot be read. ``EventWorker`` and ``EventProtocol``
change that. They depend on private names of gunicorn, whose version is pinned.
"""

from __future__ import annotations

import asyncio
import os
import resource
import signal
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Final

import uvloop
from gunicorn.arbiter import Arbiter
from gunicorn.asgi.protocol import ASGIProtocol
from gunicorn.sock import ssl_context
from gunicorn.workers.gasgi import ASGIWorker

from veen.system.http_server import IDLE_SEC, SLOWEST_BYTES_PER_SEC, ServerSettings

TURN_SEC: Final = 0.25
_IDLE_TURN_SEC: Final = 1.0
CLOSE: Final = (b"Connection", b"close")
"""The header of a response after which the connection is closed."""
_STARVED_SEC: Final = 4 * TURN_SEC
MOST_CONNECTIONS: Final = 4_096
_SPARE_FILES: Final = 128
_MOST_FILES: Final = 16_384


@dataclass(frozen=True, slots=True)
class RequestLimits:
    """Seconds for a whole request, for its unread bytes, and for a connection without one."""

    request_sec: float
    body_sec: float
    idle_sec: float


@dataclass(slots=True)
class RequestProgress:
    """The progress of one connection: when its request, or its idle time, began.

    ``is_read`` says that all bytes of the request have arrived, ``is_answered`` that its response
    was written, of which a part may still be in this process; ``is_idle`` that there is none.
    """

    begun: float
    received: int = 0
    is_read: bool = False
    is_answered: bool = False
    is_idle: bool = True

    def is_late(self, now: float, limits: RequestLimits) -> bool:
        """Whether the connection is past its deadline."""
        spent = now - self.begun
        if self.is_idle:
            return spent > limits.idle_sec
        if spent > limits.request_sec:
            return True
        if self.is_read or self.is_answered:
            return False
        return spent > limits.body_sec + self.received / SLOWEST_BYTES_PER_SEC


class EventProtocol(ASGIProtocol):  # type: ignore[misc]
    """A connection that knows the progress of its request."""

    def __init__(self, worker: EventWorker) -> None:
        super().__init__(worker)
        self._lines = worker.lines
        self._body_sec = worker.limits.body_sec
        self.progress = RequestProgress(time.monotonic())
        self._has_ended = False
        self._closes = False
        self._discards = False

    def connection_made(self, transport: Any) -> None:
        self._lines.add(self)
        super().connection_made(transport)
        self.worker.make_room(self)

    def connection_lost(self, exc: Exception | None) -> None:
        self._lines.discard(self)
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        if self._discards:
            return
        if self.progress.is_idle or self.progress.is_answered:
            self._begin(0)
        self.progress.received += len(data)
        super().data_received(data)

    def eof_received(self) -> bool:
        """Answer a request that is complete, though its client sends nothing more."""
        self._has_ended = True
        return self.progress.is_read and not self.progress.is_answered

    def is_idle(self) -> bool:
        """Whether there is no request, and no response that is still to be sent."""
        if self.progress.is_answered and not self.transport.get_write_buffer_size():
            self.progress = RequestProgress(time.monotonic())
        return self.progress.is_idle

    def abort(self) -> None:
        """Close at once; what was not sent is dropped."""
        self._closed = True
        if self._request_ready is not None:
            self._request_ready.set()
        self.transport.abort()

    def close_idle(self) -> None:
        self._keepalive_timeout()

    def _begin(self, received: int) -> None:
        self.progress = RequestProgress(time.monotonic(), received, is_idle=False)

    def _on_message_complete(self) -> None:
        self.progress.is_read = True
        super()._on_message_complete()

    async def _handle_http_request(self, *arguments: Any) -> bool:
        keeps = bool(await super()._handle_http_request(*arguments))
        parser = self._callback_parser
        pipelined = len(parser.remaining()) if parser is not None else 0
        if pipelined:
            self._begin(pipelined)
        else:
            self.progress.is_answered = True
        return keeps and not self._closes

    def _is_websocket_upgrade(self, _request: Any) -> bool:
        """No service has WebSockets: the request is served as one without an upgrade."""
        return False

    def _will_close(self, request: Any, response_requires_close: bool) -> bool:
        """Close after a response that comes before its body was read to the end."""
        receiver = self._body_receiver
        unread = receiver is not None and (receiver.buffered or not self.progress.is_read)
        return bool(unread or super()._will_close(request, response_requires_close))

    def _arm_keepalive_timer(self) -> None:
        """Close if the client has finished sending; ``EventWorker.turn`` ends an idle wait."""
        if self._has_ended:
            self._keepalive_timeout()

    def _send_response_start(
        self, status: int, headers: Sequence[tuple[bytes, bytes]], request: Any, close: bool = False
    ) -> None:
        """Send the headers that gunicorn's other workers send; CLOSE ends the connection."""
        given = [header for header in headers if header != CLOSE]
        self._closes = close or CLOSE in headers
        connection = CLOSE if self._closes else (b"Connection", b"keep-alive")
        own = [(b"Server", b"gunicorn"), connection]
        super()._send_response_start(status, [*own, *given], request, self._closes)

    def _close_transport(self) -> None:
        """Close; after an early response the rest of the body is discarded for a moment.

        Otherwise the kernel would reset the connection, and the client might lose the response.
        """
        transport, unread = self.transport, not (self.progress.is_idle or self.progress.is_read)
        if not unread or self._closed or self._discards or not transport.can_write_eof():
            super()._close_transport()
            return
        self._discards = True
        transport.write_eof()
        self._resume_reading()
        self.worker.loop.call_later(self._body_sec, super()._close_transport)


class EventWorker(ASGIWorker):  # type: ignore[misc]
    """An ASGI worker that checks deadlines and stops without waiting for idle connections."""

    limits: ClassVar[RequestLimits] = RequestLimits(30, 3, 30)

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self.lines: set[EventProtocol] = set()
        self._stopping = asyncio.Event()
        self._last_turn = 0.0

    @classmethod
    def check_config(cls, cfg: Any, log: Any) -> None:
        """Accept ``threads``: the application uses them."""

    def init_process(self) -> None:
        self.init_signals()  # before anything that takes time
        most = _raise_file_limit() - _SPARE_FILES
        self.worker_connections: int = min(self.cfg.worker_connections, most)
        super().init_process()

    def _setup_event_loop(self) -> None:
        self.loop = uvloop.new_event_loop()
        asyncio.set_event_loop(self.loop)

    def init_signals(self) -> None:
        """Let a signal end the process while it starts.

        A new process has the handlers of the arbiter, and uvloop loses a signal that arrives
        before the loop runs; the handlers of the worker are set when it does.
        """
        for number in self.SIGNALS:
            signal.signal(number, signal.SIG_DFL)

    def handle_exit_signal(self) -> None:
        super().handle_exit_signal()
        self._stopping.set()

    def handle_quit_signal(self) -> None:
        super().handle_quit_signal()
        self._stopping.set()

    def make_room(self, newest: EventProtocol) -> None:
        """Above the limit, close the connection that has been idle longest, or the newest."""
        if len(self.lines) <= self.worker_connections:
            return
        idle = (line for line in self.lines if line is not newest and line.is_idle())
        min(idle, key=lambda line: line.progress.begun, default=newest).abort()

    def turn(self, now: float) -> None:
        """Close the connections past their deadline.

        A turn that comes late judges nobody: bytes may have arrived that were not read.
        """
        starved = now - self._last_turn > _STARVED_SEC + _IDLE_TURN_SEC
        self._last_turn = now
        for line in list(self.lines):
            idle = line.is_idle()
            if starved or not line.progress.is_late(now, self.limits):
                continue
            if idle:
                line.close_idle()
            else:
                line.abort()

    async def _serve(self) -> None:
        super().init_signals()
        context = self._get_ssl_context()
        handshake_sec = self.limits.request_sec if context else None
        for listener in self.sockets:
            server = await self.loop.create_server(
                lambda: EventProtocol(self),
                sock=listener.sock,
                ssl=context,
                ssl_handshake_timeout=handshake_sec,
            )
            self.servers.append(server)
        while self.alive and self.ppid == os.getppid():
            self.notify()
            self.turn(time.monotonic())
            await self._pause()
        await self._finish()

    async def _pause(self) -> None:
        seconds = TURN_SEC if self.lines else _IDLE_TURN_SEC
        try:
            await asyncio.wait_for(self._stopping.wait(), seconds)
        except TimeoutError:
            return

    async def _finish(self) -> None:
        """Accept no more, close what is idle, and let the requests under way end."""
        self.alive = False
        for server in self.servers:
            server.close()
        deadline = time.monotonic() + self.cfg.graceful_timeout
        while self.lines and time.monotonic() < deadline and not self._quick_shutdown:
            self.notify()
            self.turn(time.monotonic())
            for line in list(self.lines):
                if line.is_idle():
                    line.close_idle()
            await asyncio.sleep(TURN_SEC / 5)
        for line in list(self.lines):
            line.abort()

    def _get_ssl_context(self) -> Any:
        """The TLS context, or the end of the server: it must not serve without."""
        if not self.cfg.is_ssl:
            return None
        try:
            return ssl_context(self.cfg)
        except OSError as error:
            self.log.critical("TLS: the certificate or its key cannot be read: %s", error)
            raise SystemExit(Arbiter.WORKER_BOOT_ERROR) from error


def _raise_file_limit() -> int:
    """Raise the number of open files as far as it is allowed; each connection takes one."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    limit = _MOST_FILES if hard == resource.RLIM_INFINITY else min(hard, _MOST_FILES)
    if soft != resource.RLIM_INFINITY and soft < limit:
        resource.setrlimit(resource.RLIMIT_NOFILE, (limit, hard))
        return limit
    return _MOST_FILES if soft == resource.RLIM_INFINITY else soft


def event_options(settings: ServerSettings) -> dict[str, Any]:
    """The options of gunicorn for ``EventWorker``, in addition to ``server_options``."""
    EventWorker.limits = RequestLimits(
        settings.request_timeout_sec,
        min(settings.body_timeout_sec, settings.request_timeout_sec),
        IDLE_SEC,
    )
    return {
        "worker_class": EventWorker,
        "worker_connections": MOST_CONNECTIONS,
        "asgi_lifespan": "off",
        "http_parser": "python",
    }
