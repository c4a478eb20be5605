"""Whether the services of a zone answer: down, silent, not ready, ready; and never for long."""

from __future__ import annotations

import json
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from veen_page_services import Address, look, services

from support.local_http import Answering, served
from veen.system.zone_parts import FILE
from zone.services import free_port


def address(url: str) -> Any:
    return Address("Hub", url, None)


@contextmanager
def answering(status: int, body: bytes) -> Iterator[str]:
    class Handler(Answering):
        def get(self) -> None:
            self.say(status, body)

    with served(Handler) as url:
        yield url


def test_says_that_a_service_is_down() -> None:
    result = look(address(f"http://127.0.0.1:{free_port()}"))
    assert (result.is_up, result.is_ready) == (False, False)
    assert "down: " in result.detail
    assert "refused" in result.detail


def test_does_not_wait_for_one_that_is_silent() -> None:
    with socket.socket() as silent:
        silent.bind(("127.0.0.1", 0))
        silent.listen()
        began = time.monotonic()
        (result,) = services((address(f"http://127.0.0.1:{silent.getsockname()[1]}"),), look)
        assert time.monotonic() - began < 5
    assert not result.is_up
    assert result.detail.startswith("down: ")


def test_does_not_wait_for_one_that_never_ends() -> None:
    ends = threading.Event()

    def hangs(_address: Any) -> Any:
        ends.wait(60)

    (result,) = services((address("http://127.0.0.1:1"),), hangs)
    ends.set()
    assert result.detail == "down: no answer within 1 s"


@pytest.mark.parametrize(
    ("body", "detail"),
    [
        (b'{"error_code": "UNAVAILABLE", "message": "there is no index yet"}', "no index yet"),
        (b"not JSON at all", "HTTP 503"),
        (b'["a", "list"]', "HTTP 503"),
        (b"\xff\xfe", "HTTP 503"),
        (json.dumps({"message": "x" * 100_000}).encode(), "HTTP 503"),
    ],
)
def test_says_why_a_service_is_not_ready(body: bytes, detail: str) -> None:
    with answering(503, body) as url:
        result = look(address(url))
    assert (result.is_up, result.is_ready) == (True, False)
    assert detail in result.detail
    assert len(result.detail) < 400


def test_says_that_a_service_is_ready() -> None:
    with answering(200, b'{"ok": true}') as url:
        assert look(address(url)).is_ready


def test_h32_a_warning_of_a_ready_service_is_shown(make_page_zone: Callable[..., Any]) -> None:
    body = {"ok": True, "warnings": ["the disk is full in 3.0 days <b>", 7, "x" * 1_000]}
    with answering(200, json.dumps(body).encode()) as url:
        result = look(address(url))
    assert result.is_ready
    assert [len(warning) for warning in result.warnings] == [32, 300]
    html = make_page_zone("alone").html(look=lambda _one: result)
    assert "the disk is full in 3.0 days &lt;b&gt;" in html


@pytest.mark.parametrize("body", [b"", b"[]", b'{"warnings": 7}', b"\xff"])
def test_h32_an_answer_that_cannot_be_read_warns_of_nothing(body: bytes) -> None:
    with answering(200, body) as url:
        result = look(address(url))
    assert (result.is_ready, result.warnings) == (True, ())


def test_h23_the_page_names_the_parts_that_do_not_work(make_page_zone: Callable[..., Any]) -> None:
    zone = make_page_zone("alone")
    assert "restarted" not in zone.html()
    running = [
        {"name": "hub", "is_ready": True, "restarts": 2, "is_failing": False, "trouble": ""},
        {"name": "recorder", "is_ready": True, "restarts": 0, "is_failing": False, "trouble": ""},
        {
            "name": "scheduler",
            "is_ready": False,
            "restarts": 9,
            "is_failing": True,
            "trouble": "scheduler ended with 1: <script>",
        },
    ]
    state = {"stage": "up", "running": running, "waiting": ["triggerer"]}
    (zone.folder / "run").mkdir(exist_ok=True)
    (zone.folder / FILE).write_text(json.dumps(state))
    html = zone.html()
    assert "scheduler is failing, restarted 9 times: scheduler ended with 1: &lt;script" in html
    assert "triggerer is not ready, restarted 0 times</p>" in html
    assert "Restarted by the supervisor: hub (2 times)</p>" in html
    (zone.folder / FILE).write_text("{")
    assert "expected the state of a supervisor" in zone.html()


def test_the_page_says_plainly_what_is_down(make_page_zone: Callable[..., Any]) -> None:
    html = make_page_zone("online").html(look=look)
    assert 'role="alert">Hub (http://127.0.0.1:' in html
    assert 'role="alert">Recorder service (http://127.0.0.1:' in html
    assert html.count("Connection refused") == 2


def test_h35_a_hub_that_is_down_has_reported_nothing_just_now(
    make_page_zone: Callable[..., Any],
) -> None:
    zone = make_page_zone("online")
    detail = {"heads": lambda _place: {"record/app/http": 3}}
    assert zone.overview(**detail).streams.known.asked_sec == 0
    overview = zone.overview(look=look, **detail)
    assert not overview.hub_answers
    assert overview.streams.known.asked_sec != 0
    html = zone.html(look=look, **detail)
    assert "is down" in html
    assert "The hub reported its heads" not in html
