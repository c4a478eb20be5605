"""Requests signed by a principal's key: what must be covered, and that each counts once."""

from __future__ import annotations

import datetime as dt
from typing import Any

import pytest
from http_message_signatures import HTTPMessageSigner, HTTPSignatureAlgorithm, MappingKeyResolver

from veen.wire.api import ErrorEnvelope, ReceiptRequest

TARGET = ("@method", "@target-uri")


class Ed25519(HTTPSignatureAlgorithm):
    algorithm_id = "ed25519"

    def __init__(self, public_key: Any = None, private_key: Any = None) -> None:
        self._key, self._public = private_key, public_key

    def sign(self, message: bytes) -> bytes:
        result: bytes = self._key.sign(message)
        return result


class Request:
    def __init__(self, method: str, url: str) -> None:
        self.method, self.url = method, url
        self.headers: dict[str, str] = {}


@pytest.fixture(scope="module")
def body(hub: Any) -> bytes:
    receipt = hub.writer("alice", "record/a").write(1, 1)[0]
    return ReceiptRequest(label=receipt.label, stream_seq=1).encode()


@pytest.fixture
def signed(hub: Any, body: bytes, request: Any) -> Any:
    """Headers that sign a request for the receipt; changes say how the request is at fault."""

    def make(**changes: Any) -> dict[str, str]:
        given = {
            "name": "admin", "key": "admin", "method": "POST", "path": "/v1/receipt",
            "age": 0, "covered": TARGET, "body": body, "nonce": request.node.name, **changes,
        }  # fmt: skip
        message = Request(given["method"], f"http://localhost{given['path']}")
        keys = MappingKeyResolver(
            public_keys={}, private_keys={given["name"]: hub.key(given["key"])}
        )
        signer = HTTPMessageSigner(signature_algorithm=Ed25519, key_resolver=keys)
        now = dt.datetime.now(tz=dt.UTC)
        signer.sign(
            message,
            key_id=given["name"],
            created=now - dt.timedelta(seconds=given["age"]),
            covered_component_ids=given["covered"],
            nonce=given["nonce"],
            body=given["body"],
        )
        return message.headers

    return make


def send(hub: Any, body: bytes, headers: dict[str, str]) -> tuple[int, str]:
    answer = hub.post("/v1/receipt", body, **headers)
    code = "ok" if answer.status_code == 200 else ErrorEnvelope.decode(answer.data).code
    return answer.status_code, code


@pytest.mark.parametrize("covered", [TARGET, ("@method", "@path", "@query")])
def test_a_signed_request_is_its_principals(
    hub: Any, body: bytes, signed: Any, covered: tuple[str, ...]
) -> None:
    assert send(hub, body, signed(covered=covered)) == (200, "ok")


@pytest.mark.parametrize(
    "changes",
    [
        {"key": "exporter"},
        {"name": "nobody", "key": "admin"},
        {"method": "GET"},
        {"path": "/v1/proof"},
        {"path": "/v1/receipt?more"},
        {"age": 400},
        {"age": -60},
        {"covered": ("@method",)},
        {"covered": ("@method", "@path")},
        {"covered": ("@target-uri",)},
        {"body": None},
        {"body": b"another body"},
    ],
    ids=str,
)
def test_refuses_a_signature_that_does_not_speak_for_the_request(
    hub: Any, body: bytes, signed: Any, changes: dict[str, Any]
) -> None:
    assert send(hub, body, signed(**changes)) == (401, "E.UNAUTHORIZED")


def test_refuses_a_replayed_request(hub: Any, body: bytes, signed: Any) -> None:
    headers = signed()
    assert send(hub, body, dict(headers)) == (200, "ok")
    assert send(hub, body, dict(headers)) == (401, "E.UNAUTHORIZED")
    renamed = {name: value.replace("pyhms=", "other=") for name, value in headers.items()}
    assert send(hub, body, renamed) == (401, "E.UNAUTHORIZED")


def test_refuses_a_changed_body_under_a_good_signature(hub: Any, body: bytes, signed: Any) -> None:
    headers = signed()
    other = body[:-1] + bytes([body[-1] ^ 1])
    assert send(hub, other, dict(headers)) == (401, "E.UNAUTHORIZED")
    assert send(hub, body, dict(headers)) == (200, "ok")


def test_a_signature_gives_its_principals_access_only(hub: Any, body: bytes, signed: Any) -> None:
    headers = signed(name="exporter", key="exporter")
    assert send(hub, body, headers) == (403, "E.FORBIDDEN")


def test_a_bad_token_is_not_saved_by_a_good_signature(hub: Any, body: bytes, signed: Any) -> None:
    assert send(hub, body, {**signed(), "as_": "nobody"}) == (401, "E.UNAUTHORIZED")


@pytest.mark.parametrize("header", ["x", "pyhms=()", "pyhms=:AAAA:", 'a=("@method");keyid="admin"'])
def test_refuses_what_is_no_signature(hub: Any, body: bytes, header: str) -> None:
    headers = {"Signature": header, "Signature-Input": header}
    assert send(hub, body, headers) == (401, "E.UNAUTHORIZED")
