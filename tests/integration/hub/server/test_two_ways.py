"""A request gets the same response in the event loop, by Flask behind it, and by threads alone."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import cbor2
import httpx
import pytest

from support.hub import hub_process, spec_objects
from support.hub.raw_http import Response, chunked, post, raw_line
from zone.services import free_port

TOML = 'admission = "open"\nreads = "open"\nworkers = 1\n'
STREAM = "record/a"
UNCOMPARED = {"Date", "X-Request-Id"}
TOO_MANY = b"\xa2\x01\x01\x02\x99\x10\x01" + b"\x40" * 4097
ACCEPT_WITH_QUALITY = b"Accept: application/cbor;q=0.9"
"""It asks for CBOR, too, but is not plain: Flask serves it."""


@pytest.fixture(scope="module")
def hub(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    with hub_process.hub_in(tmp_path_factory.mktemp("ways"), TOML) as result:
        yield result


@pytest.fixture(scope="module")
def threaded_port(hub: Any) -> Iterator[int]:
    """The port of a second edge of the same hub, which is Flask under gunicorn's threads."""
    port, tests = free_port(), Path(__file__).parents[3]
    listen = f"127.0.0.1:{port}"
    command = [sys.executable, "-m", "support.hub.threaded_edge", hub.data, hub.config, listen]
    process = subprocess.Popen(list(map(str, command)), cwd=tests)
    try:
        hub_process.wait_until(lambda: _answers(port), 60, "the threaded edge")
        yield port
    finally:
        process.terminate()
        process.wait(30)


def _answers(port: int) -> bool:
    try:
        return httpx.get(f"http://127.0.0.1:{port}/readyz", timeout=5).status_code == 200
    except httpx.HTTPError:
        return False


@pytest.fixture(scope="module")
def writer(hub: Any) -> Any:
    result = hub.client().writer(spec_objects.key("alice"), STREAM)
    hub.client().submit(result.msg(b"first"))
    return result


def ask(port: int, request: bytes) -> Response:
    with raw_line(port, request) as line:
        return line.response(has_body=not request.startswith(b"HEAD"))


def compared(response: Response) -> tuple[int, dict[str, str], bytes]:
    """What must be the same: all but the time and the identifier of the request."""
    headers = {name: value for name, value in response.headers.items() if name not in UNCOMPARED}
    identifier = response.headers["X-Request-Id"].encode()
    assert re.fullmatch(rb"[0-9a-f]{16}", identifier)
    return response.status, headers, response.body.replace(identifier, b"request_id")


def msg_bytes(msg: list[Any]) -> bytes:
    return cbor2.dumps({1: 1, 2: msg})


def batch_bytes(msgs: list[Any]) -> bytes:
    return cbor2.dumps({1: 1, 2: msgs})


def get(path: str) -> bytes:
    return f"GET {path} HTTP/1.1\r\nHost: hub\r\n\r\n".encode()


