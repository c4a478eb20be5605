"""H32: the status of a zone says why its hub is not ready, and what it warns of."""

from __future__ import annotations

import json
from typing import Any

import pytest

from cli.zone import _status_lines
from support.local_http import Answering, served
from zone.services import Readiness, free_port, readiness

WARNED = "the disk is full in 3.0 days"


@pytest.mark.parametrize(
    ("status", "body", "expected"),
    [
        (200, {"ok": True}, Readiness(None)),
        (200, {"ok": True, "warnings": [WARNED]}, Readiness(None, (WARNED,))),
        (503, {"message": "the disk is full"}, Readiness("the disk is full")),
        (503, {}, Readiness("HTTP 503")),
        (200, [], Readiness("expected a JSON object as its answer")),
    ],
)
def test_h32_readiness_is_reported_as_the_hub_says_it(
    status: int, body: Any, expected: Readiness
) -> None:
    class Handler(Answering):
        def get(self) -> None:
            self.say(status, json.dumps(body).encode())

    with served(Handler) as url:
        assert readiness(url) == expected


def test_h32_a_hub_that_does_not_answer_is_not_ready() -> None:
    assert "no answer" in (readiness(f"http://127.0.0.1:{free_port()}").refusal or "")


def test_h32_status_shows_warnings_beside_what_is_wrong() -> None:
    result = {
        "zone": "z1",
        "stage": "up",
        "detail": None,
        "processes": [{"name": "hub", "pid": 7, "runs": True, "restarts": 2}],
        "wrong": ["the hub is not ready: full"],
        "warnings": [WARNED],
    }
    assert list(_status_lines(result)) == [
        "z1 is up",
        "  hub            runs, pid 7, restarted 2 times",
        "  WRONG: the hub is not ready: full",
        f"  WARNING: {WARNED}",
    ]
