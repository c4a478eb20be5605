"""HTTP as bytes over a socket: requests that no client library would send."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import cbor2

CBOR = b"application/cbor"
TIMEOUT_SEC = 30.0


@dataclass(frozen=True)
class Response:
    status: int
    headers: dict[str, str]
    body: bytes


def post(path: str, body: bytes, *lines: bytes, content_type: bytes = CBOR) -> bytes:
    """A request with a Content-Length; ``lines`` are more headers."""
    head = [b"POST %b HTTP/1.1" % path.encode(), b"Host: hub", b"Content-Type: " + content_type]
    return b"\r\n".join([*head, b"Content-Length: %d" % len(body), *lines, b"", body])


def submit(msg: list[Any], *lines: bytes) -> bytes:
    return post("/v1/submit", cbor2.dumps({1: 1, 2: msg}), *lines)


def chunked(path: str, body: bytes, size: int = 7) -> bytes:
    head = post(path, b"").replace(b"Content-Length: 0\r\n", b"Transfer-Encoding: chunked\r\n")
    parts = [body[at : at + size] for at in range(0, len(body), size)]
    return head + b"".join(b"%x\r\n%b\r\n" % (len(part), part) for part in parts) + b"0\r\n\r\n"


class RawLine:
    """A connection to a port of this host."""

    def __init__(self, port: int, timeout: float = TIMEOUT_SEC) -> None:
        self.socket = socket.create_connection(("127.0.0.1", port), timeout)
        self._received = b""

    def send(self, data: bytes) -> None:
        self.socket.sendall(data)

    def finish_sending(self) -> None:
        self.socket.shutdown(socket.SHUT_WR)

    def response(self, *, has_body: bool = True) -> Response:
        """The next response; one with status 100 is passed over."""
        while b"\r\n\r\n" not in self._received:
            self._receive()
        head, _, self._received = self._received.partition(b"\r\n\r\n")
        first, *lines = head.decode("latin-1").split("\r\n")
        status = int(first.split()[1])
        if status == 100:
            return self.response(has_body=has_body)
        headers = dict(line.split(": ", 1) for line in lines)
        size = int(headers.get("Content-Length", 0)) if has_body else 0
        while len(self._received) < size:
            self._receive()
        body, self._received = self._received[:size], self._received[size:]
        return Response(status, headers, body)

    def is_closed(self) -> bool:
        """Whether the other end closes without another byte."""
        try:
            return not self._received and self.socket.recv(1) == b""
        except ConnectionResetError:
            return True

    def _receive(self) -> None:
        part = self.socket.recv(65_536)
        if not part:
            raise ConnectionResetError(f"closed after {self._received!r:.200}")
        self._received += part


@contextmanager
def raw_line(port: int, first: bytes = b"") -> Iterator[RawLine]:
    line = RawLine(port)
    with line.socket:
        line.send(first)
        yield line
