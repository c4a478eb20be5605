"""Health, readiness, metrics and the line logged for each message (OBS0)."""

from __future__ import annotations

import json
import logging
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from veen.captoken import Rate
from veen.label import DEFAULT_PROFILE
from veen.wire.api import BatchRequest, ErrorEnvelope


def test_a_new_hub_is_healthy_and_ready(start_hub: Callable[..., Any]) -> None:
    hub = start_hub()
    assert hub.get("/healthz").json == {
        "ok": True,
        "profile_id": DEFAULT_PROFILE.profile_id().hex(),
        "peaks_count": 0,
        "last_stream_seq": 0,
    }
    ready = hub.get("/readyz").json
    assert ready.pop("disk_free_bytes") > 0
    assert ready == {"ok": True, "hub_ts": 1_900_000_000}


def test_health_tells_the_head_of_the_latest_label(hub: Any) -> None:
    writer = hub.writer("alice", "record/a")
    hub.set_clock(1_900_000_001)
    last = writer.write(1, 3)[-1]
    json = hub.get("/healthz").json
    assert (json["last_stream_seq"], json["peaks_count"]) == (3, 2)
    assert json["last_mmr_root"] == last.mmr_root.hex()


def test_without_its_sequencer_a_hub_is_not_ready_but_still_reads(
    start_hub: Callable[..., Any],
) -> None:
    hub = start_hub()
    writer = hub.writer("alice", "record/a")
    writer.write(1, 1)
    hub.process.kill()
    hub.process.wait()
    refused = hub.get("/readyz")
    assert (refused.status_code, refused.json["code"]) == (503, "E.UNAVAILABLE")
    answer = writer.submit(writer.msg(2))
    assert (answer.status_code, answer.headers["Retry-After"]) == (503, "1")
    assert ErrorEnvelope.decode(answer.data).retry_after == 1
    batch = hub.post(
        "/v1/submit_batch", BatchRequest(msgs=(writer.msg(2).encode(),)), Accept="application/json"
    )
    assert batch.json["results"][0]["error"]["code"] == "E.UNAVAILABLE"
    assert hub.get("/healthz").json["ok"] is True


def test_metrics_count_what_was_submitted(start_hub: Callable[..., Any]) -> None:
    hub = start_hub()
    writer = hub.writer("alice", "record/a", rate=Rate(per_sec=1, burst=2))
    messages = [writer.msg(seq).encode() for seq in (1, 1, 2, 3)]
    hub.post("/v1/submit_batch", BatchRequest(msgs=tuple(messages)))
    hub.post_json(
        "/v1/proof", {"ver": 1, "label": writer.label.hex(), "stream_seq": 1}, as_="admin"
    )
    hub.post("/v1/submit", bytes(6_000))
    lines = hub.get("/metrics").text.splitlines()
    for line in (
        "veen_submit_ok_total 2.0",
        'veen_submit_err_total{code="E.SEQ"} 1.0',
        'veen_submit_err_total{code="E.RATE"} 1.0',
        'veen_submit_err_total{code="E.SIZE"} 1.0',
        "veen_rate_limited_total 1.0",
        "veen_verify_latency_ms_count 2.0",
        "veen_commit_latency_ms_count 2.0",
        "veen_end_to_end_latency_ms_count 1.0",
        "veen_proof_latency_ms_count 1.0",
        "veen_queue_depth 0.0",
    ):
        assert line in lines


def test_the_metrics_of_all_processes_are_added_up(
    hub: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The library decides at its import whether values are shared: workers need it set before."""
    monkeypatch.setenv("PROMETHEUS_MULTIPROC_DIR", str(tmp_path))
    count = "from prometheus_client import CollectorRegistry as R; from hub.metrics import *;"
    count += "m = http_metrics(R()); m.submit_ok.inc(3); m.queue_depth.inc(1)"
    for _ in range(2):
        subprocess.run([sys.executable, "-c", count], check=True)
    assert "veen_submit_ok_total 6.0" in hub.get("/metrics").text.splitlines()


@pytest.mark.parametrize(
    ("peer", "headers", "status"),
    [
        ("127.0.0.1", {}, 200),
        ("::1", {}, 200),
        ("10.0.0.1", {}, 401),
        ("", {}, 401),
        ("127.0.0.1", {"X-Forwarded-For": "10.0.0.1"}, 401),
        ("10.0.0.1", {"Authorization": "Bearer admin"}, 200),
        ("10.0.0.1", {"Authorization": "Bearer exporter"}, 403),
    ],
)
def test_metrics_are_for_this_host_and_for_who_manages(
    hub: Any, peer: str, headers: dict[str, str], status: int
) -> None:
    answer = hub.http.get("/metrics", headers=headers, environ_base={"REMOTE_ADDR": peer})
    assert answer.status_code == status


def test_each_message_is_one_line_without_payload_or_key(
    hub: Any, caplog: pytest.LogCaptureFixture
) -> None:
    writer = hub.writer("bob", "record/b")
    first, broken = writer.msg(1, b"the payload"), writer.msg(2, ct_hash=bytes(32))
    with caplog.at_level(logging.INFO, "hub.submit"):
        answer = hub.post("/v1/submit_batch", BatchRequest(msgs=(first.encode(), broken.encode())))
    (logged,) = caplog.records
    good, bad = (json.loads(line) for line in logged.getMessage().splitlines())
    assert good["request_id"] == answer.headers["X-Request-Id"]
    assert (good["label"], good["stream_seq"]) == (writer.label.hex(), 1)
    assert good["client_id_prefix"] == writer.key.public.hex()[:8]
    assert good["leaf_hash_prefix"] == first.leaf_hash().hex()[:8]
    assert good["bytes_in"] == len(first.encode())
    assert {"bytes_out", "verify_ms", "commit_ms"} <= good.keys()
    assert (bad["code"], "stream_seq" in bad) == ("E.FORMAT", False)
    assert writer.key.public.hex() not in caplog.text


def test_no_line_is_formatted_where_none_is_logged(
    hub: Any, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING, "hub.submit"):
        hub.writer("carol", "record/b").write(1, 1)
    assert caplog.records == []
