"""The ends of items, the heads of arrays, and items that are written as they are."""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import Any

import cbor2
import pytest

from veen.errors import Malformed
from veen.wire import cbor

LENGTHS = (0, 1, 23, 24, 25, 255, 256, 257, 65_535, 65_536)
NUMBERS = (0, 23, 24, 255, 256, 65_535, 65_536, 2**32 - 1, 2**32, 2**64 - 1)
VALUES: list[Any] = [
    *NUMBERS,
    *(-1 - number for number in NUMBERS),
    *(b"x" * length for length in LENGTHS),
    *("x" * length for length in LENGTHS),
    *([0] * length for length in LENGTHS[:8]),
    *(dict.fromkeys(range(length), b"") for length in LENGTHS[:8]),
    None,
    True,
    1.5,
    cbor2.CBORSimpleValue(16),
    cbor2.CBORSimpleValue(200),
    cbor2.CBORTag(5, [1, {2: b"y" * 300}]),
    cbor2.CBORTag(70_000, b"z" * 24),
    [[b"a" * 24, b"b" * 255], {1: [b"c" * 256], 2: "d" * 30}, [[[]]], {}],
]
OVERLONG = [
    bytes.fromhex("580161"),  # a byte string of one byte, whose size is in the next byte
    bytes.fromhex("59000161"),
    bytes.fromhex("1800"),
    bytes.fromhex("98020001"),
    bytes.fromhex("b90001" + "00" + "01"),
]


@pytest.mark.parametrize("number", range(len(VALUES)))
def test_an_item_ends_where_its_encoding_does(number: int) -> None:
    raw = cbor2.dumps(VALUES[number])
    assert cbor.skip(raw, 0) == len(raw)
    assert cbor.skip(b"\x00" + raw + b"\x00", 1) == 1 + len(raw)


@pytest.mark.parametrize("raw", OVERLONG, ids=bytes.hex)
def test_an_overlong_head_is_followed_all_the_same(raw: bytes) -> None:
    assert cbor.skip(raw, 0) == len(raw)
    assert cbor.skip(b"\xff" + raw + b"\xff", 1) == 1 + len(raw)


@pytest.mark.parametrize("number", range(len(VALUES)))
def test_an_item_that_is_cut_off_is_refused(number: int) -> None:
    raw = cbor2.dumps(VALUES[number])
    for cut in {*range(min(len(raw), 40)), len(raw) - 1}:
        with pytest.raises(Malformed, match="truncated"):
            cbor.skip(raw[:cut], 0)
        with pytest.raises(Malformed, match="truncated"):
            cbor.skip(b"\x00" + raw[:cut], 1)


@pytest.mark.parametrize("info", [28, 29, 30, 31])
@pytest.mark.parametrize("major", range(8))
def test_no_end_is_given_for_a_reserved_or_indefinite_head(major: int, info: int) -> None:
    raw = b"\x00" + bytes([major << 5 | info]) + bytes(20)
    with pytest.raises(Malformed, match="reserved head at byte 1"):
        cbor.skip(raw, 1)


def test_a_sequence_is_its_items() -> None:
    items = [cbor2.dumps(value) for value in VALUES]
    assert list(cbor.decode_sequence(b"".join(items))) == items
    assert list(cbor.decode_sequence(b"")) == []
    with pytest.raises(Malformed, match="truncated"):
        list(cbor.decode_sequence(b"".join(items)[:-1]))


@pytest.mark.parametrize("count", LENGTHS)
def test_the_head_of_an_array_is_that_of_its_encoding(count: int) -> None:
    encoded = cbor2.dumps([0] * count)
    assert cbor.array_head(count) == encoded[: len(encoded) - count]


@pytest.mark.parametrize(
    ("count", "expected"),
    [
        (2**32 - 1, b"\x9a" + b"\xff" * 4),
        (2**32, b"\x9b" + struct.pack(">Q", 2**32)),
        (2**64 - 1, b"\x9b" + b"\xff" * 8),
    ],
)
def test_the_head_of_an_array_that_is_too_large_to_build(count: int, expected: bytes) -> None:
    assert cbor.array_head(count) == expected


def test_an_encoded_item_is_written_as_it_is() -> None:
    inner = cbor2.dumps({2: b"x", 1: "y"})
    assert cbor.dump([1, cbor.Verbatim(inner), "z"]) == b"\x83\x01" + inner + b"\x61z"


@pytest.mark.parametrize("value", [object(), [object()], {1: object()}])
def test_another_type_is_not_written(value: object) -> None:
    with pytest.raises(Malformed, match="got object"):
        cbor.dump(value)


def test_a_lone_surrogate_is_not_written() -> None:
    with pytest.raises(Malformed, match="lone surrogate at character 2"):
        cbor.dump(["ab\ud800"])


READERS: dict[str, Callable[[bytes, int], object]] = {
    "uint": cbor.uint,
    "bstr": cbor.bstr,
    "tstr": cbor.tstr,
    "array": cbor.array,
    "map": cbor.mapping,
    "simple value": cbor.simple,
}
SAMPLES = {
    "uint": "1818",
    "negative": "20",
    "bstr": "4161",
    "tstr": "6161",
    "array": "8100",
    "map": "a10000",
    "tag": "c100",
    "simple value": "f5",
}


@pytest.mark.parametrize("expected", READERS)
@pytest.mark.parametrize("given", SAMPLES)
def test_a_reader_takes_its_type_alone(expected: str, given: str) -> None:
    raw = b"\x00" + bytes.fromhex(SAMPLES[given])
    if expected == given:
        READERS[expected](raw, 1)
        return
    with pytest.raises(Malformed, match=f"^expected {expected}, got {given}, at byte 1$"):
        READERS[expected](raw, 1)


@pytest.mark.parametrize("beyond", ["bstr 4261", "tstr 6261", "array 8200", "map a1", "map a20000"])
def test_a_length_beyond_the_input_is_refused(beyond: str) -> None:
    name, _, raw = beyond.partition(" ")
    with pytest.raises(Malformed, match=f"^expected a {name} within the input, .*, at byte 1$"):
        READERS[name](b"\x00" + bytes.fromhex(raw), 1)


def test_no_integer_is_read_beyond_the_input() -> None:
    with pytest.raises(Malformed, match="truncated at byte 1"):
        cbor.uint(b"\x00", 1)
