"""Notices: where they go, and that one that cannot be brought fails nothing."""

from __future__ import annotations

import json
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from veen_airflow.alerts import LogNotifier, Notice, WebhookNotifier, notifier

from support.local_http import Answering, served

NOTICE = Notice(
    zone="z1", dag_id="veen_anchor", run_id="r", task_id="lateness", what="anchors are late"
)


@contextmanager
def a_webhook(status: int) -> Iterator[tuple[str, list[Any]]]:
    taken: list[Any] = []

    class Handler(Answering):
        def post(self) -> None:
            taken.append((self.headers["Authorization"], json.loads(self.body())))
            self.say(status)

    with served(Handler) as url:
        yield f"{url}/hook", taken


def test_a_webhook_is_given_the_notice_and_the_token_of_the_environment(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("VEEN_NOTIFY_TOKEN", "t0ken")
    with a_webhook(204) as (url, taken):
        notifier(url).notify(NOTICE)
    ((authorization, body),) = taken
    assert authorization == "Bearer t0ken"
    assert body == {
        "zone": "z1", "dag_id": "veen_anchor", "run_id": "r", "task_id": "lateness",
        "what": "anchors are late",
    }  # fmt: skip


def test_a_webhook_that_refuses_or_is_silent_fails_nothing(
    caplog: pytest.LogCaptureFixture,
) -> None:
    with a_webhook(500) as (url, _):
        WebhookNotifier(url, None).notify(NOTICE)
    WebhookNotifier(url, None).notify(NOTICE)
    assert caplog.text.count("did not accept the notice") == 2


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
def test_h30_a_redirect_is_not_followed_and_the_token_stays(
    status: int, caplog: pytest.LogCaptureFixture
) -> None:
    asked: list[str] = []

    class Elsewhere(Answering):
        def get(self) -> None:
            asked.append(str(self.headers["Authorization"]))
            self.say(200)

        post = get

    with served(Elsewhere) as other:

        class Redirecting(Answering):
            def post(self) -> None:
                self.body()
                self.send_response(status)
                self.send_header("Location", other)
                self.send_header("Content-Length", "0")
                self.end_headers()

        with served(Redirecting) as url:
            WebhookNotifier(url, "t0ken").notify(NOTICE)
    assert asked == []
    assert f"it answered {status}; redirects are not followed" in caplog.text


@contextmanager
def a_babbler() -> Iterator[str]:
    """What answers there speaks no HTTP."""
    with socket.create_server(("127.0.0.1", 0)) as server:

        def babble() -> None:
            line, _ = server.accept()
            with line:
                line.recv(65_536)
                line.sendall(b"220 mail.example ESMTP\r\n\r\n")

        thread = threading.Thread(target=babble)
        thread.start()
        yield f"http://127.0.0.1:{server.getsockname()[1]}"
        thread.join()


def test_what_speaks_no_http_fails_nothing(caplog: pytest.LogCaptureFixture) -> None:
    with a_babbler() as url:
        WebhookNotifier(url, None).notify(NOTICE)
    assert "did not accept the notice: BadStatusLine" in caplog.text


@pytest.mark.parametrize("end", ["/s3cret", "/s3cret with a blank", "?token=s3cret"])
def test_of_the_url_only_scheme_and_host_are_logged(
    end: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("DEBUG")
    WebhookNotifier(f"http://s3cret:s3cret@127.0.0.1:1{end}", None).notify(NOTICE)
    assert "the webhook at http://127.0.0.1:1 did not accept the notice" in caplog.text
    assert "s3cret" not in caplog.text


def test_every_notice_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    notifier("log").notify(NOTICE)
    assert isinstance(notifier("log"), LogNotifier)
    assert "NOTICE of zone z1, veen_anchor: anchors are late" in caplog.text
