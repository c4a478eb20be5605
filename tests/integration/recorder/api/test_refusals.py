"""Every error code of the text provoked, and attacks on what is not one's own."""

from __future__ import annotations

import json
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import httpx
import pytest

from support.recorder import query_world


@pytest.fixture(scope="module")
def alice(query_zone: Any) -> Iterator[httpx.Client]:
    with query_zone.as_("alice") as http:
        yield http


def refused(reply: httpx.Response) -> tuple[int, str]:
    document = reply.json()
    assert set(document) == {"error_code", "message"}, document
    assert reply.headers["Content-Type"] == "application/json"
    return reply.status_code, document["error_code"]


def post(http: httpx.Client, body: str | bytes) -> tuple[int, str]:
    headers = {"Content-Type": "application/json"}
    return refused(http.post("/api/query/submit", content=body, headers=headers))


VALID = '"scope":["record/app/http"],"filter":{},"projection":["origin"],"evidence":{"mode":"none"}'


@pytest.mark.parametrize(
    "body",
    [
        pytest.param("", id="empty"),
        pytest.param("{", id="cut off"),
        pytest.param("{" + VALID + "} 1", id="trailing"),
        pytest.param("[" * 100_000, id="100000 deep, open"),
        pytest.param("[" * 100_000 + "]" * 100_000, id="100000 deep"),
        pytest.param('{"a":' * 40_000 + "1" + "}" * 40_000, id="objects 40000 deep"),
        pytest.param("{" + VALID + ',"meta":{"x":NaN}}', id="NaN"),
        pytest.param("{" + VALID + ',"meta":{"x":1e999}}', id="infinity"),
        pytest.param("{" + VALID + ',"version":1,"version":1}', id="doubled key"),
        pytest.param("{" + VALID + ',"meta":{"x":"\\ud800"}}', id="half a surrogate"),
        pytest.param(b'{"meta":"\xff"}', id="no UTF-8"),
        pytest.param(("{" + VALID + "}").encode("utf-16"), id="UTF-16"),
        pytest.param("{" + VALID + ',"meta":{"x":' + "9" * 5_000 + "}}", id="a huge number"),
    ],
)
def test_refuses_what_is_no_json(alice: httpx.Client, body: str | bytes) -> None:
    assert post(alice, body) == (400, "invalid_json")


@pytest.mark.parametrize(
    "changes",
    [
        pytest.param({"projection": None}, id="no projection"),
        pytest.param({"scope": []}, id="empty scope"),
        pytest.param({"scope": ["record/*"]}, id="wildcard scope"),
        pytest.param({"scope": ["*"]}, id="everything"),
        pytest.param({"scope": ["record/app/[h]ttp"]}, id="pattern in the scope"),
        pytest.param({"evidence": {"mode": "spot"}}, id="spot without a rate"),
        pytest.param({"evidence": {"mode": "spot", "sample_rate": 2}}, id="rate above 1"),
        pytest.param({"evidence": {"mode": "full", "sample_rate": 1}}, id="rate with full"),
        pytest.param({"query_id": "../../etc/passwd"}, id="a path for an id"),
        pytest.param({"query_id": "a\u0000b"}, id="a control character in an id"),
        pytest.param({"unknown": 1}, id="unknown key"),
    ],
)
def test_refuses_descriptors_that_mean_nothing(
    alice: httpx.Client, changes: dict[str, Any]
) -> None:
    assert post(alice, json.dumps(query_world.a_query(**changes))) == (
        400,
        "invalid_query_descriptor",
    )


def test_refuses_another_version(alice: httpx.Client) -> None:
    assert post(alice, json.dumps(query_world.a_query(version=2))) == (400, "unsupported_version")


def test_refuses_a_descriptor_that_is_too_large(alice: httpx.Client) -> None:
    large = json.dumps(query_world.a_query(meta={"x": "y" * 400_000}))
    assert post(alice, large) == (413, "invalid_query_descriptor")


def test_refuses_a_descriptor_of_unknown_length_that_grows_too_large(query_zone: Any) -> None:
    def endless() -> Iterator[bytes]:
        yield from (b" " * 65_536 for _ in range(50))

    with query_zone.as_("alice") as http:
        headers = {"Content-Type": "application/json"}
        reply = http.post("/api/query/submit", content=endless(), headers=headers)
    assert refused(reply)[0] in (400, 413)


def test_one_answer_for_forbidden_and_for_unknown_streams(alice: httpx.Client) -> None:
    answers = []
    for stream in ("record/secret", "record/app/none", "record/query/requests", "core/main"):
        reply = alice.post("/api/query/submit", json=query_world.a_query(scope=[stream]))
        assert refused(reply) == (403, "forbidden_scope")
        answers.append(reply.json()["message"].replace(stream, ""))
    assert len(set(answers)) == 1


def test_an_auditor_who_is_no_submitter_submits_nothing(query_zone: Any) -> None:
    with query_zone.as_("auditor") as auditor:
        reply = auditor.post("/api/query/submit", json=query_world.a_query())
    assert refused(reply) == (403, "forbidden_scope")


def test_refuses_a_query_id_that_is_taken(alice: httpx.Client) -> None:
    first = alice.post("/api/query/submit", json=query_world.a_query(query_id="q-mine"))
    assert first.status_code == 200
    assert post(alice, json.dumps(query_world.a_query(query_id="q-mine"))) == (
        409,
        "duplicate_query_id",
    )


