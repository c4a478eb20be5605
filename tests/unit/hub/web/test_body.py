"""Bodies are read within the limit of their route and of their worker."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from typing import Any

import pytest

from hub.api.content import SMALL_BODY
from hub.api.submit import MAX_BATCH_BYTES, MAX_JSON_BATCH_BYTES
from hub.sequencer.committer import Unavailable
from hub.web.body import BodyMemory, Disconnected, body_bound, read_body
from hub.web.message import Message, Receive, RequestHead
from veen.limits import Limits

CBOR, JSON = (b"content-type", b"application/cbor"), (b"content-type", b"application/json")
LIMITS = Limits()


def head(path: str, *headers: tuple[bytes, bytes], query: bytes = b"") -> RequestHead:
    scope = {"method": "POST", "path": path, "headers": list(headers), "query_string": query}
    return RequestHead.of(scope)


def receiving(parts: Iterable[bytes], *, ends: bool = True) -> tuple[Receive, list[bytes]]:
    """A client that sends these parts and is gone, or has ended its body; what is left unsent."""
    left = list(parts)

    async def receive() -> Message:
        if not left:
            return {"type": "http.disconnect"}
        part = left.pop(0)
        return {"type": "http.request", "body": part, "more_body": bool(left) or not ends}

    return receive, left


def read(parts: Iterable[bytes], announced: int | None, bound: int, memory: BodyMemory) -> bytes:
    receive, _ = receiving(parts)
    headers = [CBOR] if announced is None else [CBOR, (b"content-length", b"%d" % announced)]
    with memory.holding() as held:
        return asyncio.run(read_body(receive, head("/v1/submit", *headers), bound, held))


@pytest.mark.parametrize(
    ("path", "content_type", "expected"),
    [
        ("/v1/submit", CBOR, LIMITS.max_msg_bytes + 1_024),
        ("/v1/submit", JSON, 2 * LIMITS.max_msg_bytes + 1_024),
        ("/v1/submit_batch", CBOR, MAX_BATCH_BYTES),
        ("/v1/submit_batch", JSON, MAX_JSON_BATCH_BYTES),
        ("/v1/stream", CBOR, SMALL_BODY),
        ("/nowhere", JSON, SMALL_BODY),
    ],
)
def test_the_limit_depends_on_the_route(path: str, content_type: Any, expected: int) -> None:
    assert body_bound(head(path, content_type), LIMITS) == expected


def test_a_body_of_several_parts_is_joined() -> None:
    memory = BodyMemory(10)
    assert read([b"ab", b"", b"cd"], 4, 10, memory) == b"abcd"
    assert memory.held == 0


def test_nothing_is_read_of_a_body_announced_as_too_large() -> None:
    receive, left = receiving([b"abc"])
    memory = BodyMemory()
    large = head("/v1/submit", CBOR, (b"content-length", b"11"))
    with memory.holding() as held:
        assert asyncio.run(read_body(receive, large, 10, held)) == b""
    assert left == [b"abc"]


def test_a_chunked_body_is_read_to_one_byte_past_its_limit() -> None:
    receive, left = receiving([b"x" * 6] * 5)
    with BodyMemory().holding() as held:
        body = asyncio.run(read_body(receive, head("/v1/submit", CBOR), 10, held))
    assert body == b"x" * 11
    assert len(left) == 3


def test_a_body_that_does_not_end_is_none() -> None:
    receive, _ = receiving([b"ab"], ends=False)
    memory = BodyMemory()
    announced = head("/v1/submit", CBOR, (b"content-length", b"4"))
    with memory.holding() as held, pytest.raises(Disconnected):
        asyncio.run(read_body(receive, announced, 10, held))
    assert memory.held == 0


def test_bodies_of_a_worker_have_a_limit_together() -> None:
    memory = BodyMemory(10)
    with memory.holding() as other:
        other.add(7)
        assert read([b"abc"], 3, 10, memory) == b"abc"
        with pytest.raises(Unavailable, match=r"holds 9 bytes .* at most 10 with 2 more"):
            read([b"ab", b"cd"], 4, 10, memory)
        assert memory.held == 7
    assert memory.held == 0


@pytest.mark.parametrize(
    ("headers", "query", "is_plain"),
    [
        ([CBOR, (b"content-length", b"1")], b"", True),
        ([CBOR, (b"content-length", b"1"), (b"accept", b"*/*")], b"", True),
        ([CBOR, (b"content-length", b"1"), (b"accept", b"application/json")], b"", False),
        ([CBOR, (b"content-length", b"1"), (b"content-encoding", b"gzip")], b"", False),
        ([CBOR, (b"transfer-encoding", b"chunked")], b"", False),
        ([JSON, (b"content-length", b"1")], b"", False),
        ([CBOR, (b"content-length", b"1")], b"a=b", False),
        ([CBOR], b"", False),
        ([], b"", False),
    ],
)
def test_only_a_plain_request_takes_the_short_way(
    headers: list[tuple[bytes, bytes]], query: bytes, is_plain: bool
) -> None:
    assert head("/v1/submit", *headers, query=query).is_plain is is_plain
