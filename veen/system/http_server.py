"""The HTTP server of all services: gunicorn with threads, and deadlines for every request.

Without deadlines a client that sends byte by byte would hold a thread for ever. A request has two:
one from its start to the end of its response, and a short one for the time that the server waits
for bytes, which grows with every byte received. A client that sends steadily never exceeds the
second; one that has stopped sending does so after a few seconds.
"""

from __future__ import annotations

import socket
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from functools import partial
from ipaddress import ip_address
from pathlib import Path
from selectors import EVENT_READ
from threading import Lock
from types import MappingProxyType
from typing import Any, ClassVar, Final, Protocol

from gunicorn.app.base import BaseApplication
from gunicorn.glogging import Logger
from gunicorn.workers.gthread import ThreadWorker

SLOWEST_BYTES_PER_SEC: Final = 16_384
"""The minimum average rate of a client."""
GRACE_UNDER_LOAD_SEC: Final = 1.0
"""The grace for slow clients while other requests wait for a thread."""
_TURN_SEC: Final = 0.25
IDLE_SEC: Final = 30
"""The time after which a connection without a request is closed."""
AEAD_CIPHERS: Final = "ECDHE+AESGCM:ECDHE+CHACHA20"
"""The suites of TLS 1.2 in OpenSSL's syntax: forward secrecy and AEAD; those of 1.3 are AEAD."""


class ConnectionLine(Protocol):
    """A connection; its socket is replaced when TLS starts."""

    sock: socket.socket


@dataclass(slots=True)
class RequestReading:
    """The time that the server has waited for the bytes of a request, and their number."""

    line: ConnectionLine
    monotonic: Callable[[], float]
    begun: float
    received: int = 0
    _spent: float = 0.0
    _waiting_since: float | None = field(default=None)

    def __post_init__(self) -> None:
        # The time before the first byte, such as a TLS handshake, counts as waiting.
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
        """Whether the server has waited longer than the received bytes allow."""
        since = self._waiting_since
        if since is None:
            return False
        return self._spent + now - since > grace_sec + self.received / SLOWEST_BYTES_PER_SEC


class Deadlines:
    """The deadlines of all requests of a worker. Thread-safe."""

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
        """Close the connections that are past their deadline.

        ``under_load`` says that other requests wait for a thread.
        """
        now = self._monotonic()
        grace = min(self._body_seconds, GRACE_UNDER_LOAD_SEC) if under_load else self._body_seconds
        with self._guard:
            late = [
                reading.line
                for reading in self._begun.values()
                if reading.begun < now - self._seconds or reading.is_slow(now, grace)
            ]
        for line in late:
            with suppress(OSError):
                line.sock.shutdown(socket.SHUT_RDWR)


class ServiceLogger(Logger):  # type: ignore[misc]
    """Sends gunicorn's messages to the log of the service, which is rotated."""

    def setup(self, cfg: Any) -> None:
        super().setup(cfg)
        self.error_log.handlers.clear()
        self.error_log.propagate = True


class DeadlineWorker(ThreadWorker):  # type: ignore[misc]
    """A threaded worker that closes connections past their deadline.

    A request gets a thread only once its first byte has arrived.
    """

    request_timeout_sec: ClassVar[int] = 30
    body_timeout_sec: ClassVar[int] = 3

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self._deadlines = Deadlines(self.request_timeout_sec, time.monotonic, self.body_timeout_sec)

    def enqueue_req(self, conn: Any) -> None:
        """Let a new connection wait for its first byte in the event loop."""
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
        """Run a turn of the event loop, shorter while there are deadlines to check."""
        super().wait_for_and_dispatch_events(_TURN_SEC if self._deadlines.is_serving else timeout)

    def murder_keepalived(self, force: bool = False) -> None:
        """Check deadlines; gunicorn calls this in every turn of the event loop."""
        super().murder_keepalived(force)
        waiting = len(self.keepalived_conns) + len(self.pending_conns)
        self._deadlines.cut_off(under_load=self.nr_conns - waiting > self.cfg.threads)
        if not self.alive:
            for conn in self.pending_conns:
                conn.timeout = 0  # it has asked for nothing, and must not delay a stop


def _watch(conn: Any, reading: RequestReading) -> None:
    """Count every receive on a connection, once its parser exists."""
    make = type(conn).init

    def init() -> None:
        make(conn)
        unreader = getattr(conn.parser, "unreader", None)
        if unreader is not None:
            unreader.chunk = partial(_receive, reading, unreader)

    conn.init = init


def _receive(reading: RequestReading, unreader: Any, size_hint: int | None = None) -> bytes:
    return reading.receive(lambda: type(unreader).chunk(unreader, size_hint))


class ServerSettings(Protocol):
    """The settings that every service has for its HTTP server."""

    @property
    def listen(self) -> str: ...
    @property
    def workers(self) -> int: ...
    @property
    def threads(self) -> int: ...
    @property
    def request_timeout_sec(self) -> int: ...
    @property
    def body_timeout_sec(self) -> int: ...
    @property
    def tls_cert(self) -> str | Path | None: ...
    @property
    def tls_key(self) -> str | Path | None: ...
    @property
    def tls_client_ca(self) -> str | Path | None: ...


class ServiceApplication(BaseApplication):  # type: ignore[misc]
    """A gunicorn application; ``create_app`` makes the WSGI application in each worker.

    ``when_ready`` is called when connections are accepted, before the workers start. ``options``
    of gunicorn replace those of ``server_options``.
    """

    def __init__(
        self,
        settings: ServerSettings,
        create_app: Callable[[], object],
        when_ready: Callable[[], None] = lambda: None,
        options: Mapping[str, Any] = MappingProxyType({}),
    ) -> None:
        self._settings = settings
        self._create_app = create_app
        self._when_ready = when_ready
        self._options = options
        super().__init__()

    def load_config(self) -> None:
        for key, value in {**server_options(self._settings), **self._options}.items():
            self.cfg.set(key, value)
        self.cfg.set("when_ready", lambda _server: self._when_ready())

    def load(self) -> object:
        return self._create_app()


def server_options(settings: ServerSettings) -> dict[str, Any]:
    """The options of gunicorn. The worker class has the deadlines, since gunicorn creates it."""
    DeadlineWorker.request_timeout_sec = settings.request_timeout_sec
    DeadlineWorker.body_timeout_sec = settings.body_timeout_sec
    options: dict[str, Any] = {
        "bind": settings.listen,
        "workers": settings.workers,
        "threads": settings.threads,
        "worker_class": DeadlineWorker,
        "worker_connections": 1_000,
        "backlog": 512,
        "keepalive": IDLE_SEC,
        "timeout": 2 * settings.request_timeout_sec,
        "graceful_timeout": settings.request_timeout_sec,
        "loglevel": "warning",
        "logger_class": ServiceLogger,
        "control_socket_disable": True,
    }
    if settings.tls_cert is not None:
        options |= {"certfile": str(settings.tls_cert), "keyfile": str(settings.tls_key)}
        options["ciphers"] = AEAD_CIPHERS
    if settings.tls_client_ca is not None:
        options |= {"ca_certs": str(settings.tls_client_ca), "cert_reqs": 2}
    return options


class Headers(Protocol):
    """The headers of a request, by name."""

    def __contains__(self, name: str, /) -> bool: ...


def is_local_peer(address: str | None, headers: Headers) -> bool:
    """Whether a request comes from this host; one that a proxy has forwarded does not."""
    if "X-Forwarded-For" in headers or "Forwarded" in headers:
        return False
    try:
        return ip_address(address or "").is_loopback
    except ValueError:
        return False