def test_one_of_many_wins_a_query_id(query_zone: Any) -> None:
    def submit(_: int) -> int:
        with query_zone.as_("alice") as http:
            query = query_world.a_query(query_id="q-raced")
            return int(http.post("/api/query/submit", json=query).status_code)

    with ThreadPoolExecutor(6) as many:
        codes = sorted(many.map(submit, range(6)))
    assert codes == [200] + [409] * 5


def test_another_ones_result_is_not_there(query_zone: Any, alice: httpx.Client) -> None:
    digest = alice.post("/api/query/submit", json=query_world.a_query()).json()["result_digest"]
    paths = [
        f"/api/query/{kind}/{digest['result_id']}" for kind in ("status", "result", "proof")
    ] + [f"/api/query/descriptor/{digest['query_id']}"]
    with query_zone.as_("bob") as bob, query_zone.as_("auditor") as auditor:
        for path in paths:
            absent = bob.get(path.replace(digest["result_id"], "r-" + "0" * 32)
                             .replace(digest["query_id"], "q-none"))  # fmt: skip
            assert refused(bob.get(path)) == (404, "query_not_found")
            assert bob.get(path).content == absent.content
            assert auditor.get(path).status_code in (200, 425)


@pytest.mark.parametrize(
    "path",
    [
        "/api/query/result/r-..%2f..%2fservice.sqlite",
        "/api/query/result/%2e%2e%2f%2e%2e",
        "/api/query/result/r-%00",
        "/api/query/result/" + "r" * 3_000,
        "/api/query/result/r-" + "A" * 32,
        "/api/query/proof/..",
        "/api/query/status/%F0%9F%90%88",
        "/api/query/descriptor/' OR 1=1 --",
        "/api/v2/query/status/r-" + "0" * 32,
        "/api/query",
        "/static/../recorder.toml",
        "/nowhere",
    ],
)
def test_paths_lead_nowhere(alice: httpx.Client, path: str) -> None:
    assert refused(alice.get(path)) == (404, "query_not_found")


def test_other_methods_learn_which_one_is_right(alice: httpx.Client) -> None:
    reply = alice.put("/api/query/submit", json={})
    assert refused(reply)[0] == 405
    assert reply.headers["Allow"] == "OPTIONS, POST"


@pytest.mark.parametrize("given", ["offset=-1", "limit=0", "limit=x", "offset=1e3", "limit=٣"])
def test_refuses_pages_that_are_none(alice: httpx.Client, given: str, query_zone: Any) -> None:
    reply = alice.get(f"/api/query/result/r-{'0' * 32}?{given}")
    assert refused(reply) == (400, "invalid_query_descriptor")


@pytest.mark.parametrize(
    "headers",
    [
        pytest.param({}, id="nobody"),
        pytest.param({"Authorization": "Bearer forged"}, id="forged token"),
        pytest.param({"Authorization": "Bearer"}, id="no token"),
        pytest.param({"Authorization": "Basic dGhlOnRva2Vu"}, id="other scheme"),
        pytest.param({"Authorization": "the token of alice"}, id="no scheme"),
        pytest.param({"Signature": "sig1=:AAAA:", "Signature-Input": "x"}, id="no signature"),
    ],
)
def test_nobody_known_is_unauthorized(query_zone: Any, headers: dict[str, str]) -> None:
    with query_zone.as_(None) as http:
        reply = http.get(f"/api/query/status/r-{'0' * 32}", headers=headers)
    assert refused(reply) == (401, "unauthorized")
    assert "Bearer" in reply.headers["WWW-Authenticate"]


def test_the_hash_of_a_token_is_no_token(query_zone: Any) -> None:
    with query_zone.as_(query_world.digest_of(query_world.TOKENS["alice"])) as http:
        assert refused(http.get(f"/api/query/status/r-{'0' * 32}")) == (401, "unauthorized")


def test_a_signed_request_is_taken_once_by_all_workers_together(query_zone: Any) -> None:
    assert len(query_zone.workers()) == 2
    path, body = "/api/query/submit", json.dumps(query_world.a_query()).encode()
    headers = {**query_zone.signature("POST", path, body), "Content-Type": "application/json"}

    def send(_: int) -> int:
        url = query_zone.url + path
        return httpx.post(url, content=body, headers=headers, trust_env=False).status_code

    with ThreadPoolExecutor(8) as many:
        codes = sorted(many.map(send, range(16)))
    assert codes == [200] + [401] * 15


@pytest.mark.parametrize("changed", ["body", "path", "method", "age"])
def test_a_signature_speaks_for_one_request_only(query_zone: Any, changed: str) -> None:
    path, body = "/api/query/submit", json.dumps(query_world.a_query()).encode()
    headers = {**query_zone.signature("POST", path, body), "Content-Type": "application/json"}
    if changed == "age":
        created = headers["Signature-Input"].partition("created=")[2][:10]
        old = headers["Signature-Input"].replace(created, str(int(created) - 900))
        headers["Signature-Input"] = old
    method = "PUT" if changed == "method" else "POST"
    sent = body.replace(b"none", b"full") if changed == "body" else body
    where = "/api/v1/query/submit" if changed == "path" else path
    reply = httpx.request(
        method, query_zone.url + where, content=sent, headers=headers, trust_env=False
    )
    assert reply.status_code in (401, 405)
