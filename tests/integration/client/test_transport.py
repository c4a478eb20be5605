"""One hub over HTTP: what is asked again, how long is waited, and what is no answer."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from support.client import client_producer
from support.local_http import Answering, served
from veen.client.credentials import Bearer
from veen.client.transport import MAX_WAIT_SEC, HubRefused, RetryPolicy, Transport, Unreachable
from veen.errors import Code, Failure, Malformed, Rejected
from veen.wire.api import ErrorEnvelope, ReadyResponse, SubmitRequest

GOOD = ReadyResponse(ok=True, hub_ts=7)
RETRY = RetryPolicy(attempts=3, first_sec=1.0, most_sec=4.0, timeout_sec=1.0)
Answer = tuple[int, dict[str, str], bytes]


class Server:
    """Answers what it was given, in turn, and remembers who asked how."""

    def __init__(self) -> None:
        self.answers: list[Answer | None] = []
        self.asked: list[tuple[str, dict[str, str], bytes]] = []
        self.peers: set[Any] = set()
        self.url = ""

    def handler(self) -> type[Answering]:
        server = self

        class Handler(Answering):
            protocol_version = "HTTP/1.1"

            def get(self) -> None:
                server.asked.append((self.path, dict(self.headers), self.body()))
                server.peers.add(self.client_address)
                answer = server.answers.pop(0)
                if answer is None:
                    self.close_connection = True
                    return
                status, headers, body = answer
                self.say(status, body, headers)

            post = get

        return Handler


@pytest.fixture
def server() -> Iterator[Server]:
    result = Server()
    with served(result.handler()) as result.url:
        yield result


@pytest.fixture
def waits() -> list[float]:
    return []


@pytest.fixture
def make(server: Server, waits: list[float]) -> Iterator[Callable[..., Transport]]:
    transports: list[Transport] = []

    def transport(**more: Any) -> Transport:
        around = client_producer.a_world(sleep=waits.append, random=random.Random(5).randbytes)
        usual: dict[str, Any] = {"runtime": around, "retry_policy": RETRY}
        transports.append(Transport(server.url, **(usual | more)))
        return transports[-1]

    yield transport
    for item in transports:
        item.close()


def good() -> Answer:
    return 200, {}, GOOD.encode()


def error(status: int, headers: dict[str, str] | None = None, **fields: Any) -> Answer:
    return status, headers or {}, ErrorEnvelope(message="no", **fields).encode()


def test_one_connection_serves_many_requests(server: Server, make: Callable[..., Any]) -> None:
    transport = make()
    server.answers += [good() for _ in range(5)]
    assert [transport.get("/readyz", ReadyResponse) for _ in range(5)] == [GOOD] * 5
    assert len(server.peers) == 1


@pytest.mark.parametrize(
    "nothing", [None, (200, {}, b"\xff"), (200, {}, GOOD.encode()[:-1]), (502, {}, b"<html>")]
)
def test_what_is_no_answer_is_asked_for_again(
    nothing: Answer | None, server: Server, make: Callable[..., Any], waits: list[float]
) -> None:
    server.answers += [nothing, nothing, good()]
    assert make().get("/readyz", ReadyResponse) == GOOD
    assert len(waits) == 2
    assert 0 <= waits[0] < 1
    assert 0 <= waits[1] < 2


def test_after_the_last_attempt_it_is_reported(server: Server, make: Callable[..., Any]) -> None:
    transport = make()
    server.answers += [None] * 3
    with pytest.raises(Unreachable, match="does not answer"):
        transport.get("/readyz", ReadyResponse)
    server.answers += [(200, {}, b"")] * 3
    with pytest.raises(Malformed):
        transport.get("/readyz", ReadyResponse)
    server.answers += [(503, {}, b"<html>")] * 3
    with pytest.raises(Unreachable, match="503 without an error envelope"):
        transport.get("/readyz", ReadyResponse)
    assert len(server.asked) == 9


def test_retry_after_is_waited_for_but_not_for_ever(
    server: Server, make: Callable[..., Any], waits: list[float]
) -> None:
    busy = {"code": Code.UNAVAILABLE.value}
    server.answers += [error(503, {"Retry-After": "3"}, **busy)]
    server.answers += [error(503, {"Retry-After": "99999999"}, **busy), good()]
    assert make().get("/readyz", ReadyResponse) == GOOD
    assert 3 <= waits[0] < 4
    assert MAX_WAIT_SEC <= waits[1] < MAX_WAIT_SEC + 2


@pytest.mark.parametrize("advice", ["-1", "1.5", "tomorrow", "", "٣"])
def test_other_advice_is_none(
    advice: str, server: Server, make: Callable[..., Any], waits: list[float]
) -> None:
    headers = {"Retry-After": advice.encode().decode("latin-1")}
    server.answers += [error(503, headers, code=Code.UNAVAILABLE.value), good()]
    assert make().get("/readyz", ReadyResponse) == GOOD
    assert waits[0] < 1


def test_a_refusal_is_an_answer(
    server: Server, make: Callable[..., Any], waits: list[float]
) -> None:
    detail = {"receipt": b"bytes", "stream_seq": 4, "detail_enum": "DUPLICATE"}
    server.answers += [error(409, code="E.SEQ", detail=detail)]
    with pytest.raises(Rejected) as caught:
        make().post("/v1/submit", SubmitRequest(msg=b"\x01"), ReadyResponse)
    value = caught.value
    assert (value.failure, value.stream_seq, value.receipt) == (Failure.DUPLICATE, 4, b"bytes")
    server.answers += [error(403, code="E.FORBIDDEN", retry_after=5)]
    with pytest.raises(HubRefused) as refused:
        make().get("/readyz", ReadyResponse)
    assert (refused.value.code, refused.value.retry_after) == ("E.FORBIDDEN", 5)
    assert refused.value.is_about_access
    assert waits == []


def test_an_endless_answer_is_cut_off(server: Server, make: Callable[..., Any]) -> None:
    server.answers += [(200, {}, bytes(1_001))] * 3
    with pytest.raises(Malformed, match="at most 1000 bytes"):
        make(max_answer_bytes=1_000).get("/readyz", ReadyResponse)


def test_a_silent_hub_is_not_waited_for_longer_than_said(waits: list[float]) -> None:
    with client_producer.silent_port() as port:
        transport = Transport(
            f"http://127.0.0.1:{port}",
            runtime=client_producer.a_world(sleep=waits.append),
            retry_policy=RetryPolicy(attempts=2, timeout_sec=0.05),
        )
        with pytest.raises(Unreachable):
            transport.get("/readyz", ReadyResponse)
        transport.close()
    assert len(waits) == 1


def test_no_redirect_is_followed_and_credentials_go_along(
    server: Server, make: Callable[..., Any]
) -> None:
    server.answers += [(307, {"Location": "http://127.0.0.1:9/"}, b"")] * 3
    with pytest.raises(Unreachable, match="307"):
        make(credentials=Bearer("token")).get("/readyz", ReadyResponse)
    assert [headers["Authorization"] for _, headers, _ in server.asked] == ["Bearer token"] * 3


@given(st.integers(0, 10**6), st.none() | st.integers(0, 60), st.floats(0, 1, exclude_max=True))
def test_a_pause_is_jittered_under_a_bound(
    attempt: int, retry_after: int | None, fraction: float
) -> None:
    least = retry_after or 0
    pause = RETRY.pause(attempt, retry_after, fraction)
    assert least <= pause <= least + min(4.0, 2.0 ** min(attempt, 20))
