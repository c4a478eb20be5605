"""The HTTP edge without a runner: states that pass too fast elsewhere, and audits that fail."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from flask import Flask
from flask.testing import FlaskClient

from recorder.anchor.anchors import AnchorFailures, AnchorUnavailable
from recorder.api.app import create_app
from recorder.checkpoints.catalogue import RecorderCheckpointName
from recorder.checkpoints.store import CheckpointDirectory
from recorder.index.rebuild import create
from recorder.index.tables import IndexHome
from recorder.index.writer import writing
from recorder.service.database import Database, RecordRef, Results
from recorder.service.errors import ErrorCode
from recorder.service.recording import MAX_SOURCES, Audits, Counted
from recorder.service.requests import Waits
from recorder.settings import load
from support.recorder import query_world
from veen.system.durable import NoSpace
from veen.system.http_server import server_options

RESULT_ID = "r-" + "1" * 32
EVENT = RecordRef("record/query/requests", 1, "00" * 32, "rcpt-" + "00" * 32)


@pytest.fixture
def service(tmp_path: Path) -> Flask:
    (tmp_path / "recorder.toml").write_text(
        query_world.recorder_toml("http://127.0.0.1:1", "00" * 32, 1)
    )
    waits = Waits(recorded_sec=0.05, completed_sec=0.05)
    return create_app(load(tmp_path / "recorder.toml"), waits)


@pytest.fixture
def http(service: Flask) -> FlaskClient:
    client = service.test_client()
    client.environ_base["HTTP_AUTHORIZATION"] = f"Bearer {query_world.TOKENS['alice']}"
    return client


@pytest.fixture
def database(service: Flask, tmp_path: Path) -> Database:
    return Database(tmp_path / "results" / "service.sqlite")


@pytest.fixture
def results(database: Database) -> Results:
    """With one query of alice's that is recorded and has not been run."""
    result = Results(database)
    result.add(
        query_id="q-1", result_id=RESULT_ID, principal="alice", descriptor=b"{}", now_ms=1_000
    )
    result.begin_recording("q-1", 0)
    result.recorded("q-1", EVENT)
    return result


def detail(reply: Any) -> tuple[int, str]:
    return reply.status_code, reply.get_json()["error_code"]


@pytest.mark.parametrize("kind", ["result", "proof"])
def test_a_result_that_is_not_there_yet_is_not_ready(
    http: FlaskClient, results: Results, kind: str
) -> None:
    assert detail(http.get(f"/api/query/{kind}/{RESULT_ID}")) == (425, "result_not_ready")
    results.begin("q-1", owner="me", engine="inline", now_ms=1)
    assert detail(http.get(f"/api/query/{kind}/{RESULT_ID}")) == (425, "result_not_ready")
    assert http.get(f"/api/query/status/{RESULT_ID}").get_json()["status"] == "running"


def test_a_failed_query_says_why_and_gives_nothing(http: FlaskClient, results: Results) -> None:
    results.failed("q-1", ErrorCode.EXECUTION_FAILED, "the index is tampered with", 2)
    assert detail(http.get(f"/api/query/result/{RESULT_ID}")) == (500, "execution_failed")
    status = http.get(f"/api/query/status/{RESULT_ID}").get_json()
    assert (status["status"], status["error_code"]) == ("failed", "execution_failed")


def test_without_a_runner_a_submission_is_refused_and_leaves_nothing(
    http: FlaskClient, database: Database
) -> None:
    for _ in range(2):
        reply = http.post("/api/query/submit", json=query_world.a_query(query_id="q-2"))
        assert detail(reply) == (503, "internal_error")
        assert reply.headers["Retry-After"] == "2"
    assert Results(database).by_query("q-2") is None


def test_a_request_that_cannot_be_audited_is_not_answered(
    http: FlaskClient, results: Results, tmp_path: Path
) -> None:
    with closing(sqlite3.connect(tmp_path / "results" / "service.sqlite")) as db:
        db.execute("DROP TABLE audits")
        db.commit()
    reply = http.get(f"/api/query/descriptor/{'q-1'}")
    assert detail(reply) == (500, "internal_error")
    assert "descriptor" not in reply.get_json()


def test_a_failure_of_the_service_itself_tells_no_details(
    http: FlaskClient, results: Results, tmp_path: Path
) -> None:
    with closing(sqlite3.connect(tmp_path / "results" / "service.sqlite")) as db:
        db.execute("ALTER TABLE queries RENAME TO gone")
        db.commit()
    reply = http.get(f"/api/query/status/{RESULT_ID}")
    assert detail(reply) == (500, "internal_error")
    assert "gone" not in reply.get_json()["message"]
    assert "queries" not in reply.get_json()["message"]