Build = Callable[[list[Any]], bytes]
REFUSED: dict[str, Build] = {
    "duplicate": lambda msg: post("/v1/submit", msg_bytes(msg)),
    "wrong signature": lambda msg: post("/v1/submit", msg_bytes([*msg[:9], bytes(64)])),
    "wrong version of a message": lambda msg: post("/v1/submit", msg_bytes([2, *msg[1:]])),
    "sequence gap": lambda msg: post("/v1/submit", msg_bytes(_gap(msg))),
    "duplicate in a batch": lambda msg: post("/v1/submit_batch", batch_bytes([msg])),
    "mixed batch": lambda msg: post("/v1/submit_batch", batch_bytes([msg, [*msg[:9], bytes(64)]])),
    "empty batch": lambda _: post("/v1/submit_batch", batch_bytes([])),
    "huge count": lambda _: post("/v1/submit_batch", b"\xa2\x01\x01\x02\x9a\xff\xff\xff\xff"),
    "too many": lambda _: post("/v1/submit_batch", TOO_MANY),
    "malformed": lambda _: post("/v1/submit", b"\xa2\x01"),
    "not deterministic": lambda _: post("/v1/submit", b"\xa2\x02\x40\x01\x01"),
    "empty": lambda _: post("/v1/submit", b""),
    "unknown field": lambda msg: post("/v1/submit", cbor2.dumps({1: 1, 2: msg, 9: 1})),
    "missing field": lambda _: post("/v1/submit", cbor2.dumps({1: 1})),
    "wrong version": lambda msg: post("/v1/submit", cbor2.dumps({1: 2, 2: msg})),
    "trailing bytes": lambda msg: post("/v1/submit", msg_bytes(msg) + b"\x00"),
    "JSON": lambda _: post("/v1/submit", b'{"ver":1}', content_type=b"application/json"),
    "text": lambda _: post("/v1/submit", b"hello", content_type=b"text/plain"),
    "no type": lambda msg: post("/v1/submit", msg_bytes(msg)).replace(
        b"Content-Type: application/cbor\r\n", b""
    ),
    "type with a parameter": lambda msg: post(
        "/v1/submit", msg_bytes(msg), content_type=b"application/cbor; v=1"
    ),
    "type in capitals": lambda msg: post(
        "/v1/submit", msg_bytes(msg), content_type=b"Application/CBOR"
    ),
    "content coding": lambda msg: post("/v1/submit", msg_bytes(msg), b"Content-Encoding: gzip"),
    "JSON wanted": lambda msg: post("/v1/submit", msg_bytes(msg), b"Accept: application/json"),
    "anything wanted": lambda msg: post("/v1/submit", msg_bytes(msg), b"Accept: */*"),
    "query string": lambda msg: post("/v1/submit?a=b", msg_bytes(msg)),
    "chunked": lambda msg: chunked("/v1/submit", msg_bytes(msg)),
    "chunked batch": lambda msg: chunked("/v1/submit_batch", batch_bytes([msg]), 64),
    "expect": lambda msg: post("/v1/submit", msg_bytes(msg), b"Expect: 100-continue"),
    "connection close": lambda msg: post("/v1/submit", msg_bytes(msg), b"Connection: close"),
    "slash": lambda msg: post("/v1/submit/", msg_bytes(msg)),
    "double slash": lambda msg: post("//v1/submit", msg_bytes(msg)),
    "other version": lambda msg: post("/v9/submit", msg_bytes(msg)),
    "encoded path": lambda msg: post("/v1/%73ubmit", msg_bytes(msg)),
    "GET": lambda _: get("/v1/submit"),
    "HEAD": lambda _: b"HEAD /v1/submit HTTP/1.1\r\nHost: hub\r\n\r\n",
    "HEAD of a read": lambda _: b"HEAD /healthz HTTP/1.1\r\nHost: hub\r\n\r\n",
    "PUT": lambda msg: post("/v1/submit", msg_bytes(msg)).replace(b"POST", b"PUT", 1),
    "unknown path": lambda _: get("/nowhere?x=%20y"),
    "HTTP/1.0": lambda msg: post("/v1/submit", msg_bytes(msg)).replace(b"HTTP/1.1", b"HTTP/1.0", 1),
    "repeated header": lambda msg: post("/v1/submit", msg_bytes(msg), b"X-A: 1", b"X-A: 2"),
    "GET with a query": lambda _: get("/tooling/capability?auth_ref=" + "00" * 32),
    "openapi": lambda _: get("/openapi.json"),
    "upgrade": lambda _: (
        b"GET /v1/submit HTTP/1.1\r\nHost: hub\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n"
        b"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\n\r\n"
    ),
}  # fmt: skip


def _gap(msg: list[Any]) -> list[Any]:
    writer = spec_objects.Writer(spec_objects.key("alice"), msg[2], seq=98)
    early: list[Any] = writer.msg(b"too early")
    return early


@pytest.mark.parametrize("build", REFUSED.values(), ids=REFUSED.keys())
def test_both_edges_give_the_same_response(
    build: Build, hub: Any, threaded_port: int, writer: Any
) -> None:
    first = spec_objects.Writer(writer.key, writer.label).msg(b"first")
    request = build(first)
    assert compared(ask(hub.port, request)) == compared(ask(threaded_port, request))


