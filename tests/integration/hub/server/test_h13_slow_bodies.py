"""H13: clients that send one byte of a body, and no more, do not stop a hub."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any

import httpx
import pytest

from support.hub import hub_process

SLOW = 24
MOST_SEC = 10.0
"""At most three rounds of a second, with room for a busy machine; each was of 30."""
HEAD = b"POST %b HTTP/1.1\r\nHost: hub\r\nContent-Type: application/cbor\r\n"
ONE_BYTE = HEAD % b"/v1/submit" + b"Content-Length: 1000\r\n\r\n\xa2"
UNREAD = HEAD % b"/nowhere" + b"Content-Length: 1000\r\n\r\n\xa2"
CHUNKED = HEAD % b"/v1/submit" + b"Transfer-Encoding: chunked\r\n\r\n1\r\n"


@pytest.fixture(scope="module")
def hub(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """One with the settings it has by itself."""
    with hub_process.hub_in(tmp_path_factory.mktemp("h13")) as result:
        yield result


def answers(hub: Any, seconds: float) -> None:
    reply = httpx.get(f"{hub.url}/readyz", trust_env=False, timeout=seconds)
    assert reply.status_code == httpx.codes.OK


@pytest.mark.parametrize(
    "sent", [ONE_BYTE, UNREAD, CHUNKED, b"P"], ids=["body", "unread", "chunked", "head"]
)
def test_h13_one_byte_on_each_of_24_lines_does_not_stop_the_hub(hub: Any, sent: bytes) -> None:
    with ExitStack() as stack:
        for _ in range(SLOW):
            line = socket.create_connection(("127.0.0.1", hub.port), timeout=MOST_SEC)
            stack.enter_context(line).sendall(sent)
        answers(hub, MOST_SEC)


def test_h13_lines_that_say_nothing_take_no_thread(hub: Any) -> None:
    with ExitStack() as stack:
        for _ in range(10 * SLOW):
            line = socket.create_connection(("127.0.0.1", hub.port), timeout=MOST_SEC)
            stack.enter_context(line)
        answers(hub, 3)
