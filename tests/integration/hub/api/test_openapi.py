"""The OpenAPI document tells of every route, and the answers are what it says."""

from __future__ import annotations

from typing import Any

import pytest
from jsonschema import Draft202012Validator  # type: ignore[import-untyped]

from veen.wire.api import BatchRequest


@pytest.fixture(scope="module")
def document(hub: Any) -> Any:
    return hub.get("/openapi.json").json


@pytest.fixture(scope="module")
def alice(hub: Any) -> Any:
    writer = hub.writer("alice", "record/a")
    writer.write(1, 3)
    return writer


def test_the_document_has_the_routes_of_the_application(hub: Any, document: Any) -> None:
    served = {
        (rule.rule, method.lower())
        for rule in hub.http.application.url_map.iter_rules()
        for method in rule.methods - {"HEAD", "OPTIONS"}
    }
    described = {(path, method) for path, item in document["paths"].items() for method in item}
    assert described == served


def test_every_reference_leads_somewhere(document: Any) -> None:
    for reference in references(document):
        target = document
        for part in reference.removeprefix("#/").split("/"):
            target = target[part]
        assert target


def test_every_schema_is_a_schema(document: Any) -> None:
    for schema in document["components"]["schemas"].values():
        Draft202012Validator.check_schema(schema)


def test_json_answers_are_as_described(alice: Any, document: Any) -> None:
    label, numbers = alice.label.hex(), {"ver": 1}
    place = {"ver": 1, "label": label}
    reports = {
        "/v1/submit": {**numbers, "msg": alice.msg(4).to_json()},
        "/v1/submit_batch": {**numbers, "msgs": [alice.msg(9).to_json(), alice.msg(5).to_json()]},
        "/v1/stream": {**place, "from_seq": 1, "with_receipts": True, "with_mmr_proof": True},
        "/v1/receipt": {**place, "stream_seq": 1},
        "/v1/proof": {**place, "stream_seq": 2},
        "/v1/checkpoint": {**place, "upto_seq": 3},
        "/tooling/authorize": alice.hub.token(alice.key, "record/a").to_json(),
        "/tooling/streams": {"name": "record/more"},
        "/tooling/inclusion": {"label": label, "stream_seq": 1, "size": 3},
        "/tooling/consistency": {"label": label, "old_size": 1, "new_size": 3},
        "/tooling/range_proof": {"label": label, "from_seq": 1, "to_seq": 2, "size": 3},
        "/tooling/locate": {"label": label, "hub_ts": 0},
    }
    for path, body in reports.items():
        operation = document["paths"][path]["post"]
        content = operation["requestBody"]["content"]["application/json"]
        validate(document, content["schema"], body)
        answer = alice.hub.post_json(path, body, as_="admin")
        assert answer.status_code == 200, (path, answer.text)
        validate(document, schema_of(operation), answer.json)


def test_json_answers_to_get_are_as_described(alice: Any, document: Any) -> None:
    alice.hub.post_json(
        "/v1/checkpoint", {"ver": 1, "label": alice.label.hex(), "upto_seq": 2}, as_="admin"
    )
    query = f"?label={alice.label.hex()}"
    for path, arguments in {
        "/tooling/status": "",
        "/tooling/streams": "",
        "/tooling/checkpoint_latest": query,
        "/tooling/checkpoint_range": query,
        "/healthz": "",
        "/readyz": "",
    }.items():
        answer = alice.hub.get(path + arguments, as_="admin")
        assert answer.status_code == 200, (path, answer.text)
        validate(document, schema_of(document["paths"][path]["get"]), answer.json)


def test_refusals_are_as_described(alice: Any, document: Any) -> None:
    schema = document["components"]["schemas"]["ErrorEnvelope"]
    for answer in (
        alice.hub.post_json("/v1/submit", {"ver": 1, "msg": alice.msg(1).to_json()}),
        alice.hub.post_json("/v1/stream", {}),
        alice.hub.get("/nothing"),
    ):
        validate(document, schema, answer.json)


def test_the_document_refuses_what_the_hub_refuses(alice: Any, document: Any) -> None:
    schema = document["components"]["schemas"]["BatchRequest"]
    good = BatchRequest(msgs=(alice.msg(1).encode(),)).to_json()
    assert valid(document, schema, good)
    assert not valid(document, schema, {**good, "more": 1})
    assert not valid(document, schema, {**good, "ver": 2})
    assert not valid(document, schema, {"ver": 1, "msgs": [good["msgs"][0][:9]]})
    assert not valid(document, schema, {"ver": 1, "msgs": [[*good["msgs"][0], 1]]})


def schema_of(operation: Any) -> Any:
    return operation["responses"]["200"]["content"]["application/json"]["schema"]


def validate(document: Any, schema: Any, value: Any) -> None:
    Draft202012Validator({**schema, "components": document["components"]}).validate(value)


def valid(document: Any, schema: Any, value: Any) -> bool:
    result: bool = Draft202012Validator({**schema, "components": document["components"]}).is_valid(
        value
    )
    return result


def references(node: Any) -> list[str]:
    if isinstance(node, dict):
        own = [node["$ref"]] if "$ref" in node else []
        return own + [result for child in node.values() for result in references(child)]
    if isinstance(node, list):
        return [result for child in node for result in references(child)]
    return []
