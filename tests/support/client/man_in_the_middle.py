"""A man in the middle: between a client and its hub, over TCP, doing what a seed tells him."""

from __future__ import annotations

import contextlib
import random
import socket
import threading
from collections import Counter, defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import cbor2

END = b"\r\n\r\n"
LENGTH = b"content-length:"
TIMEOUT = 20


class Cut(Exception):
    """The connection to the client ends here."""


@dataclass(frozen=True)
class Answer:
    head: bytes
    body: bytes

    @property
    def raw(self) -> bytes:
        return self.head + END + self.body

    @property
    def is_ok(self) -> bool:
        return b" 200 " in self.head.split(b"\r\n", 1)[0]


def answer(status: int, body: bytes) -> Answer:
    head = f"HTTP/1.1 {status} Said\r\nContent-Type: application/cbor\r\n"
    return Answer(f"{head}Content-Length: {len(body)}".encode(), body)


class Line:
    """One end of a connection, read message by message."""

    def __init__(self, end: socket.socket) -> None:
        end.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.end = end
        self._left = b""

    def read(self) -> Answer:
        data = self._left
        while END not in data:
            data += self._more()
        head, _, rest = data.partition(END)
        size = int((head.lower().partition(LENGTH)[2].split(b"\r\n", 1)[0]) or 0)
        while len(rest) < size:
            rest += self._more()
        self._left = rest[size:]
        return Answer(head, rest[:size])

    def _more(self) -> bytes:
        data = self.end.recv(1 << 16)
        if not data:
            raise Cut
        return data


class Replies(Protocol):
    def reply(self, middle: Middle, request: Answer) -> tuple[bytes, bool]:
        """What the client gets, and whether the connection can go on after it."""


class Middle:
    """Listens on a port of its own; without a plan he does nothing but listen."""

    def __init__(self, port: int) -> None:
        self._hub = port
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self._listener.getsockname()[1]}"
        self.plan: Replies | None = None
        self._line: Line | None = None
        self._lock = threading.Lock()
        threading.Thread(target=self._accept, daemon=True).start()

    def close(self) -> None:
        self._listener.close()
        with self._lock:
            if self._line is not None:
                self._line.end.close()

    def ask(self, request: bytes) -> Answer:
        """The hub's own answer."""
        with self._lock:
            for _ in range(2):
                if self._line is None:
                    result = socket.create_connection(("127.0.0.1", self._hub), timeout=TIMEOUT)
                    self._line = Line(result)
                with contextlib.suppress(OSError, Cut):
                    self._line.end.sendall(request)
                    return self._line.read()
                self._line.end.close()
                self._line = None
        raise Cut

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                end, _ = self._listener.accept()
                threading.Thread(target=self._serve, args=(end,), daemon=True).start()

    def _serve(self, end: socket.socket) -> None:
        line = Line(end)
        with contextlib.suppress(Cut, OSError), end:
            while True:
                request, plan = line.read(), self.plan
                if plan is None:
                    end.sendall(self.ask(request.raw).raw)
                else:
                    reply, is_whole = plan.reply(self, request)
                    end.sendall(reply)
                    if not is_whole:
                        return


class Memory:
    """What he has seen so far: answers by path, and the receipts in them."""

    def __init__(self) -> None:
        self.answers: dict[bytes, list[Answer]] = defaultdict(list)
        self.receipts: list[Any] = []

    def note(self, path: bytes, answer: Answer) -> None:
        if answer.is_ok:
            self.answers[path] = [*self.answers[path][-20:], answer]
        if path == b"/v1/submit_batch" and answer.is_ok:
            new = [item[1] for item in cbor2.loads(answer.body)[2] if 1 in item]
            self.receipts = [*self.receipts[-200:], *new]


class Plan:
    """Which requests are disturbed, and how; the same seed does the same to the same requests."""

    def __init__(
        self, seed: int, faults: Sequence[Fault], memory: Memory, counts: Counter[str]
    ) -> None:
        self._chance = random.Random(seed)
        self._share = self._chance.uniform(0.2, 0.7)
        self._memory = memory
        self._counts = counts
        self._held: list[tuple[int, bytes]] = []
        self._faults = self._chance.sample(faults, self._chance.randint(1, len(faults)))

    def reply(self, middle: Middle, request: Answer) -> tuple[bytes, bool]:
        """What the client gets, and whether the connection can go on after it."""
        path = request.head.split(b" ", 2)[1].split(b"?")[0]
        self._let_go(middle)
        if self._chance.random() > self._share:
            result = middle.ask(request.raw)
            self._memory.note(path, result)
            return result.raw, True
        fault = self._chance.choice(self._faults)
        self._counts[fault.__name__] += 1
        disturbed = Disturbed(middle, self._memory, self._chance, request, path, self._held)
        return fault(disturbed), False

    def end(self, middle: Middle) -> None:
        """Whatever is still held back arrives at last."""
        while self._held:
            self._let_go(middle)

    def _let_go(self, middle: Middle) -> None:
        """What was held back reaches the hub now, after what was sent later."""
        due = [raw for turns, raw in self._held if turns == 0]
        self._held[:] = [(turns - 1, raw) for turns, raw in self._held if turns]
        for raw in due:
            middle.ask(raw)


@dataclass(frozen=True)
class Disturbed:
    middle: Middle
    memory: Memory
    chance: random.Random
    request: Answer
    path: bytes
    held: list[tuple[int, bytes]]

    def ask(self) -> Answer:
        result = self.middle.ask(self.request.raw)
        self.memory.note(self.path, result)
        return result


Fault = Callable[[Disturbed], bytes]
