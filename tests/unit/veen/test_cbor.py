"""Strict CBOR: one encoding for each value, and Malformed for everything else (spec 3.1)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import cbor2
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from veen.errors import Malformed
from veen.wire import cbor

UINTS = st.one_of(
    st.integers(0, 30),
    st.integers(0, 64).flatmap(lambda bits: st.sampled_from((1 << bits, (1 << bits) - 1, 255))),
).map(lambda n: min(n, 2**64 - 1))
SCALARS = st.one_of(UINTS, st.binary(max_size=40), st.text(max_size=30), st.booleans(), st.none())
TREES = st.recursive(
    SCALARS,
    lambda inner: st.one_of(
        st.lists(inner, max_size=5),
        st.dictionaries(UINTS, inner, max_size=5),
        st.dictionaries(st.text(max_size=30), inner, max_size=5),
    ),
    max_leaves=12,
)


def nested(depth: int, inner: Any) -> Any:
    for _ in range(depth):
        inner = [inner]
    return inner


@given(TREES)
def test_a_value_survives_its_encoding(value: Any) -> None:
    raw = cbor.encode(value)
    assert cbor.decode(raw) == value
    assert cbor2.loads(raw) == value


@given(TREES)
def test_the_encoding_is_the_canonical_one(value: Any) -> None:
    assert cbor.encode(value) == cbor2.dumps(value, canonical=True)


@given(st.binary(max_size=60))
def test_random_bytes_are_malformed_or_the_encoding_of_their_value(raw: bytes) -> None:
    assert_one_encoding(raw)


@given(st.data(), TREES)
def test_bytes_near_valid_ones_are_malformed_or_the_encoding_of_their_value(
    mutated: Callable[[Any, bytes], bytes], data: st.DataObject, value: Any
) -> None:
    assert_one_encoding(mutated(data, cbor.encode(value)))


def assert_one_encoding(raw: bytes) -> None:
    try:
        value = cbor.decode(raw)
    except Malformed:
        return
    assert cbor.encode(value) == raw


@given(TREES)
def test_every_truncation_is_malformed(value: Any) -> None:
    raw = cbor.encode(value)
    for end in range(len(raw)):
        with pytest.raises(Malformed):
            cbor.decode(raw[:end])


@given(TREES, st.binary(min_size=1, max_size=3))
def test_trailing_bytes_are_malformed(value: Any, tail: bytes) -> None:
    with pytest.raises(Malformed):
        cbor.decode(cbor.encode(value) + tail)


@given(st.integers(1, 16))
def test_sixteen_levels_are_read(depth: int) -> None:
    value = nested(depth, 1)
    assert cbor.decode(cbor.encode(value)) == value


@pytest.mark.parametrize("value", [nested(17, 1), nested(10**4, 1)], ids=["17", "10000"])
def test_encoding_refuses_what_is_nested_too_deep(value: Any) -> None:
    with pytest.raises(Malformed):
        cbor.encode(value)


@pytest.mark.parametrize("value", [nested(16, []), nested(16, {})], ids=["array", "map"])
def test_encoding_refuses_an_empty_container_that_decoding_would(value: Any) -> None:
    with pytest.raises(Malformed):
        cbor.encode(value)


def test_encoding_refuses_a_value_that_contains_itself() -> None:
    loop: list[Any] = []
    loop.append(loop)
    with pytest.raises(Malformed):
        cbor.encode(loop)


@pytest.mark.parametrize(
    "value",
    [
        -1,
        2**64,
        1.0,
        float("nan"),
        (1, 2),
        {1, 2},
        bytearray(b"a"),
        {1: 1, "a": 1},
        {b"a": 1},
        {True: 1},
        {None: 1},
        {-1: 1},
        {2**64: 1},
        {(): 1},
        [[-1]],
        {1: [{2: 1.5}]},
    ],
    ids=repr,
)
def test_encoding_refuses(value: Any) -> None:
    with pytest.raises(Malformed):
        cbor.encode(value)


@pytest.mark.parametrize("value", ["\ud800", {"\udfff": 1}], ids=["text", "key"])
def test_encoding_refuses_text_that_has_no_utf8(value: Any) -> None:
    with pytest.raises(Malformed):
        cbor.encode(value)


@given(st.lists(TREES, max_size=5))
def test_a_sequence_is_cut_into_its_items(values: list[Any]) -> None:
    items = [cbor.encode(value) for value in values]
    assert list(cbor.decode_sequence(b"".join(items))) == items


@given(TREES, st.integers(0, 5))
def test_skip_ends_where_the_item_ends(value: Any, before: int) -> None:
    raw = cbor.encode(value)
    assert cbor.skip(bytes(before) + raw + b"\xff", before) == before + len(raw)


@given(st.binary(max_size=80), st.integers(0, 90))
@example(b"\x9b" + b"\xff" * 8, 0)
@example(b"\xdb" + b"\xff" * 8 + b"\xc1" * 9, 0)
def test_skip_moves_on_within_the_input_or_is_malformed(raw: bytes, at: int) -> None:
    try:
        end = cbor.skip(raw, at)
    except Malformed:
        return
    assert at < end <= len(raw)


@given(st.binary(max_size=80))
def test_cutting_a_sequence_loses_no_byte_or_is_malformed(raw: bytes) -> None:
    try:
        items = list(cbor.decode_sequence(raw))
    except Malformed:
        return
    assert b"".join(items) == raw
