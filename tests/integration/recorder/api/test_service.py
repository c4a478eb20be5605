"""Queries end to end: a real hub, the service's own processes, and what is left in the log."""

from __future__ import annotations

import json
import random
import time
from typing import Any

import pytest

from recorder.query.digest import rows_hash
from recorder.query.package import PackageTrust
from recorder.query.package_verify import ClaimOutcome, ClaimState, check_bytes
from support.recorder import query_world
from veen.digest import h
from veen.identity_store import read_signed
from veen.wire import canonical_json


def submitted(zone: Any, descriptor: dict[str, Any], who: str = "alice") -> dict[str, Any]:
    """The result, which a loaded machine may give only to whoever asks for it again."""
    deadline = time.monotonic() + 60
    with zone.as_(who) as http:
        reply = http.post("/api/query/submit", json=descriptor)
        path = f"/api/query/result/{reply.json().get('result_id')}"
        while reply.status_code in (202, 425) and time.monotonic() < deadline:
            time.sleep(0.05)
            reply = http.get(path)
    assert reply.status_code == 200, reply.text
    result: dict[str, Any] = reply.json()
    return result


@pytest.mark.parametrize(
    "evidence",
    [{"mode": "none"}, {"mode": "spot", "sample_rate": 0.3}, {"mode": "full"}],
    ids=lambda item: item["mode"],
)
def test_every_evidence_mode_ends_in_a_package_that_holds_offline(
    query_zone: Any, evidence: dict[str, Any]
) -> None:
    result = submitted(query_zone, query_world.a_query(evidence=evidence))
    assert len(result["rows"]) == 50
    with query_zone.as_("alice") as alice:
        path = f"/api/v1/query/proof/{result['result_digest']['result_id']}"
        package = query_world.wait_until(lambda: _completed(alice, path), "a package")
    recorder = frozenset([query_zone.reader.client_id])
    hub = read_signed(query_zone.hub.data).identity
    trust = PackageTrust(hub_id=query_zone.hub_id, recorder_ids=recorder, identity=hub)
    verdict = check_bytes(package, trust)
    states = {claim.name: claim.state for claim in verdict.claims}
    assert verdict.failed == ()
    assert {states[item] for item in ("request_recorded", "result_recorded", "rows_hash")} == {
        ClaimState.HELD
    }
    is_full = evidence["mode"] == "full"
    assert verdict.outcome is (ClaimOutcome.PROVEN if is_full else ClaimOutcome.UNPROVEN)
    assert states["complete"] is (ClaimState.HELD if is_full else ClaimState.NOT_COVERED)


def _completed(http: Any, path: str) -> bytes | None:
    reply = http.get(path)
    assert reply.status_code in (200, 425), reply.text
    return reply.content if reply.status_code == 200 else None


def test_the_digest_is_of_the_rows_and_of_the_recorded_descriptor(query_zone: Any) -> None:
    result = submitted(query_zone, query_world.a_query(filter={"subject_id": "user:3"}))
    digest = result["result_digest"]
    assert (digest["rows_hash"], digest["row_count"]) == rows_hash(result["rows"])[:2]
    assert {row["subject_id"] for row in result["rows"]} == {"user:3"}
    with query_zone.as_("alice") as alice:
        recorded = alice.get(f"/api/query/descriptor/{digest['query_id']}").json()
    assert h(canonical_json.encode(recorded["descriptor"])).hex() == digest["descriptor_hash"]
    assert recorded["record_event"]["stream"] == "record/query/requests"
    assert result["record_event"]["stream"] == "record/query/results"
    assert digest["checkpoint"]["checkpoint_id"] in {
        checkpoint.checkpoint_id.hex()
        for checkpoint in query_zone.admin.recorder_checkpoints().checkpoints
    }


def test_pages_of_any_size_are_the_same_rows_in_the_same_order(query_zone: Any) -> None:
    result = submitted(
        query_zone, query_world.a_query(scope=["record/app/http", "record/app/auth"])
    )
    digest, chance = result["result_digest"], random.Random(7)
    assert digest["row_count"] == 60
    with query_zone.as_("alice") as alice:
        for _ in range(3):
            rows: list[Any] = []
            more = True
            while more:
                given = {"offset": len(rows), "limit": chance.randint(1, 25)}
                page = alice.get(f"/api/query/result/{digest['result_id']}", params=given).json()
                assert page["result_digest"] == digest
                assert page["page"]["total"] == 60
                rows += page["rows"]
                more = page["page"]["has_more"]
            assert rows_hash(rows)[:2] == (digest["rows_hash"], 60)
        beyond = alice.get(f"/api/query/result/{digest['result_id']}?offset=60").json()
        assert (beyond["rows"], beyond["page"]["has_more"]) == ([], False)
        bounded = alice.get(f"/api/query/result/{digest['result_id']}?limit=999999").json()
        assert bounded["page"]["limit"] == query_zone.settings.query.max_page


