"""A proxy between us and an S3 server that breaks requests and answers by a seeded schedule."""

from __future__ import annotations

import random
import re
import select
import socket
import struct
import threading
from collections import Counter
from dataclasses import dataclass
from types import TracebackType
from typing import Self

# Faults and how often each is drawn; the rest of a hundred, or of what a plan says, goes well.
# "late" faults come after the server has done what it was asked.
WEIGHTS = {
    "500": 6,
    "503": 6,
    "429": 3,
    "late 500": 8,
    "reset": 4,
    "late reset": 6,
    "silence": 1,
    "late silence": 1,
    "cut upload": 5,
    "cut answer": 7,
    "short answer": 6,
    "twice": 4,
}
# Only by script: the request reaches the server after the client has given up, or with one bit
# of its body changed, or never though it is answered as done; or the server's ETag is no MD5.
DELAYED, FLIPPED, SWALLOWED, OTHER_ETAG = "delayed", "flipped upload", "swallowed", "other etag"
CODES = {"500": "InternalError", "503": "SlowDown", "429": "TooManyRequests"}
MARK = b"\r\n\r\n"


@dataclass(frozen=True)
class Message:
    """One request or answer."""

    head: bytes
    body: bytes

    @property
    def whole(self) -> bytes:
        return self.head + MARK + self.body


class FaultProxy:
    """Listens on a free port; ``plan`` decides what happens to the requests that follow."""

    def __init__(self, upstream: int) -> None:
        self._upstream = upstream
        self._listener = socket.create_server(("127.0.0.1", 0), backlog=64)
        self._lock = threading.Lock()
        self._turn = threading.Lock()
        self._chance: random.Random | None = None
        self._out_of = 100
        self._script: list[str] = []
        self._release = threading.Event()
        self._delivered = threading.Event()
        self.seen: Counter[str] = Counter()
        self.port: int = self._listener.getsockname()[1]
        threading.Thread(target=self._listen, daemon=True).start()

    @property
    def endpoint(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def plan(self, seed: int | None, *, out_of: int = 100) -> None:
        """Faults by this seed from now on, or none."""
        with self._lock:
            self._out_of = out_of
            self._chance = None if seed is None else random.Random(seed)

    def script(self, *faults: str) -> None:
        """These faults for the next requests, one each."""
        with self._lock:
            self._script = [*faults]
        self._release.clear()
        self._delivered.clear()

    def release(self) -> None:
        """Let a delayed request reach the server now."""
        self._release.set()
        assert self._delivered.wait(30)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        # A thread in accept() keeps the socket; shutting it down wakes that thread.
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()

    def _listen(self) -> None:
        while True:
            try:
                connection, _ = self._listener.accept()
            except OSError:
                return
            threading.Thread(target=self._serve, args=(connection,), daemon=True).start()

    def _serve(self, connection: socket.socket) -> None:
        with connection:
            connection.settimeout(30)
            try:
                request = _read_request(connection)
                if request is not None:
                    self._handle(connection, request, self._draw())
            except OSError:
                return

    def _draw(self) -> str:
        with self._lock:
            if self._script:
                return self._script.pop(0)
            if self._chance is None:
                return "well"
            names = [*WEIGHTS, "well"]
            weights = [*WEIGHTS.values(), self._out_of - sum(WEIGHTS.values())]
            fault = self._chance.choices(names, weights)[0]
            self.seen[fault] += 1
            return fault

    def _handle(self, connection: socket.socket, request: Message, fault: str) -> None:
        if fault in CODES:
            connection.sendall(_refusal(fault))
        elif fault == SWALLOWED:
            connection.sendall(
                b'HTTP/1.1 200 OK\r\nETag: "of another kind"\r\nContent-Length: 0\r\n'
                b"Connection: close\r\n\r\n"
            )
        elif fault == "reset":
            _reset(connection)
        elif fault == "silence":
            _wait_for_the_end(connection)
        elif fault == DELAYED:
            assert self._release.wait(30)
            self._answer(request)
            self._delivered.set()
        elif fault == "cut upload" and request.body:
            self._ask(request.head + MARK + request.body[: len(request.body) // 2])
        else:
            if fault == FLIPPED:
                request = Message(request.head, bytes([request.body[0] ^ 1]) + request.body[1:])
            # One after the other, and none whose client has gone: a write must not overtake
            # what the same client did later.
            with self._turn:
                if _is_gone(connection):
                    return
                answer = self._answer(request)
                if fault == "twice":
                    answer = self._answer(request)
            _pass_on(connection, answer, fault)

    def _answer(self, request: Message) -> Message:
        head, _, body = self._ask(request.whole).partition(MARK)
        return Message(head, body)

    def _ask(self, data: bytes) -> bytes:
        with socket.create_connection(("127.0.0.1", self._upstream), timeout=30) as server:
            server.sendall(data)
            server.shutdown(socket.SHUT_WR)
            answer = b""
            while piece := server.recv(65_536):
                answer += piece
            return answer


def _read_request(connection: socket.socket) -> Message | None:
    data = b""
    while MARK not in data:
        piece = connection.recv(65_536)
        if not piece:
            return None
        data += piece
    head, _, body = data.partition(MARK)
    if _field(head, b"expect"):
        connection.sendall(b"HTTP/1.1 100 Continue\r\n\r\n")
    size = int(_field(head, b"content-length") or 0)
    while len(body) < size:
        piece = connection.recv(65_536)
        if not piece:
            return None
        body += piece
    head = re.sub(rb"(?im)\r\n(expect|connection):[^\r]*", b"", head)
    return Message(head + b"\r\nConnection: close", body)


def _pass_on(connection: socket.socket, answer: Message, fault: str) -> None:
    half = answer.body[: len(answer.body) // 2]
    if fault == "late 500":
        connection.sendall(_refusal("500"))
    elif fault == "late reset":
        _reset(connection)
    elif fault == "late silence":
        _wait_for_the_end(connection)
    elif fault == "cut answer" and answer.body:
        connection.sendall(answer.head + MARK + half)
    elif fault == OTHER_ETAG:
        head = re.sub(rb"(?im)^etag:[^\r]*", b'ETag: "of another kind"', answer.head)
        connection.sendall(head + MARK + answer.body)
    elif fault == "short answer" and _field(answer.head, b"x-amz-checksum-sha256") and half:
        # Length and bytes agree; only the checksum of the store can tell.
        length = b"Content-Length: %d" % len(half)
        head = re.sub(rb"(?im)^content-length:[^\r]*", length, answer.head)
        connection.sendall(head + MARK + half)
    else:
        connection.sendall(answer.whole)


def _field(head: bytes, name: bytes) -> bytes:
    match = re.search(rb"(?im)^" + name + rb":\s*([^\r]*)", head)
    return match[1] if match else b""


def _refusal(status: str) -> bytes:
    body = f"<Error><Code>{CODES[status]}</Code><Message>injected</Message></Error>".encode()
    head = f"HTTP/1.1 {status} Injected\r\nContent-Type: application/xml\r\nConnection: close"
    return f"{head}\r\nContent-Length: {len(body)}\r\n\r\n".encode() + body


def _is_gone(connection: socket.socket) -> bool:
    """Every client here sends one request and then only listens, or closes."""
    readable, _, _ = select.select([connection], [], [], 0)
    return bool(readable)


def _reset(connection: socket.socket) -> None:
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))


def _wait_for_the_end(connection: socket.socket) -> None:
    while connection.recv(65_536):
        pass
