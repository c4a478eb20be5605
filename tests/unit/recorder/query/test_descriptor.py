"""Descriptors: what is read, what is filled in, and every way in which one is refused."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from recorder.query.descriptor import (
    Descriptor,
    JsonLimits,
    normalise,
    parse_json,
    read_canonical,
    read_descriptor,
    read_row,
)
from recorder.query.filter import ALL
from recorder.service.errors import BadDescriptor
from support.recorder import query_histories
from veen.errors import Malformed
from veen.wire import canonical_json

Build = Callable[..., dict[str, Any]]
DEEP = 10**5
WIDE = JsonLimits(max_bytes=1 << 21)
CODES = ("invalid_query_descriptor", "unsupported_version")


def refused(value: Any) -> BadDescriptor:
    with pytest.raises(BadDescriptor) as caught:
        normalise(value, query_id_if_missing="q-made")
    return caught.value


@pytest.mark.parametrize(
    "raw",
    [
        b"",
        b"{",
        b"nul",
        b"{} {}",
        b"'a'",
        b'{"a":1,}',
        b"\xff",
        b'"\xed\xa0\x80"',
        b"\xef\xbb\xbf{}",
        b"NaN",
        b"[Infinity]",
        b"-Infinity",
        b"1e999",
        b"-1e999",
        b"01",
        b"9007199254740992",
        b"-9007199254740992",
        b"1" * 5000,
        b'{"a":1,"a":2}',
        b'{"a":1,"b":{"c":1,"c":1}}',
        b'{"a":1,"\\u0061":2}',
        b'"\\ud800"',
        b'{"\\udfff":1}',
        b"[" * DEEP,
        b"[" * DEEP + b"]" * DEEP,
        b'{"a":' * DEEP,
        b'{"a":' * DEEP + b"1" + b"}" * DEEP,
        b"[" * 33 + b"]" * 33,
        b'"\n"',
        b'"unclosed [[[',
    ],
    ids=lambda raw: ascii(raw[:24]),
)
def test_refuses_as_invalid_json(raw: bytes) -> None:
    with pytest.raises(BadDescriptor) as caught:
        parse_json(raw, WIDE)
    assert caught.value.code == "invalid_json"


def test_refuses_what_is_too_long_before_it_is_read() -> None:
    with pytest.raises(BadDescriptor, match="at most 65536 bytes, got 65537") as caught:
        parse_json(b"[" * 65_537)
    assert caught.value.code == "invalid_json"


def test_says_why_it_is_no_json() -> None:
    with pytest.raises(BadDescriptor, match="key 'a' occurs twice"):
        parse_json(b'{"a":1,"a":2}')
    with pytest.raises(BadDescriptor, match="at most 32 levels, got more at byte 32"):
        parse_json(b"[" * DEEP, WIDE)


@pytest.mark.parametrize(
    ("raw", "value"),
    [
        (b"[" * 32 + b"]" * 32, None),
        (b'"' + b"[" * 100 + b'"', "[" * 100),
        (b'"\\"[[[[' + b"[" * 50 + b'"', '"' + "[" * 54),
        (b"9007199254740991", 2**53 - 1),
        (b" [1, 1.5, true, null] ", [1, 1.5, True, None]),
        (b'"\\ud83d\\ude00"', "\U0001f600"),
    ],
    ids=["depth", "brackets in text", "escaped quote", "largest", "plain", "pair"],
)
def test_reads(raw: bytes, value: Any) -> None:
    assert value is None or parse_json(raw) == value
    parse_json(raw)


def test_the_bounds_can_be_chosen() -> None:
    assert parse_json(b"[[1]]", JsonLimits(max_bytes=5, max_depth=2)) == [[1]]
    for limits in (JsonLimits(max_bytes=4, max_depth=2), JsonLimits(max_bytes=5, max_depth=1)):
        with pytest.raises(BadDescriptor):
            parse_json(b"[[1]]", limits)


@given(st.binary(max_size=60))
def test_any_bytes_are_json_or_refused(raw: bytes) -> None:
    try:
        value = parse_json(raw)
    except BadDescriptor:
        return
    assert canonical_json.encode(value) is not None


LOOSE = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(-(2**60), 2**60), st.floats(), st.text()),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)
PLACES = (
    "query_id", "version", "scope", "filter", "projection", "aggregate", "evidence", "meta", "else",
)  # fmt: skip


@given(st.sampled_from(PLACES), LOOSE)
def test_any_value_anywhere_is_read_or_refused(place: str, value: Any) -> None:
    whole = {
        "scope": ["a"], "filter": {}, "projection": ["*"], "evidence": {"mode": "none"},
    }  # fmt: skip
    try:
        descriptor = normalise({**whole, place: value}, query_id_if_missing="q")
    except BadDescriptor as error:
        code = error.code
    else:
        code = CODES[0]
        assert normalise(descriptor.document(), query_id_if_missing="-") == descriptor
    assert code in CODES


REFUSED: list[tuple[dict[str, Any], str]] = [
    ({"query_id": ""}, "query_id"),
    ({"query_id": "a" * 129}, "query_id"),
    ({"query_id": "a b"}, "query_id"),
    ({"query_id": "a\n"}, "query_id"),
    ({"query_id": "\u00e9"}, "query_id"),
    ({"query_id": 1}, "query_id"),
    ({"version": "1"}, "version must be an integer"),
    ({"version": True}, "version must be an integer"),
    ({"version": 1.0}, "version must be an integer"),
    ({"version": None}, "version must be an integer"),
    ({"scope": ...}, "scope is missing"),
    ({"filter": ...}, "filter is missing"),
    ({"projection": ...}, "projection is missing"),
    ({"evidence": ...}, "evidence is missing"),
    ({"other": 1}, "unknown key 'other'"),
    ({"scope": []}, "1 to 256 streams"),
    ({"scope": ["a"] * 257}, "1 to 256 streams"),
    ({"scope": "record/a"}, "1 to 256 streams"),
    ({"scope": ["record/a", "record/a"]}, "'record/a' twice"),
    ({"scope": ["record/*"]}, "wildcard"),
    ({"scope": ["*"]}, "wildcard"),
    ({"scope": ["record/?"]}, "wildcard"),
    ({"scope": ["record/[ab]"]}, "wildcard"),
    ({"scope": ["ab" * 32]}, "by its identifier"),
    ({"scope": [""]}, "printable"),
    ({"scope": ["a" * 256]}, "printable"),
    ({"scope": ["a\n"]}, "printable"),
    ({"scope": ["\ud800"]}, "printable"),
    ({"scope": [1]}, "printable"),
    ({"filter": []}, "filter must be an object"),
    ({"filter": {"status": 1}}, "filter: unknown key 'status'"),
    ({"filter": {"subject_id": 1}}, "filter.subject_id"),
    ({"filter": {"subject_id": ""}}, "filter.subject_id"),
    ({"filter": {"subject_id": "a" * 513}}, "filter.subject_id"),
    ({"filter": {"subject_id": "\ud800"}}, "no canonical JSON"),
    ({"filter": {"origin": ["a"]}}, "filter.origin"),
    ({"filter": {"event_type": []}}, "filter.event_type"),
    ({"filter": {"event_type": "login"}}, "filter.event_type"),
    ({"filter": {"event_type": ["a"] * 1025}}, "filter.event_type"),
    ({"filter": {"event_type": [None]}}, "filter.event_type"),
    ({"filter": {"event_type": [""]}}, "filter.event_type"),
    ({"filter": {"principal_id": "ab"}}, "filter.principal_id"),
    ({"filter": {"principal_id": "AB" * 32}}, "filter.principal_id"),
    ({"filter": {"principal_id": 1}}, "filter.principal_id"),
    ({"filter": {"time": []}}, "filter.time must be an object"),
    ({"filter": {"time": {"until": None}}}, "filter.time: unknown key 'until'"),
    ({"filter": {"time": {"from": 1}}}, "filter.time.from"),
    ({"filter": {"time": {"from": "yesterday"}}}, "filter.time.from"),
    ({"filter": {"time": {"to": "2025-02-30T00:00:00Z"}}}, "filter.time.to"),
    ({"filter": {"time": {"to": "2025-02-03T00:00:00+01:00"}}}, "filter.time.to"),
    ({"filter": {"time": {"to": "2025-02-03T00:00:00.1234Z"}}}, "filter.time.to"),
    (
        {"filter": {"time": {"from": "2025-01-02T00:00:00Z", "to": "2025-01-01T00:00:00Z"}}},
        "is after",
    ),
    ({"projection": []}, "1 to 256 fields"),
    ({"projection": "*"}, "1 to 256 fields"),
    ({"projection": ["*", "origin"]}, "got '\\*'"),
    ({"projection": ["origin", "origin"]}, "'origin' twice"),
    ({"projection": ["payload", "payload.*"]}, "'payload' twice"),
    ({"projection": ["nothing"]}, "got 'nothing'"),
    ({"projection": [1]}, "expected the name of a field"),
    ({"projection": ["payload."]}, "empty step"),
    ({"projection": ["payload..a"]}, "empty step"),
    ({"projection": ["payload.a.*"]}, "wildcard"),
    ({"projection": ["payload.a\\b"]}, "backslash"),
    ({"projection": ["payload.a\\"]}, "backslash"),
    ({"projection": ["payload" + ".a" * 17]}, "at most 16 levels"),
    ({"projection": ["payload." + "a" * 1024]}, "at most 1024 bytes"),
    ({"evidence": []}, "evidence must be an object"),
    ({"evidence": {}}, "evidence.mode"),
    ({"evidence": {"mode": "some"}}, "evidence.mode"),
    ({"evidence": {"mode": ["none"]}}, "evidence.mode"),
    ({"evidence": {"mode": "none", "rate": 1}}, "evidence: unknown key 'rate'"),
    ({"evidence": {"mode": "none", "sample_rate": 0.5}}, "goes with spot"),
    ({"evidence": {"mode": "full", "sample_rate": 1}}, "goes with spot"),
    ({"evidence": {"mode": "spot"}}, "above 0 and up to 1"),
    ({"evidence": {"mode": "spot", "sample_rate": 0}}, "above 0 and up to 1"),
    ({"evidence": {"mode": "spot", "sample_rate": -0.5}}, "above 0 and up to 1"),
    ({"evidence": {"mode": "spot", "sample_rate": 1.01}}, "above 0 and up to 1"),
    ({"evidence": {"mode": "spot", "sample_rate": True}}, "above 0 and up to 1"),
    ({"evidence": {"mode": "spot", "sample_rate": "1"}}, "above 0 and up to 1"),
    ({"evidence": {"mode": "spot", "sample_rate": float("nan")}}, "above 0 and up to 1"),
    ({"aggregate": []}, "aggregate must be an object"),
    ({"aggregate": {"metrics": ["count"], "having": 1}}, "aggregate: unknown key 'having'"),
    ({"aggregate": {}}, "1 to 64 metrics"),
    ({"aggregate": {"metrics": []}}, "1 to 64 metrics"),
    ({"aggregate": {"metrics": ["count", "count"]}}, "'count' twice"),
    ({"aggregate": {"metrics": ["median(event_time)"]}}, "aggregate.metrics: expected count"),
    ({"aggregate": {"metrics": ["count(event_time)"]}}, "aggregate.metrics: expected count"),
    ({"aggregate": {"metrics": ["min"]}}, "aggregate.metrics: expected count"),
    ({"aggregate": {"metrics": [1]}}, "aggregate.metrics: expected count"),
    ({"aggregate": {"metrics": ["min()"]}}, "got ''"),
    ({"aggregate": {"metrics": ["min(origin)"]}}, "expected a numeric field"),
    ({"aggregate": {"metrics": ["min(payload)"]}}, "expected a numeric field"),
    ({"aggregate": {"metrics": ["min(payload.*)"]}}, "expected a numeric field"),
    ({"aggregate": {"metrics": ["count"], "group_by": "origin"}}, "at most 16 fields"),
    ({"aggregate": {"metrics": ["count"], "group_by": ["origin"] * 17}}, "at most 16 fields"),
    ({"aggregate": {"metrics": ["count"], "group_by": ["origin"] * 2}}, "'origin' twice"),
    ({"aggregate": {"metrics": ["count"], "group_by": ["payload"]}}, "all of the payload"),
    ({"aggregate": {"metrics": ["count"], "group_by": ["*"]}}, "got '\\*'"),
    ({"meta": []}, "meta must be an object"),
    ({"meta": {"n": 2**53}}, "no canonical JSON"),
    ({"meta": {"n": float("inf")}}, "no canonical JSON"),
]


@pytest.mark.parametrize(("changes", "detail"), REFUSED, ids=lambda item: ascii(item)[:60])
def test_refuses(a_query: Build, changes: dict[str, Any], detail: str) -> None:
    error = refused(a_query(**changes))
    assert error.code == "invalid_query_descriptor"
    assert detail.replace("\\", "") in str(error)


@pytest.mark.parametrize("value", [None, [], "a", 1, True])
def test_refuses_what_is_no_object(value: Any) -> None:
    assert refused(value).code == "invalid_query_descriptor"


@pytest.mark.parametrize("version", [0, 2, -1, 99])
def test_another_version_is_distinguished_even_with_keys_of_its_own(
    a_query: Build, version: int
) -> None:
    assert refused(a_query(version=version, new_key=1)).code == "unsupported_version"


def test_fills_in_what_is_missing(a_query: Build) -> None:
    asked = a_query(query_id=..., filter={"time": None}, scope=["record/b", "record/a"])
    document = normalise(asked, query_id_if_missing="q-made").document()
    assert document == {
        "query_id": "q-made",
        "version": 1,
        "scope": ["record/a", "record/b"],
        "filter": {
            "subject_id": None, "event_type": None, "origin": None, "principal_id": None,
            "time": {"from": None, "to": None},
        },
        "projection": list(ALL),
        "evidence": {"mode": "none"},
    }  # fmt: skip


def test_one_query_has_one_text_however_it_is_written(a_query: Build) -> None:
    time = {"from": "2025-01-01T00:00:00Z"}
    item = a_query(
        filter={"event_type": ["b", "a", "b"], "time": time}, projection=["payload.*"],
        evidence={"mode": "spot", "sample_rate": 1}, aggregate=None, meta=None, version=1,
    )  # fmt: skip
    other = a_query(
        filter={
            "subject_id": None, "event_type": ["a", "b"],
            "time": {"from": "2025-01-01T00:00:00.000Z", "to": None},
        },
        projection=["payload"], evidence={"mode": "spot", "sample_rate": 1.0},
    )  # fmt: skip
    result = [normalise(query, query_id_if_missing="-").encode() for query in (item, other)]
    assert result[0] == result[1]


def test_normalising_twice_is_normalising_once() -> None:
    for query in query_histories.queries(9, 200):
        once = normalise(query, query_id_if_missing="-")
        assert normalise(once.document(), query_id_if_missing="other") == once
        again = normalise(parse_json(once.encode()), query_id_if_missing="other")
        assert again == once
        assert again.encode() == once.encode()
        assert read_descriptor(json.loads(once.encode())) == once


def test_refuses_to_read_a_descriptor_that_is_not_normalised(a_query: Build) -> None:
    with pytest.raises(BadDescriptor, match="not normalised"):
        read_descriptor(a_query())


def test_two_queries_do_not_share_a_digest(a_descriptor: Callable[..., Descriptor]) -> None:
    item, other = a_descriptor(), a_descriptor(filter={"origin": "api-1"})
    assert item.digest() != other.digest()


@pytest.mark.parametrize("raw", [b"9007199254740992", b"-9007199254740992", b"1e+21", b"0.1"])
def test_doubles_beyond_the_integers_read_back_as_they_were_written(raw: bytes) -> None:
    value = read_canonical(raw, JsonLimits())
    assert type(value) is float
    assert canonical_json.encode(value) == raw
    assert canonical_json.encode(read_row(b'{"a":[' + raw + b"]}")) == b'{"a":[' + raw + b"]}"


@pytest.mark.parametrize("raw", [b"9007199254740993", b"1.0", b" 1", b'{"b":1,"a":1}', b"1e400"])
def test_refuses_json_that_is_not_canonical(raw: bytes) -> None:
    with pytest.raises(Malformed):
        read_canonical(raw, JsonLimits())
