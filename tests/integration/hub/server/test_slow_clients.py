"""Clients that dawdle, or announce more than the hub takes, hold up nobody."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, suppress
from typing import Any

import pytest

from support.hub import spec_objects

SLOW = 40
REQUEST_TIMEOUT_SEC = 2
# Forty dawdlers take the sixteen threads in three rounds, each a timeout and the loop's second.
DEADLINE_SEC = 20.0
TOML = f"""
admission = "open"
reads = "open"
request_timeout_sec = {REQUEST_TIMEOUT_SEC}
"""
HEAD = b"POST %b HTTP/1.1\r\nHost: hub\r\nContent-Type: application/cbor\r\n"
PARTIAL_HEADER = HEAD % b"/v1/submit" + b"X-Half"
PARTIAL_BODY = HEAD % b"/v1/submit" + b"Content-Length: 1000\r\n\r\n\xa2\x01\x01\x02"


@pytest.fixture(scope="module")
def hub(make_shared_hub: Callable[..., Any]) -> Any:
    return make_shared_hub(toml=TOML).start()


@pytest.fixture
def dial(hub: Any) -> Iterator[Callable[..., socket.socket]]:
    with ExitStack() as stack:

        def connect(first: bytes = b"") -> socket.socket:
            line = socket.create_connection(("127.0.0.1", hub.port), timeout=DEADLINE_SEC)
            stack.enter_context(line)
            line.sendall(first)
            return line

        yield connect


@pytest.mark.parametrize(
    "sent",
    [
        pytest.param(b"", id="nothing"),
        pytest.param(PARTIAL_HEADER, id="half a header"),
        pytest.param(PARTIAL_BODY, id="half a body"),
    ],
)
def test_half_sent_requests_hold_up_nobody(
    sent: bytes, stream: str, hub: Any, dial: Callable[..., socket.socket]
) -> None:
    client = hub.client(timeout=DEADLINE_SEC)
    lines = [dial(sent) for _ in range(SLOW)]
    began = time.monotonic()
    assert client.submit(client.writer(spec_objects.key("alice"), stream).msg(b"in time"))[2] == 1
    assert time.monotonic() - began < DEADLINE_SEC
    if sent:
        for line in lines:
            line.settimeout(max(began + 2 * DEADLINE_SEC - time.monotonic(), 0.1))
            _read_to_end(line)


def test_one_byte_at_a_time_holds_up_nobody(
    stream: str, hub: Any, dial: Callable[..., socket.socket]
) -> None:
    client = hub.client(timeout=DEADLINE_SEC)
    lines, closed = [dial() for _ in range(SLOW)], threading.Event()

    def drip() -> None:
        """A byte on every line ten times a second, until the hub has closed them all."""
        left = list(lines)
        for at in range(len(PARTIAL_BODY) * 100):
            left = [item for item in left if _send(item, b"P" if at == 0 else b"x")]
            if not left:
                closed.set()
                return
            time.sleep(0.1)

    thread = threading.Thread(target=drip, daemon=True)
    thread.start()
    began = time.monotonic()
    assert client.submit(client.writer(spec_objects.key("alice"), stream).msg(b"in time"))[2] == 1
    assert time.monotonic() - began < DEADLINE_SEC
    assert closed.wait(2 * DEADLINE_SEC), "a dripping client was let go on"
    thread.join()


def test_idle_connections_do_not_delay_a_stop(hub: Any, dial: Callable[..., socket.socket]) -> None:
    for _ in range(SLOW):
        dial()
    began = time.monotonic()
    assert hub.stop() == 0
    took = time.monotonic() - began
    hub.start()
    assert took < 15


@pytest.mark.parametrize(
    ("path", "code"),
    [
        (b"/v1/submit", b"E.SIZE"),
        (b"/v1/submit_batch", b"E.LIMIT"),
        (b"/v1/stream", b"E.LIMIT"),
        (b"/tooling/authorize", b"E.LIMIT"),
    ],
)
def test_an_announced_length_too_large_is_refused_before_the_body(
    path: bytes, code: bytes, hub: Any, dial: Callable[..., socket.socket]
) -> None:
    line = dial(HEAD % path + b"Content-Length: 2000000000\r\n\r\n")
    line.settimeout(5)
    answer = line.recv(4_096)
    assert answer.startswith(b"HTTP/1.1 413 ")
    assert code in answer + _read_to_end(line)


def test_a_chunked_body_too_large_is_refused(hub: Any, dial: Callable[..., socket.socket]) -> None:
    line = dial(HEAD % b"/v1/submit" + b"Transfer-Encoding: chunked\r\n\r\n")
    for _ in range(9):
        line.sendall(b"20000\r\n" + bytes(0x20000) + b"\r\n")
    line.sendall(b"0\r\n\r\n")
    answer = _read_to_end(line)
    assert answer.startswith(b"HTTP/1.1 413 ")
    assert b"E.SIZE" in answer


def test_a_chunked_body_without_end_is_cut_off(
    stream: str, hub: Any, dial: Callable[..., socket.socket]
) -> None:
    line = dial(HEAD % b"/v1/submit_batch" + b"Transfer-Encoding: chunked\r\n\r\n")
    chunk, sent = b"100000\r\n" + bytes(0x100000) + b"\r\n", 0
    deadline = time.monotonic() + DEADLINE_SEC
    while _send(line, chunk):
        sent += 1
        assert time.monotonic() < deadline, f"the hub took {sent} MiB and wanted more"
    client = hub.client()
    assert (
        client.submit(client.writer(spec_objects.key("alice"), stream).msg(b"still there"))[2] == 1
    )


def _send(line: socket.socket, data: bytes) -> bool:
    """Whether the other end still takes it."""
    try:
        line.sendall(data)
        line.setblocking(False)
        return line.recv(1, socket.MSG_PEEK) != b""
    except BlockingIOError:
        return True
    except OSError:
        return False
    finally:
        with suppress(OSError):
            line.settimeout(DEADLINE_SEC)


def _read_to_end(line: socket.socket) -> bytes:
    """All the hub says until it closes the connection; a timeout is a failure."""
    received = b""
    try:
        while part := line.recv(65_536):
            received += part
    except ConnectionResetError:
        return received
    return received
