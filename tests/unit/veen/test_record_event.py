"""Recorder events: what is one, and why anything else is not (SDR0 3.2.1)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from veen.events import (
    MAX_NAME_BYTES,
    MAX_TIME_MS,
    RECORD_SCHEMA,
    EventFault,
    NotAnEvent,
    RecordEvent,
    read_event,
)
from veen.wire import cbor
from veen.wire.body import AnyItem
from veen.wire.canonical_json import value_to_cbor

CLIENT = b"c" * 32


def an_event(**changes: Any) -> RecordEvent:
    value = changes.pop("value", {"path": "/a"})
    plain = RecordEvent(
        subject_id="user-42",
        principal_id=CLIENT,
        event_type="http.request",
        event_time=1_700_000_000_123,
        origin="host-1",
        payload=AnyItem(value_to_cbor(value)),
    )
    return replace(plain, **changes)


def fault_of(schema: bytes, body: bytes, client: bytes = CLIENT) -> EventFault | None:
    try:
        read_event(schema, body, client)
    except NotAnEvent as error:
        return error.fault
    return None


def body_with(**changes: Any) -> bytes:
    """The body with fields set to anything; None leaves one out. Keys by length, then bytes."""
    fields: dict[str, Any] = {
        "origin": "host-1",
        "payload": 1,
        "event_time": 5,
        "event_type": "t",
        "subject_id": "s",
        "principal_id": CLIENT,
        **changes,
    }
    stored = {name: value for name, value in fields.items() if value is not None}
    return cbor.dump(dict(sorted(stored.items(), key=lambda item: (len(item[0]), item[0]))))


def test_an_unopened_message_is_none_whatever_its_body() -> None:
    assert fault_of(b"", an_event().encode()) is EventFault.UNOPENED


@pytest.mark.parametrize("schema", [bytes(32), RECORD_SCHEMA[:-1], RECORD_SCHEMA + b"\x00"])
def test_another_schema_is_none(schema: bytes) -> None:
    assert fault_of(schema, an_event().encode()) is EventFault.OTHER_SCHEMA


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"\xa0",
        b"\x80",
        an_event().encode()[:-1],
        an_event().encode() + b"\x00",
        body_with(origin=None),
        body_with(payload=None),
        body_with(extra=1),
        body_with(principal_id=b"short"),
        body_with(principal_id="text"),
        body_with(event_time="now"),
        body_with(subject_id=7),
        body_with(event_type=b"bytes"),
    ],
)
def test_a_body_of_another_shape_is_none(body: bytes) -> None:
    assert fault_of(RECORD_SCHEMA, body) is EventFault.MALFORMED


@pytest.mark.parametrize("name", ["subject_id", "event_type", "origin"])
@pytest.mark.parametrize("text", ["", "a" * (MAX_NAME_BYTES + 1), "é" * (MAX_NAME_BYTES // 2 + 1)])
def test_a_name_that_is_empty_or_too_long_makes_it_none(name: str, text: str) -> None:
    assert fault_of(RECORD_SCHEMA, an_event(**{name: text}).encode()) is EventFault.FIELD


def test_a_time_after_the_last_that_can_be_written_makes_it_none() -> None:
    assert (
        fault_of(RECORD_SCHEMA, an_event(event_time=MAX_TIME_MS + 1).encode()) is EventFault.FIELD
    )
    assert fault_of(RECORD_SCHEMA, an_event(event_time=MAX_TIME_MS).encode()) is None


@pytest.mark.parametrize(
    "payload",
    [
        b"\x41a",
        b"\xa1\x01\x01",
        b"\xf7",
        b"\xc1\x00",
        b"\x18\x01",
        b"\xf9\x7e\x00",
        b"\xfb\x3f\xf8" + bytes(6),
    ],
)
def test_a_payload_that_is_no_json_makes_it_none(payload: bytes) -> None:
    body = body_with().replace(b"gpayload\x01", b"gpayload" + payload)
    assert fault_of(RECORD_SCHEMA, body) in (EventFault.PAYLOAD, EventFault.MALFORMED)
    assert payload[0] not in (0x41, 0xA1) or fault_of(RECORD_SCHEMA, body) is EventFault.PAYLOAD


def test_a_principal_that_did_not_sign_makes_it_none() -> None:
    assert fault_of(RECORD_SCHEMA, an_event().encode(), b"d" * 32) is EventFault.PRINCIPAL


JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63), 2**63) | st.floats(allow_nan=False,
    allow_infinity=False) | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner,
    max_size=3),
    max_leaves=8,
)  # fmt: skip
NAMES = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=40)


@given(JSON, NAMES, NAMES, st.integers(0, MAX_TIME_MS))
def test_what_is_encoded_reads_back(value: Any, subject: str, kind: str, at: int) -> None:
    event = an_event(value=value, subject_id=subject, event_type=kind, event_time=at)
    record_event = read_event(RECORD_SCHEMA, event.encode(), CLIENT)
    assert record_event == event
    assert record_event.value() == value


@given(st.data())
def test_nothing_but_not_an_event_is_ever_raised(
    mutated: Callable[[Any, bytes], bytes], data: Any
) -> None:
    body = mutated(data, an_event(value={"a": [1.5, "x", None, -3]}).encode())
    if fault_of(RECORD_SCHEMA, body) is None:
        assert read_event(RECORD_SCHEMA, body, CLIENT).encode() == body


@given(st.binary(max_size=200), st.binary(max_size=33))
def test_no_bytes_at_all_raise_anything_else(body: bytes, schema: bytes) -> None:
    assert fault_of(schema, body) is not None
    assert fault_of(RECORD_SCHEMA, body) is not None