@pytest.mark.parametrize(
    "name", ["duplicate", "wrong signature", "sequence gap", "mixed batch", "malformed", "empty"]
)
def test_the_short_way_and_flask_give_the_same_response(name: str, hub: Any, writer: Any) -> None:
    plain = REFUSED[name](spec_objects.Writer(writer.key, writer.label).msg(b"first"))
    by_flask = plain.replace(b"\r\n\r\n", b"\r\n" + ACCEPT_WITH_QUALITY + b"\r\n\r\n", 1)
    assert compared(ask(hub.port, plain)) == compared(ask(hub.port, by_flask))


@pytest.mark.parametrize("path", ["/v1/submit", "/v1/submit_batch", "/v1/stream", "/nowhere"])
def test_an_announced_size_above_the_limit_gets_the_same_response(
    path: str, hub: Any, threaded_port: int
) -> None:
    request = post(path, b"").replace(b"Content-Length: 0", b"Content-Length: 2000000000")
    _same_and_closed(ask(hub.port, request), ask(threaded_port, request))


@pytest.mark.parametrize("path", ["/v1/submit", "/v1/stream"])
def test_a_chunked_body_above_the_limit_gets_the_same_response(
    path: str, hub: Any, threaded_port: int
) -> None:
    request = chunked(path, bytes(1_200_000), 65_536)
    _same_and_closed(ask(hub.port, request), ask(threaded_port, request))


def _same_and_closed(ours: Response, theirs: Response) -> None:
    """Both close the connection, whose body was not read; the threads do not say so before."""
    assert ours.headers.pop("Connection") == "close"
    theirs.headers.pop("Connection")
    assert compared(ours) == compared(theirs)


def test_receipts_have_the_same_form_by_all_ways(hub: Any, threaded_port: int, stream: str) -> None:
    client = hub.client()
    bob = client.writer(spec_objects.key("bob"), stream)
    ways: list[tuple[int, tuple[bytes, ...]]] = [
        (hub.port, ()),
        (hub.port, (ACCEPT_WITH_QUALITY,)),
        (threaded_port, ()),
    ]
    log, forms = client.log(bob.label), []
    for port, lines in ways:
        single, batched = bob.msg(b"one"), [bob.msg(b"two"), bob.msg(b"three")]
        alone = ask(port, post("/v1/submit", msg_bytes(single), *lines))
        together = ask(port, post("/v1/submit_batch", batch_bytes(batched), *lines))
        submitted, several = cbor2.loads(alone.body), cbor2.loads(together.body)
        log.add(single, submitted[2])
        for msg, result in zip(batched, several[2], strict=True):
            log.add(msg, result[1])
        for response in (alone, together):
            for name in UNCOMPARED:
                del response.headers[name]
        forms.append((alone.headers, set(submitted), together.headers, set(several), submitted[3]))
    assert forms[0] == forms[1] == forms[2]


def test_a_submit_is_counted_once_by_each_way(hub: Any, stream: str) -> None:
    client = hub.client()
    carol = client.writer(spec_objects.key("carol"), stream)
    before = _counted(hub)
    for lines in ((), (ACCEPT_WITH_QUALITY,)):
        assert ask(hub.port, post("/v1/submit", msg_bytes(carol.msg(b"x")), *lines)).status == 200
    after = _counted(hub)
    grown = {name: after[name] - before.get(name, 0) for name in after}
    for name in (
        "veen_submit_ok_total", "veen_verify_latency_ms_count", "veen_commit_latency_ms_count",
        "veen_end_to_end_latency_ms_count",
    ):  # fmt: skip
        assert grown[name] == 2, name
    assert after["veen_queue_depth"] == 0


def _counted(hub: Any) -> dict[str, float]:
    text = httpx.get(f"{hub.url}/metrics", trust_env=False).text
    lines = (line.rsplit(" ", 1) for line in text.splitlines() if not line.startswith("#"))
    return {name: float(value) for name, value in lines}
