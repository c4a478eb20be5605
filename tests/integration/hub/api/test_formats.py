"""CBOR and JSON say the same, and whatever is neither is refused (spec 10.3)."""

from __future__ import annotations

from io import BytesIO
from typing import Any

import pytest

from veen.receipt import Receipt
from veen.wire import cbor
from veen.wire.api import (
    ErrorEnvelope,
    ReceiptRequest,
    StreamRequest,
    StreamResponse,
    SubmitRequest,
    SubmitResponse,
)

CBOR, JSON = "application/cbor", "application/json"


@pytest.fixture(scope="module")
def alice(hub: Any) -> Any:
    writer = hub.writer("alice", "record/a")
    writer.write(1, 3)
    return writer


def test_a_message_in_json_gets_a_receipt_in_json(hub: Any) -> None:
    writer = hub.writer("jason", "record/b")
    message = writer.msg(1)
    answer = hub.post_json("/v1/submit", {"ver": 1, "msg": message.to_json()})
    receipt = Receipt.from_json(answer.json["receipt"])
    hub.identity.verify_receipt(receipt)
    assert receipt.leaf_hash == message.leaf_hash()
    assert SubmitResponse.from_json(answer.json).server_version == "0.0.1"


def test_both_forms_of_a_page_are_the_same_page(alice: Any) -> None:
    request = StreamRequest(label=alice.label, from_seq=1, with_receipts=True, with_mmr_proof=True)
    binary = alice.hub.post("/v1/stream", request, as_="admin")
    text = alice.hub.post_json("/v1/stream", request.to_json(), as_="admin")
    assert StreamResponse.decode(binary.data) == StreamResponse.from_json(text.json)
    assert binary.mimetype == CBOR
    assert text.mimetype == JSON


def test_both_forms_of_a_refusal_are_the_same_refusal(alice: Any) -> None:
    message = alice.msg(1)
    binary = ErrorEnvelope.decode(alice.submit(message).data)
    answer = alice.hub.post_json("/v1/submit", {"ver": 1, "msg": message.to_json()})
    text = ErrorEnvelope.from_json(answer.json)
    assert (binary.code, binary.to_json()["detail"]) == (text.code, text.detail)


@pytest.mark.parametrize(
    ("index", "value", "detail"),
    [(2, "00" * 31, "FIELD_SIZE"), (0, 2, "VERSION"), (4, "00", "CBOR_INVALID")],
)
def test_a_fault_of_the_message_is_its_own_in_json_too(
    alice: Any, index: int, value: Any, detail: str
) -> None:
    fields = alice.msg(4).to_json()
    fields[index] = value
    answer = alice.hub.post_json("/v1/submit", {"ver": 1, "msg": fields})
    assert answer.json["detail"]["detail_enum"] == detail


def test_accept_overrides_the_format_of_the_answer(alice: Any) -> None:
    request = ReceiptRequest(label=alice.label, stream_seq=1)
    answer = alice.hub.post("/v1/receipt", request, as_="admin", Accept=JSON)
    assert answer.mimetype == JSON
    status = alice.hub.get("/tooling/status", Accept=CBOR)
    assert cbor.decode(status.data)[1] == 1


@pytest.mark.parametrize(
    "body",
    [
        '{"ver": 1}',
        '{"ver": 1, "msg": [], "msg": []}',
        '{"ver": 1, "msg": [], "more": 1}',
        '{"ver": true, "msg": []}',
        '{"ver": 1.0, "msg": []}',
        '{"ver": 1, "msg": [NaN]}',
        '{"ver": 1, "msg": [-1]}',
        '{"ver": 1, "msg": [18446744073709551616]}',
        '{"ver": 1, "msg": ["AB"]}',
        '{"ver": 1, "msg": ["abc"]}',
        "[" * 4_000,
        "9" * 5_000,
        "\x80",
        "",
    ],
    ids=range(14),
)
def test_refuses_json_that_is_no_envelope(hub: Any, body: str) -> None:
    answer = hub.http.post("/v1/submit", data=body.encode("latin-1"), content_type=JSON)
    assert (answer.status_code, answer.json["code"]) == (400, "E.BAD_REQUEST")


@pytest.mark.parametrize(
    "raw", [b"", b"\xa0", b"\xa1\x01\x01", b"\xa2\x01\x01\x02\x80\x00", b"\xff"]
)
def test_refuses_cbor_that_is_no_envelope(hub: Any, raw: bytes) -> None:
    assert detail(hub.post("/v1/submit", raw)) == (400, "E.BAD_REQUEST")


def test_refuses_another_version_of_the_envelope(hub: Any) -> None:
    assert detail(hub.post("/v1/submit", cbor.encode({1: 2, 2: []}))) == (400, "E.VERSION")
    assert hub.post_json("/v1/submit", {"ver": 2, "msg": []}).json["code"] == "E.VERSION"


@pytest.mark.parametrize("path", ["/v2/submit", "/v0/stream", "/v10/submit", "/v2", "/v01/submit"])
def test_refuses_another_version_of_the_api(hub: Any, path: str) -> None:
    assert detail(hub.post(path, b"")) == (400, "E.VERSION")


def test_unknown_routes_and_methods_are_distinguished(hub: Any) -> None:
    assert detail(hub.post("/v1/nothing", b"")) == (404, "E.NOT_FOUND")
    assert hub.get("/v1/submit").json["code"] == "E.BAD_REQUEST"


@pytest.mark.parametrize("content_type", ["text/plain", "application/x-www-form-urlencoded", None])
def test_refuses_an_unknown_content_type(hub: Any, content_type: str | None) -> None:
    answer = hub.http.post("/v1/submit", data=b"{}", content_type=content_type)
    assert (answer.status_code, answer.json["code"]) == (400, "E.BAD_REQUEST")


def test_refuses_a_compressed_body(hub: Any) -> None:
    assert detail(hub.post("/v1/submit", b"", Content_Encoding="gzip")) == (400, "E.BAD_REQUEST")


@pytest.mark.parametrize(
    ("path", "size", "code"),
    [
        ("/v1/submit", 6_000, "E.SIZE"),
        ("/v1/stream", 70_000, "E.LIMIT"),
        ("/v1/submit_batch", 33_554_433, "E.LIMIT"),
        ("/tooling/authorize", 70_000, "E.LIMIT"),
    ],
)
@pytest.mark.parametrize("announced", [True, False])
def test_refuses_an_oversize_body(
    hub: Any, path: str, size: int, code: str, announced: bool
) -> None:
    """An announced length is refused unread; a chunked body once it has shown its size."""
    body = UnclosedBytes(bytes(size))
    chunked = {"HTTP_TRANSFER_ENCODING": "chunked", "wsgi.input_terminated": True}
    answer = hub.http.post(
        path,
        input_stream=body,
        content_type=CBOR,
        environ_overrides={} if announced else chunked,
    )
    assert detail(answer) == (413, code)
    assert (body.tell() == 0) is announced


def test_a_submit_within_the_bound_but_above_the_limit_is_the_messages_fault(hub: Any) -> None:
    answer = hub.post("/v1/submit", SubmitRequest(msg=cbor.encode(bytes(4_200))))
    detail = ErrorEnvelope.decode(answer.data).detail
    assert detail is not None
    assert detail["detail_enum"] == "SIZE_PREFILTER"


class UnclosedBytes(BytesIO):
    """A body that still tells, after the request, how far it was read."""

    def close(self) -> None:
        return


def detail(answer: Any) -> tuple[int, str]:
    return answer.status_code, ErrorEnvelope.decode(answer.data).code
