"""Bodies that are JSON: one encoding for each value, and the value back from it."""

from __future__ import annotations

import json
from typing import Any

import cbor2
import pytest
from hypothesis import given
from hypothesis import strategies as st

from veen.errors import Malformed
from veen.wire.canonical_json import cbor_to_json, json_to_cbor, value_to_cbor

TEXT = st.text(st.characters(codec="utf-8"), max_size=20)
SCALARS = (
    st.none()
    | st.booleans()
    | st.integers(-(2**64), 2**64 - 1)
    | st.floats(allow_nan=False, allow_infinity=False)
    | TEXT
)
VALUES = st.recursive(
    SCALARS, lambda inner: st.lists(inner, max_size=4) | st.dictionaries(TEXT, inner, max_size=4)
)


@given(VALUES)
def test_gives_the_value_back(value: Any) -> None:
    raw = json_to_cbor(json.dumps(value))
    assert cbor_to_json(raw) == value
    assert json_to_cbor(json.dumps(cbor_to_json(raw))) == raw


@pytest.mark.parametrize(
    ("text", "raw"),
    [
        ('{"b":1,"a":-1}', "a2616120616201"),
        ("[1.5, -0.5, 100000.0]", "83f93e00f9b800fa47c35000"),
        ('{"aa":0,"b":0}', "a261620062616100"),
        ("18446744073709551615", "1bffffffffffffffff"),
        ("-18446744073709551616", "3bffffffffffffffff"),
        ('"é"', "62c3a9"),
        ("[true,false,null]", "83f5f4f6"),
    ],
    ids=["map", "floats", "keys", "largest", "least", "text", "constants"],
)
def test_encodes_as_rfc_8949_says(text: str, raw: str) -> None:
    assert json_to_cbor(text).hex() == raw


@pytest.mark.parametrize(
    "text",
    [
        "",
        "{",
        '{"a":1,"a":2}',
        "NaN",
        "[Infinity]",
        "1e999",
        "18446744073709551616",
        "-18446744073709551617",
        '"\\ud800"',
        "[" * 17 + "]" * 17,
        "[" * 100_000,
        "{} {}",
    ],
    ids=lambda text: text[:20].replace("\\", ""),
)
def test_refuses_what_is_not_json_or_has_no_encoding(text: str) -> None:
    with pytest.raises(Malformed):
        json_to_cbor(text)


@pytest.mark.parametrize(
    "raw",
    [
        pytest.param("", id="nothing"),
        pytest.param("0101", id="two items"),
        pytest.param("1801", id="overlong integer"),
        pytest.param("9fff", id="indefinite array"),
        pytest.param("c000", id="tag"),
        pytest.param("4161", id="bytes"),
        pytest.param("f7", id="undefined"),
        pytest.param("f820", id="simple value"),
        pytest.param("f97e00", id="NaN"),
        pytest.param("f97c00", id="infinity"),
        pytest.param("fb3ff0000000000000", id="float longer than need be"),
        pytest.param("f93c", id="float cut short"),
        pytest.param("a2616101616102", id="key twice"),
        pytest.param("a2616201616101", id="keys out of order"),
        pytest.param("a10101", id="key that is no text"),
        pytest.param("61ff", id="text that is not UTF-8"),
        pytest.param("62c3", id="text cut short"),
        pytest.param("9bffffffffffffffff", id="array of 2^64"),
        pytest.param("81" * 17 + "01", id="nested too deep"),
        pytest.param("81" * 100_000, id="nested far too deep"),
    ],
)
def test_reads_nothing_else(raw: str) -> None:
    with pytest.raises(Malformed):
        cbor_to_json(bytes.fromhex(raw))


@given(st.binary(max_size=40))
def test_accepts_only_its_own_encoding(raw: bytes) -> None:
    try:
        value = cbor_to_json(raw)
    except Malformed:
        return
    assert json_to_cbor(json.dumps(value)) == raw


@given(VALUES, st.data())
def test_takes_a_changed_encoding_only_when_it_is_the_one_of_another_value(
    value: Any, data: st.DataObject
) -> None:
    raw = bytearray(value_to_cbor(value))
    at = data.draw(st.integers(0, len(raw) - 1))
    raw[at] = data.draw(st.integers(0, 255))
    result = bytes(raw)
    try:
        read = cbor_to_json(result)
    except Malformed:
        assert not _is_the_one_encoding(result)
    else:
        assert value_to_cbor(read) == result


def _is_the_one_encoding(raw: bytes) -> bool:
    """The naive way: read with a lenient reader, write again, compare."""
    try:
        value = cbor2.loads(raw)
        return value_to_cbor(value) == raw
    except (cbor2.CBORError, Malformed, ValueError, TypeError, RecursionError, OverflowError):
        return False
