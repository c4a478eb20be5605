"""Connections as the event loop of a worker sees them: pipelined, half closed, idle, slow, many."""

from __future__ import annotations

import signal
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import cbor2
import psutil  # type: ignore[import-untyped]
import pytest

from support.hub import hub_load, hub_process, spec_objects
from support.hub.raw_http import RawLine, chunked, post, raw_line, submit

TOML = 'admission = "open"\nreads = "open"\nbody_timeout_sec = 20\n'
IDLE, SLOW, MEANWHILE = 1_000, 500, 50
ONE_BYTE = post("/v1/submit", b"\xa2").replace(b"Content-Length: 1", b"Content-Length: 1000")


@pytest.fixture(scope="module")
def hub(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    with hub_process.hub_in(tmp_path_factory.mktemp("loop"), TOML) as result:
        yield result


@pytest.fixture
def writer(hub: Any, stream: str) -> Any:
    return hub.client().writer(spec_objects.key("alice"), stream)


def seq_of(body: bytes) -> int:
    return int(cbor2.loads(body)[2][2])


def web_processes(hub: Any) -> tuple[psutil.Process, list[psutil.Process]]:
    """gunicorn's arbiter and its workers; the sequencer has no children."""
    (arbiter,) = (child for child in hub.processes()[0].children() if child.children())
    return arbiter, arbiter.children()


def test_pipelined_requests_are_answered_in_order(hub: Any, writer: Any) -> None:
    msgs = [writer.msg(b"%d" % number) for number in range(5)]
    health = b"GET /healthz HTTP/1.1\r\nHost: hub\r\n\r\n"
    with raw_line(hub.port) as line:
        line.send(b"".join(submit(msg) for msg in msgs) + health + submit(writer.msg(b"last")))
        answers = [line.response() for _ in range(7)]
    assert [seq_of(answer.body) for answer in (*answers[:5], answers[6])] == [1, 2, 3, 4, 5, 6]
    assert answers[5].headers["Content-Type"] == "application/json"


def test_a_client_that_has_finished_sending_is_answered(hub: Any, writer: Any) -> None:
    with raw_line(hub.port) as line:
        line.send(submit(writer.msg(b"1")) + submit(writer.msg(b"2")))
        line.finish_sending()
        assert [seq_of(line.response().body) for _ in range(2)] == [1, 2]
        assert line.is_closed()


def test_a_body_that_ends_early_is_not_answered(hub: Any, writer: Any) -> None:
    """Its bytes may be a whole message; the announced size says that they are not."""
    whole = cbor2.dumps({1: 1, 2: writer.msg(b"1")})
    announced = b"Content-Length: %d" % (len(whole) + 1)
    request = post("/v1/submit", whole).replace(b"Content-Length: %d" % len(whole), announced)
    with raw_line(hub.port, request) as line:
        line.finish_sending()
        assert line.is_closed()
    with raw_line(hub.port, post("/v1/submit", whole)) as line:
        assert seq_of(line.response().body) == 1


def test_a_byte_at_a_time_is_read_in_the_end(hub: Any, writer: Any) -> None:
    for request in (submit(writer.msg(b"1")), chunked("/v1/submit", _body(writer))):
        with raw_line(hub.port) as line:
            for at in range(0, len(request), 16):
                line.send(request[at : at + 16])
            assert line.response().status == 200


def _body(writer: Any) -> bytes:
    return bytes(cbor2.dumps({1: 1, 2: writer.msg(b"2")}))


def test_a_refusal_reaches_a_client_that_still_sends(hub: Any) -> None:
    """The rest of the body is discarded; a reset connection would lose the response."""
    body = bytes(4 << 20)
    with raw_line(hub.port) as line:
        line.send(post("/v1/submit", body))
        assert line.response().status == 413
        assert line.is_closed()


def test_a_body_that_ends_just_past_its_limit_closes_the_connection(hub: Any) -> None:
    """Whether or not its last bytes have arrived when it is refused."""
    limit = 1_048_576 + 1_024
    for size, step in ((limit + 1, limit + 1), (limit + 1, 65_536), (limit + 70_000, 131_072)):
        with raw_line(hub.port, chunked("/v1/submit", bytes(size), step)) as line:
            answer = line.response()
            assert (answer.status, answer.headers["Connection"]) == (413, "close")
            assert line.is_closed()


def test_submits_go_on_beside_idle_connections_and_slow_bodies(hub: Any, writer: Any) -> None:
    with ExitStack() as stack:
        for first, count in ((b"", IDLE), (ONE_BYTE, SLOW)):
            for _ in range(count):
                stack.enter_context(raw_line(hub.port, first))
        with raw_line(hub.port) as line:
            for number in range(1, MEANWHILE + 1):
                line.send(submit(writer.msg(b"%d" % number)))
                assert seq_of(line.response().body) == number
    log = hub.log.read_text()
    assert "Traceback" not in log
    assert "Too many open files" not in log


def test_slow_bodies_are_cut_off_and_a_steady_one_is_not(
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    toml = 'admission = "open"\nreads = "open"\nbody_timeout_sec = 1\n'
    with hub_process.hub_in(tmp_path_factory.mktemp("slow"), toml) as hub, ExitStack() as stack:
        slow = [stack.enter_context(raw_line(hub.port, ONE_BYTE)) for _ in range(20)]
        steady = stack.enter_context(raw_line(hub.port))
        steady.send(post("/v1/submit", b"").replace(b"h: 0", b"h: 200000"))
        for _ in range(10):
            steady.send(bytes(20_000))
            time.sleep(0.3)
        assert steady.response().status == 400
        assert all(line.is_closed() for line in slow)


def test_responses_that_nobody_reads_take_bounded_memory(
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    """Each asks for a page of 8 MiB; a worker holds 128 MiB of them."""
    toml = 'admission = "open"\nreads = "open"\nworkers = 1\n'
    with hub_process.hub_in(tmp_path_factory.mktemp("pages"), toml) as hub, ExitStack() as stack:
        client = hub.client()
        writer = client.writer(spec_objects.key("alice"), "record/a")
        for number in range(9):
            client.submit(writer.msg(b"%d" % number * 1_000_000))
        page = post("/v1/stream", cbor2.dumps({1: 1, 2: writer.label, 3: 1}))
        lines = [stack.enter_context(raw_line(hub.port, page)) for _ in range(40)]
        statuses = [line.socket.recv(12) for line in lines]
        assert set(statuses) == {b"HTTP/1.1 200", b"HTTP/1.1 503"}
        assert statuses.count(b"HTTP/1.1 200") < 20
        client.submit(writer.msg(b"still served"))


def test_a_stop_lets_requests_under_way_end(tmp_path_factory: pytest.TempPathFactory) -> None:
    with hub_process.hub_in(tmp_path_factory.mktemp("stop"), TOML) as hub, ExitStack() as stack:
        client = hub.client()
        writer = client.writer(spec_objects.key("alice"), "record/a")
        client.http.close()
        lines: list[tuple[RawLine, bytes]] = []
        for number in range(20):
            request = submit(writer.msg(b"%d" % number))
            line = stack.enter_context(raw_line(hub.port, request[:-10]))
            lines.append((line, request[-10:]))
        idle = [stack.enter_context(raw_line(hub.port)) for _ in range(20)]
        time.sleep(0.5)  # all are accepted
        arbiter, workers = web_processes(hub)
        arbiter.send_signal(signal.SIGTERM)
        assert all(line.is_closed() for line in idle)
        for number, (line, rest) in enumerate(lines, 1):
            line.send(rest)
            answer = line.response()
            assert seq_of(answer.body) == number
            assert answer.headers["Connection"] == "close"
            assert line.is_closed()
        hub.wait_for_end()
        assert not any(map(hub_process.is_alive, workers))


def test_a_killed_worker_is_replaced_and_no_receipt_is_lost(hub: Any, stream: str) -> None:
    producers = [
        hub_load.Producer(hub.client().writer(spec_objects.key(f"k{n}"), stream)) for n in range(4)
    ]
    for _ in range(2):
        with hub_load.working(hub, producers):
            hub_load.wait_for_promises(producers, 8)
            _replace_a_worker(hub)
    client = hub.client()
    for producer in producers:
        producer.send(client)
    log = client.read(client.log(producers[0].writer.label))
    for producer in producers:
        assert all(log.entries[receipt[2] - 1][1] == receipt for receipt in producer.promised)
    assert sum(len(producer.promised) for producer in producers) == log.mmr.size


def _replace_a_worker(hub: Any) -> None:
    """Kill a worker, and wait until there are as many as before."""
    _, before = web_processes(hub)
    before[0].kill()

    def is_replaced() -> bool:
        return len(set(web_processes(hub)[1]) - {before[0]}) == len(before)

    hub_process.wait_until(is_replaced, 30, "another worker")


def test_a_certificate_that_cannot_be_read_ends_the_hub(tmp_path: Path) -> None:
    """It must not serve without TLS."""
    cert = tmp_path / "cert.pem"
    cert.write_text("not a certificate")
    hub = hub_process.HubProcess(tmp_path, "--tls-cert", cert, "--tls-key", cert)
    hub.launch()
    assert hub.process is not None
    try:
        assert hub.process.wait(60) != 0
    finally:
        hub.destroy()
    assert "cert" in hub.log.read_text()
