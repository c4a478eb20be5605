"""Canonical JSON: one text for each value, and none for what is not JSON."""

from __future__ import annotations

import json
import random
from typing import Any

import pytest
import rfc8785
from hypothesis import given
from hypothesis import strategies as st

from veen.errors import Malformed
from veen.wire import canonical_json

SAFE = 2**53 - 1
SCALARS = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-SAFE, SAFE),
    st.floats(allow_nan=False, allow_infinity=False),
    st.text(max_size=12),
)
VALUES = st.recursive(
    SCALARS,
    lambda inner: st.one_of(
        st.lists(inner, max_size=4), st.dictionaries(st.text(max_size=8), inner, max_size=4)
    ),
    max_leaves=12,
)


def as_floats(text: bytes) -> Any:
    """JSON as ECMAScript reads it, in which every number is a double."""
    return json.loads(text, parse_int=float)


def with_doubles(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: with_doubles(element) for key, element in value.items()}
    if isinstance(value, list):
        return [with_doubles(element) for element in value]
    return float(value) if type(value) is int else value


def shuffled(value: Any, order: random.Random) -> Any:
    if isinstance(value, dict):
        pairs = [(key, shuffled(element, order)) for key, element in value.items()]
        order.shuffle(pairs)
        return dict(pairs)
    return [shuffled(element, order) for element in value] if isinstance(value, list) else value


@given(VALUES)
def test_the_text_says_the_value(value: Any) -> None:
    assert as_floats(canonical_json.encode(value)) == with_doubles(value)


@given(VALUES, st.randoms(use_true_random=False))
def test_the_order_of_keys_does_not_show(value: Any, order: random.Random) -> None:
    assert canonical_json.encode(shuffled(value, order)) == canonical_json.encode(value)


@given(VALUES)
def test_the_text_of_what_was_read_is_the_same_text(value: Any) -> None:
    text = canonical_json.encode(value)
    assert canonical_json.encode(as_floats(text)) == text


@given(st.dictionaries(st.text(st.characters(max_codepoint=0xD7FF), max_size=8), SCALARS))
def test_below_the_supplementary_planes_it_is_rfc_8785(value: dict[str, Any]) -> None:
    assert canonical_json.encode(value) == rfc8785.dumps(value)


@given(st.dictionaries(st.text(max_size=4), st.none(), max_size=6))
def test_keys_stand_in_the_order_of_their_utf8(value: dict[str, None]) -> None:
    keys = list(json.loads(canonical_json.encode(value)))
    assert keys == sorted(value, key=str.encode)


def test_keys_beyond_the_basic_plane_sort_after_all_others() -> None:
    assert canonical_json.encode({"\U0001f600": 1, "\ufb01": 2}) == (
        '{"\ufb01":2,"\U0001f600":1}'.encode()
    )


@pytest.mark.parametrize(
    "value",
    [
        float("nan"),
        float("inf"),
        -float("inf"),
        SAFE + 1,
        -SAFE - 1,
        10**30,
        "\ud800",
        "a\udfff",
        {"\ud800": 1},
        {1: 1},
        {None: 1},
        {True: 1},
        {b"a": 1},
        {"a": 1, 2: 1},
        b"a",
        {1, 2},
        object,
        1j,
        [1, [2, {"a": float("nan")}]],
    ],
    ids=lambda value: type(value).__name__,
)
def test_refuses(value: Any) -> None:
    with pytest.raises(Malformed):
        canonical_json.encode(value)


@pytest.mark.parametrize("number", [SAFE, -SAFE, 0])
def test_integers_up_to_two_to_the_53_are_written(number: int) -> None:
    assert canonical_json.encode(number) == str(number).encode()


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (-0.0, b"0"),
        (1.0, b"1"),
        (1e21, b"1e+21"),
        (1e-7, b"1e-7"),
        (0.1, b"0.1"),
        ('\u20ac$\x0f\nA\'B"\\\\"/', b'"\xe2\x82\xac$\\u000f\\nA\'B\\"\\\\\\\\\\"/"'),
        ([], b"[]"),
        ({}, b"{}"),
        ((1, 2), b"[1,2]"),
    ],
    ids=range(9),
)
def test_writes(value: Any, text: bytes) -> None:
    assert canonical_json.encode(value) == text


def test_refuses_what_is_nested_too_deep() -> None:
    value: list[Any] = []
    for _ in range(10**5):
        value = [value]
    with pytest.raises(Malformed):
        canonical_json.encode(value)
