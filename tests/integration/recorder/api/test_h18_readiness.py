"""H18: /readyz says no when nobody follows the index, and when the hub was not asked for long."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pytest
from flask.testing import FlaskClient

from recorder.api.app import create_app
from recorder.api.health import ASKED_SEC
from recorder.index.rebuild import create
from recorder.index.tables import IndexHome, transaction
from recorder.index.writer import writing
from recorder.service.follower_report import SILENT_SEC, Reporter
from recorder.service.requests import Waits
from recorder.service.supervisor import ServiceHome
from recorder.settings import load
from support.recorder import query_world


@pytest.fixture
def http(tmp_path: Path) -> FlaskClient:
    """A service whose index has reached a checkpoint, and whose follower has just reported."""
    (tmp_path / "recorder.toml").write_text(
        query_world.recorder_toml("http://127.0.0.1:1", "00" * 32, 1)
    )
    app = create_app(load(tmp_path / "recorder.toml"), Waits(recorded_sec=0, completed_sec=0))
    asked(tmp_path, 0)
    reporter(tmp_path).alive()
    return app.test_client()


def asked(folder: Path, seconds_ago: int) -> None:
    home = IndexHome(folder / "index")
    with home.locked(), writing(create(home, bytes(32))) as writer, transaction(writer.db):
        writer.note("asked_at", int(time.time()) - seconds_ago)
        writer.db.execute(
            "INSERT OR IGNORE INTO checkpoints (number, checkpoint_id, created_at, document) "
            "VALUES (0, ?, 1, x'')", (bytes(32),),
        )  # fmt: skip


def reporter(folder: Path, ago: float = 0) -> Reporter:
    return Reporter(ServiceHome(folder / "results").follower, lambda: time.monotonic() - ago)


def refused(http: FlaskClient) -> str:
    reply = http.get("/readyz")
    json: dict[str, Any] = reply.get_json()
    assert (reply.status_code, json["error_code"]) == (503, "internal_error")
    return str(json["message"])


def up(http: FlaskClient) -> str:
    text = http.get("/metrics").get_data(as_text=True)
    (result,) = [line for line in text.splitlines() if line.startswith("veen_index_follower_up ")]
    return result.split()[1]


def test_h18_a_followed_index_is_ready_and_says_when_the_hub_was_asked(http: FlaskClient) -> None:
    reply = http.get("/readyz")
    assert (reply.status_code, up(http)) == (200, "1.0")
    assert 0 <= reply.get_json()["asked_seconds_ago"] <= ASKED_SEC


def test_h18_a_follower_that_failed_is_not_ready(http: FlaskClient, tmp_path: Path) -> None:
    reporter(tmp_path).failed("No space left on device")
    assert "the index follower failed: No space left" in refused(http)
    assert up(http) == "0.0"


def test_h18_a_follower_that_is_silent_is_not_ready(http: FlaskClient, tmp_path: Path) -> None:
    reporter(tmp_path, ago=SILENT_SEC + 1).alive()
    assert "has not reported" in refused(http)


def test_h18_without_a_follower_nothing_is_ready(http: FlaskClient, tmp_path: Path) -> None:
    ServiceHome(tmp_path / "results").follower.unlink()
    assert "no index follower has reported" in refused(http)
    assert up(http) == "0.0"


def test_h18_a_hub_that_was_not_asked_for_long_is_not_ready(
    http: FlaskClient, tmp_path: Path
) -> None:
    asked(tmp_path, ASKED_SEC + 60)
    assert f"expected at most {ASKED_SEC} s" in refused(http)