def test_the_bytes_of_the_rows_are_those_that_were_hashed(query_zone: Any) -> None:
    """What the page at / relies on: rows come last, in canonical JSON."""
    with query_zone.as_("alice") as alice:
        text = alice.post("/api/query/submit", json=query_world.a_query(projection=["*"])).text
    rows = text.partition(',"rows":[')[2][:-2]
    assert h(f"[{rows}]".encode()).hex() == json.loads(text)["result_digest"]["rows_hash"]


def test_aggregates_come_by_group(query_zone: Any) -> None:
    aggregate = {"group_by": ["origin"], "metrics": ["count"]}
    result = submitted(
        query_zone, query_world.a_query(aggregate=aggregate, evidence={"mode": "full"})
    )
    assert sorted(row["count"] for row in result["rows"]) == [16, 17, 17]


def test_every_attempt_is_in_the_audit_stream(query_zone: Any) -> None:
    result = submitted(query_zone, query_world.a_query(meta={"reason": "drill"}))
    digest = result["result_digest"]
    with query_zone.as_("bob") as bob, query_zone.as_("forged") as forged:
        assert bob.get(f"/api/query/result/{digest['result_id']}").status_code == 404
        secret = query_world.a_query(scope=["record/secret"])
        assert bob.post("/api/query/submit", json=secret).status_code == 403
        assert forged.get(f"/api/query/result/{digest['result_id']}").status_code == 401

    def recorded() -> list[Any]:
        entries = [
            audit
            for audit in audits(query_zone)
            if digest["query_id"] in audit["resource_identifier"]
        ]
        others = [audit for audit in audits(query_zone) if audit["metadata"]["requester"] == "bob"]
        return entries if entries and len(others) >= 2 else []

    (entry,) = query_world.wait_until(recorded, "audit events")
    assert entry["metadata"]["outcome"] == "ok"
    assert entry["purpose_code"] == "drill"
    assert entry["query_parameters"]["descriptor_hash"] == digest["descriptor_hash"]
    assert entry["result_digest"] == h(canonical_json.encode(digest)).hex()
    outcomes = {
        audit["metadata"]["outcome"]
        for audit in audits(query_zone)
        if audit["metadata"]["requester"] == "bob"
    }
    assert outcomes >= {"query_not_found", "forbidden_scope"}


def audits(zone: Any) -> list[dict[str, Any]]:
    """What the audit stream says, read through the service itself by whoever may."""
    checkpoint = zone.checkpoint()
    zone.catch_up(checkpoint)
    query = {
        "scope": ["record/query/audit/access"], "filter": {}, "projection": ["payload"],
        "evidence": {"mode": "none"},
    }  # fmt: skip
    reply = zone.signed("POST", "/api/query/submit", json.dumps(query).encode())
    assert reply.status_code == 200, reply.text
    return [item["payload"] for item in reply.json()["rows"]]


def test_both_prefixes_serve_the_same(query_zone: Any) -> None:
    with query_zone.as_("alice") as alice:
        result = alice.post("/api/v1/query/submit", json=query_world.a_query()).json()
        result_id = result["result_digest"]["result_id"]
        both = [alice.get(f"/api/{item}query/status/{result_id}").json() for item in ("", "v1/")]
        assert both[0] == both[1]
        assert both[0]["status"] == "completed"


def test_what_a_service_says_of_itself(query_zone: Any) -> None:
    with query_zone.as_(None) as nobody:
        assert nobody.get("/readyz").json()["ok"] is True
        document = nobody.get("/openapi.json").json()
        assert "/api/v1/query/proof/{result_id}" in document["paths"]
        metrics = nobody.get("/metrics").text
        for name in ("veen_query_queries", "veen_index_lag_entries", "veen_query_duration_seconds"):
            assert name in metrics
        far = nobody.get("/metrics", headers={"X-Forwarded-For": "10.0.0.1"})
        assert far.status_code == 401
        page = nobody.get("/")
        assert "default-src 'none'" in page.headers["Content-Security-Policy"]
        assert "http" not in page.text.replace("record/app/http", "")
        assert nobody.get("/page.js").status_code == nobody.get("/page.css").status_code == 200
