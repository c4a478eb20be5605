"""submit_batch: many messages in one request, each by itself, in order."""

from __future__ import annotations

import logging
from dataclasses import replace
from typing import Any

import pytest

from veen.receipt import Receipt
from veen.wire import cbor
from veen.wire.api import BatchRequest, BatchResponse, ErrorEnvelope


def test_a_batch_is_committed_in_order(hub: Any) -> None:
    alice = hub.writer("alice", "record/a")
    results = batch(hub, *(alice.msg(seq) for seq in range(1, 6)))
    receipts = [Receipt.decode(result.receipt) for result in results]
    assert [receipt.stream_seq for receipt in receipts] == [1, 2, 3, 4, 5]
    for receipt in receipts:
        hub.identity.verify_receipt(receipt)


def test_a_refused_message_does_not_touch_its_neighbours(hub: Any) -> None:
    bob, carol = hub.writer("bob", "record/b"), hub.writer("carol", "record/b")
    broken = replace(bob.msg(2), sig=bytes(64))
    results = batch(hub, bob.msg(1), broken, carol.msg(1), bob.msg(2), carol.msg(1), carol.msg(2))
    assert [summary(result) for result in results] == [1, "SIG_INVALID", 2, 3, "DUPLICATE", 4]


def test_a_message_that_lost_its_predecessor_is_out_of_sequence(hub: Any) -> None:
    dave = hub.writer("dave", "export/x")
    results = batch(hub, dave.msg(1, ct_hash=bytes(32)), dave.msg(2))
    assert [summary(result) for result in results] == ["CT_HASH", "CLIENT_SEQ"]


def test_a_duplicate_inside_a_batch_tells_the_place_of_the_first(hub: Any) -> None:
    erin = hub.writer("erin", "export/x")
    first, second = batch(hub, erin.msg(1), erin.msg(1))
    assert second.error.detail["stream_seq"] == Receipt.decode(first.receipt).stream_seq


def test_what_is_no_message_at_all_is_refused_by_itself(hub: Any) -> None:
    fred = hub.writer("fred", "export/x")
    answer = hub.post("/v1/submit_batch", BatchRequest(msgs=(b"\x00", fred.msg(1).encode())))
    results = BatchResponse.decode(answer.data).results
    assert summary(results[0]) == "CBOR_INVALID"
    assert results[1].error is None


def test_an_empty_batch_has_no_results(hub: Any, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO):
        assert batch(hub) == ()


def test_json_and_cbor_batches_have_the_same_results(hub: Any) -> None:
    gina = hub.writer("gina", "export/x")
    gina.write(1, 1)
    messages = (gina.msg(1), gina.msg(9))
    binary = [summary(item) for item in batch(hub, *messages)]
    body = {"ver": 1, "msgs": [message.to_json() for message in messages]}
    text = hub.post_json("/v1/submit_batch", body).json["results"]
    assert [item["error"]["detail"]["detail_enum"] for item in text] == binary


def test_refuses_too_many_messages(hub: Any) -> None:
    answer = hub.post("/v1/submit_batch", BatchRequest(msgs=(b"\x00",) * 4_097))
    envelope = ErrorEnvelope.decode(answer.data)
    assert envelope.detail is not None
    assert (answer.status_code, envelope.code, envelope.detail["max_allowed"]) == (
        413,
        "E.LIMIT",
        4_096,
    )
    answer = hub.post_json("/v1/submit_batch", {"ver": 1, "msgs": [0] * 4_097})
    assert answer.json["code"] == "E.LIMIT"


def test_counts_the_messages_before_it_reads_them(hub: Any) -> None:
    unreadable = cbor.encode({1: 1, 2: [0] * 4_097})[:-4_097] + b"\xff" * 4_097
    answer = hub.post("/v1/submit_batch", unreadable)
    assert ErrorEnvelope.decode(answer.data).code == "E.LIMIT"


def batch(hub: Any, *messages: Any) -> Any:
    request = BatchRequest(msgs=tuple(message.encode() for message in messages))
    answer = hub.post("/v1/submit_batch", request)
    assert answer.status_code == 200
    return BatchResponse.decode(answer.data).results


def summary(result: Any) -> Any:
    if result.error is None:
        return Receipt.decode(result.receipt).stream_seq
    return result.error.detail["detail_enum"]
