"""H12: a request whose messages are refused leaves one line, however many they are."""

from __future__ import annotations

import json
import logging
from typing import Any

import pytest

from veen.wire.api import BatchRequest


def test_h12_refused_messages_of_a_request_are_one_line(
    hub: Any, caplog: pytest.LogCaptureFixture
) -> None:
    body = BatchRequest(msgs=(b"\x00",) * 4_000)
    with caplog.at_level(logging.INFO, "hub.submit"):
        answer = hub.post("/v1/submit_batch", body)
    (line,) = [line for record in caplog.records for line in record.getMessage().splitlines()]
    document = json.loads(line)
    assert document["request_id"] == answer.headers["X-Request-Id"]
    assert (document["refused"], document["bytes_in"]) == ({"E.FORMAT": 4_000}, 4_000)
    assert len(line) < 300


def test_h12_taken_and_refused_messages_stand_apart(
    hub: Any, caplog: pytest.LogCaptureFixture
) -> None:
    writer = hub.writer("bob", "record/b")
    good, again = writer.msg(1, b"a"), writer.msg(1, b"b")
    broken = writer.msg(2, ct_hash=bytes(32))
    body = BatchRequest(msgs=tuple(item.encode() for item in (good, again, again, broken)))
    with caplog.at_level(logging.INFO, "hub.submit"):
        hub.post("/v1/submit_batch", body)
    taken, refused = [json.loads(line) for line in caplog.records[0].getMessage().splitlines()]
    assert (taken["stream_seq"], "code" in taken) == (1, False)
    assert refused["refused"] == {"E.FORMAT": 1, "E.SEQ": 2}
    assert (refused["code"], refused["label"]) == ("E.SEQ", writer.label.hex())
