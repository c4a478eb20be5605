"""Events and recorder checkpoints against vectors that were made without the library."""

from __future__ import annotations

from typing import Any

import pytest

from support.vectors import load_vectors
from veen.crypto import SigningKey
from veen.events import RECORD_SCHEMA, RecordEvent, read_event
from veen.hub_identity import new_identity
from veen.recorder_checkpoint import RecorderCheckpoint, StreamEnd, log_root
from veen.wire.body import AnyItem

CASES = load_vectors("veen.json")


def cases(section: str) -> pytest.MarkDecorator:
    return pytest.mark.parametrize("case", CASES[section], ids=lambda case: case["name"])


def hexed(text: str) -> bytes:
    return bytes.fromhex(text)


@cases("record_events")
def test_an_event_has_the_bytes_of_its_vector(case: Any) -> None:
    fields = case["fields"]
    event = RecordEvent(
        **{
            **fields,
            "principal_id": hexed(fields["principal_id"]),
            "payload": AnyItem(hexed(fields["payload"])),
        }
    )
    assert event.encode() == hexed(case["cbor"])
    assert hexed(case["schema"]) == RECORD_SCHEMA
    assert read_event(RECORD_SCHEMA, hexed(case["cbor"]), event.principal_id) == event


@cases("log_roots")
def test_a_log_root_is_that_of_its_vector(case: Any) -> None:
    ends = [
        StreamEnd(stream_id=hexed(stream), last_seq=count, mmr_root=hexed(root))
        for stream, count, root in case["ends"]
    ]
    assert log_root(ends) == hexed(case["log_root"])


@cases("recorder_checkpoints")
def test_a_recorder_checkpoint_has_the_bytes_of_its_vector(case: Any) -> None:
    raw, key = hexed(case["cbor"]), SigningKey(hexed(case["seed"]))
    checkpoint = RecorderCheckpoint.decode(raw)
    assert checkpoint.to_json() == case["fields"]
    assert (checkpoint.encode(), checkpoint.checkpoint_id) == (raw, hexed(case["checkpoint_id"]))
    assert RecorderCheckpoint.from_json(case["fields"]).signed(key).encode() == raw
    checkpoint.verify(new_identity(key.public, 1_600_000_000, "none"))