def test_a_flood_of_strangers_is_one_entry_a_minute(service: Flask, database: Database) -> None:
    stranger = service.test_client()
    for number in range(300):
        where = {"REMOTE_ADDR": "10.0.0.1" if number % 2 else "10.0.0.2"}
        reply = stranger.get(f"/api/query/status/{RESULT_ID}", environ_base=where)
        assert reply.status_code == 401
    audits = Audits(database)
    assert audits.count() == 0
    audits.settle_counts(2**62)
    counts = {item.entry["metadata"]["source"]: 0 for item in audits.waiting(10)}
    for item in audits.waiting(10):
        counts[item.entry["metadata"]["source"]] += item.entry["metadata"]["count"]
    assert counts == {"10.0.0.1": 150, "10.0.0.2": 150}
    assert audits.count() <= 4


def test_what_leads_nowhere_is_counted_by_what_was_answered(
    http: FlaskClient, database: Database
) -> None:
    for _ in range(3):
        assert http.get("/api/query/nothing").status_code == 404
    assert http.put("/api/query/submit", json={}).status_code == 405
    assert http.get("/healthz").status_code == 200
    audits = Audits(database)
    audits.settle_counts(2**62)
    counts: dict[tuple[int, str], int] = {}
    for item in audits.waiting(10):
        result = item.entry["metadata"]
        key = result["status"], result["outcome"]
        counts[key] = counts.get(key, 0) + result["count"]
    assert counts == {(404, "query_not_found"): 3, (405, "query_not_found"): 1}


def test_streams_of_another_hub_are_no_scope(
    http: FlaskClient, database: Database, tmp_path: Path
) -> None:
    home = IndexHome(tmp_path / "index")
    with home.locked(), writing(create(home, b"\0" * 32)) as writer:
        writer.stream("record/app/own")
        writer.stream("record/app/foreign", b"\1" * 32)
    foreign = http.post("/api/query/submit", json=query_world.a_query(scope=["record/app/foreign"]))
    assert detail(foreign) == (403, "forbidden_scope")
    own = http.post("/api/query/submit", json=query_world.a_query(scope=["record/app/own"]))
    assert detail(own) == (503, "internal_error")


def test_what_the_store_and_the_anchors_lack_is_in_metrics_and_health(tmp_path: Path) -> None:
    text = query_world.recorder_toml("http://127.0.0.1:1", "00" * 32, 1)
    store = '[objects]\nurl = "s3://bucket"\naccept_overwriting_store = true\n'
    (tmp_path / "recorder.toml").write_text(text + store)
    settings = load(tmp_path / "recorder.toml")
    home = CheckpointDirectory(settings.checkpoint.path)
    home.make()
    for number in range(3):
        (home.checkpoints / RecorderCheckpointName(number, bytes([number]) * 32).file).touch()
    failed = AnchorFailures().with_one(AnchorUnavailable("out"), 1).with_one(NoSpace("full"), 2)
    (home.root / "anchor-failures.cbor").write_bytes(failed.encode())
    http = create_app(settings).test_client()
    (warning,) = http.get("/healthz").get_json()["warnings"]
    assert "accept_overwriting_store" in warning
    metrics = http.get("/metrics").text.splitlines()
    for line in (
        "veen_objects_accepts_overwriting 1.0", "veen_anchor_failures_total 2.0",
        "veen_anchor_waiting_checkpoints 3.0", "veen_anchor_late_checkpoints 3.0",
    ):  # fmt: skip
        assert line in metrics


def test_strangers_from_everywhere_are_counted_together(database: Database) -> None:
    audits = Audits(database)
    for number in range(MAX_SOURCES + 50):
        source = f"10.0.{number // 256}.{number % 256}"
        audits.add_counted(
            Counted(source=source, route="/api", outcome="unauthorized", status=401, time_ms=1_000)
        )
    assert audits.settle_counts(120_000) == MAX_SOURCES + 1
    last = [item.entry["metadata"] for item in audits.waiting(1_000)]
    assert sum(item["count"] for item in last) == MAX_SOURCES + 50


def test_tls_and_client_certificates_come_from_the_settings(tmp_path: Path) -> None:
    text = query_world.recorder_toml("http://127.0.0.1:1", "00" * 32, 1)
    more = 'tls_cert = "a.pem"\ntls_key = "a.key"\ntls_client_ca = "ca.pem"\nengine'
    (tmp_path / "tls.toml").write_text(text.replace("engine", more, 1))
    options = server_options(load(tmp_path / "tls.toml").query)
    assert options["certfile"] == str(tmp_path / "a.pem")
    assert options["keyfile"] == str(tmp_path / "a.key")
    assert (options["ca_certs"], options["cert_reqs"]) == (str(tmp_path / "ca.pem"), 2)


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("pending", "completed"), ("running", "pending"), ("running", "completed"),
        ("failed", "running"), ("failed", "completed"), ("failed", "pending"),
    ],
)  # fmt: skip
def test_states_go_one_way(database: Database, results: Results, before: str, after: str) -> None:
    if before != "pending":
        results.begin("q-1", owner="me", engine="inline", now_ms=1)
    if before == "failed":
        results.failed("q-1", ErrorCode.EXECUTION_FAILED, "no", 2)
    with pytest.raises(sqlite3.IntegrityError), database.changing() as db:
        db.execute("UPDATE queries SET state = ?", (after,))
