"""Clients that dawdle hold up nobody: their requests have a deadline (H13 with the defaults)."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Any

import pytest

from support.recorder import query_world

SLOW, THREADS = 24, 8
# The dawdlers take the threads in three rounds, each of a second and the loop's.
DEADLINE_SEC = 20.0
HEAD = (
    b"POST /api/query/submit HTTP/1.1\r\nHost: h\r\nAuthorization: Bearer the token of alice\r\n"
    b"Content-Type: application/json\r\n"
)
HALF_BODY = HEAD + b"Content-Length: 1000\r\n\r\n{"


@pytest.fixture(scope="module")
def zone(query_hub: Any, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    folder = tmp_path_factory.mktemp("slow")
    settings = {"workers": 1, "threads": THREADS}
    with query_world.closing(query_world.Zone(folder, query_hub, **settings)) as result:
        yield result.start()


@pytest.fixture
def dial(zone: Any) -> Iterator[Callable[[bytes], socket.socket]]:
    with ExitStack() as stack:

        def connect(first: bytes) -> socket.socket:
            line = socket.create_connection(("127.0.0.1", zone.port), timeout=DEADLINE_SEC)
            line.sendall(first)
            return stack.enter_context(line)

        yield connect


def answered(zone: Any) -> None:
    """Somebody else is answered in time."""
    began = time.monotonic()
    with zone.as_("alice") as alice:
        reply = alice.get(f"/api/query/status/r-{'0' * 32}")
    assert reply.status_code == 404
    assert time.monotonic() - began < DEADLINE_SEC


@pytest.mark.parametrize("sent", [HEAD + b"X-Half", HALF_BODY], ids=["header", "body"])
def test_h13_half_sent_requests_hold_up_nobody(
    zone: Any, dial: Callable[[bytes], socket.socket], sent: bytes
) -> None:
    lines = [dial(sent) for _ in range(SLOW)]
    answered(zone)
    assert [_received(line) for line in lines[:THREADS]] == [b""] * THREADS


def test_h13_one_byte_at_a_time_holds_up_nobody(
    zone: Any, dial: Callable[[bytes], socket.socket]
) -> None:
    lines, over = [dial(b"P") for _ in range(SLOW)], threading.Event()
    cut: list[socket.socket] = []

    def drip() -> None:
        left = list(lines)
        while left and not over.wait(0.1):
            cut.extend(item for item in left if not _takes(item))
            left = [item for item in left if item not in cut]

    thread = threading.Thread(target=drip, daemon=True)
    thread.start()
    try:
        answered(zone)
        thread.join(2 * DEADLINE_SEC)
        assert len(cut) == SLOW
    finally:
        over.set()
        thread.join()


def _takes(line: socket.socket) -> bool:
    try:
        line.sendall(b"x")
    except OSError:
        return False
    return True


def _received(line: socket.socket) -> bytes:
    try:
        return line.recv(65_536)
    except ConnectionResetError:
        return b""
