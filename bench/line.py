"""A kept-alive HTTP connection that costs its process next to nothing: requests are made ready."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, Self

CBOR: Final = "application/cbor"
_END: Final = b"\r\n\r\n"
_LENGTH: Final = b"content-length:"


@dataclass(frozen=True, slots=True)
class Answer:
    status: int
    body: bytes
    seconds: float


class Line:
    def __init__(self, port: int) -> None:
        self._socket = socket.create_connection(("127.0.0.1", port), timeout=120)
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.port = int(self._socket.getsockname()[1])

    def close(self) -> None:
        self._socket.close()

    @staticmethod
    def post(path: str, body: bytes) -> bytes:
        head = f"POST {path} HTTP/1.1\r\nHost: hub\r\nContent-Type: {CBOR}\r\n"
        return f"{head}Content-Length: {len(body)}\r\n\r\n".encode() + body

    @staticmethod
    def get(path: str) -> bytes:
        return f"GET {path} HTTP/1.1\r\nHost: hub\r\n\r\n".encode()

    def ask(self, request: bytes, status: int = 200) -> Answer:
        """One request and its answer, which must have that status."""
        begun = time.perf_counter()
        self._socket.sendall(request)
        head, body = self._read_head()
        size = int(head.lower().partition(_LENGTH)[2].split(b"\r\n", 1)[0])
        while len(body) < size:
            body += self._read()
        answer = Answer(int(head[9:12]), body, time.perf_counter() - begun)
        if answer.status != status:
            raise AssertionError(f"{answer.status} where {status} is due: {body!r:.300}")
        return answer

    def _read_head(self) -> tuple[bytes, bytes]:
        data = self._read()
        while _END not in data:
            data += self._read()
        head, _, rest = data.partition(_END)
        return head, rest

    def _read(self) -> bytes:
        data = self._socket.recv(1 << 20)
        if not data:
            raise ConnectionResetError("the hub closed the connection")
        return data

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


@dataclass(frozen=True, slots=True)
class Run:
    """What came of requests sent over several lines at once: per line, the answers in order."""

    seconds: float
    answers: list[list[Answer]]

    def latencies(self) -> list[float]:
        return sorted(item.seconds for line in self.answers for item in line)


def drive(lines: Sequence[Line], requests: Sequence[Sequence[bytes]], status: int = 200) -> Run:
    """Each line sends its requests one after another, all lines at the same time."""
    answers: list[list[Answer]] = [[] for _ in lines]

    def send(number: int) -> None:
        for request in requests[number]:
            answers[number].append(lines[number].ask(request, status))

    threads = [threading.Thread(target=send, args=(number,)) for number in range(len(lines))]
    begun = time.perf_counter()
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    run = Run(time.perf_counter() - begun, answers)
    if [len(answer) for answer in answers] != [len(request) for request in requests]:
        raise AssertionError("a request failed; see above")
    return run
