"""Encodings that strict CBOR does not read, one by one, and what refusing them may cost."""

from __future__ import annotations

import struct
import tracemalloc

import pytest

from veen.errors import Malformed
from veen.wire import cbor

MAJORS = {"uint": 0, "bstr": 2, "tstr": 3, "array": 4, "map": 5}
RESERVED = [head for head in range(256) if head & 31 in (28, 29, 30)]
# The largest argument that each wider head could have carried in a narrower one.
OVERLONG = {
    24: (struct.Struct(">B"), (0, 1, 23)),
    25: (struct.Struct(">H"), (0, 23, 24, 255)),
    26: (struct.Struct(">I"), (0, 255, 256, 65535)),
    27: (struct.Struct(">Q"), (0, 65535, 65536, 2**32 - 1)),
}


def overlong_heads() -> list[object]:
    return [
        pytest.param(bytes([major << 5 | info]) + form.pack(n), major, n, id=f"{name}-{info}-{n}")
        for name, major in MAJORS.items()
        for info, (form, numbers) in OVERLONG.items()
        for n in numbers
    ]


@pytest.mark.parametrize(("head", "major", "n"), overlong_heads())
def test_refuses_a_head_longer_than_need_be(head: bytes, major: int, n: int) -> None:
    follows = {0: 0, 2: n, 3: n, 4: n, 5: 2 * n}[major]
    raw = head + bytes(min(follows, 70_000))
    with pytest.raises(Malformed):
        cbor.decode(raw)


@pytest.mark.parametrize("length", [2**32, 2**32 + 1, 2**40, 2**62, 2**63 - 1, 2**63, 2**64 - 1])
@pytest.mark.parametrize("major", [2, 3, 4, 5])
def test_refuses_a_length_beyond_the_input(major: int, length: int) -> None:
    raw = bytes([major << 5 | 27]) + struct.pack(">Q", length) + bytes(100)
    with pytest.raises(Malformed):
        cbor.decode(raw)
    with pytest.raises(Malformed):
        cbor.skip(raw, 0)


@pytest.mark.parametrize(
    "text",
    [
        pytest.param("", id="nothing"),
        pytest.param("5f 41 61 ff", id="indefinite bstr"),
        pytest.param("7f 61 61 ff", id="indefinite tstr"),
        pytest.param("9f 01 ff", id="indefinite array"),
        pytest.param("9f ff", id="indefinite empty array"),
        pytest.param("bf 01 02 ff", id="indefinite map"),
        pytest.param("82 01 9f ff", id="indefinite array inside"),
        pytest.param("ff", id="break alone"),
        pytest.param("1f", id="indefinite uint"),
        pytest.param("3f", id="indefinite negative"),
        pytest.param("df", id="indefinite tag"),
        *(pytest.param(f"{head:02x}", id=f"reserved {head}") for head in RESERVED),
        pytest.param("20", id="minus one"),
        pytest.param("38 18", id="negative of one byte"),
        pytest.param("3b ff ff ff ff ff ff ff ff", id="least negative"),
        pytest.param("c0 01", id="tag 0"),
        pytest.param("c2 41 01", id="bignum"),
        pytest.param("d8 18 41 01", id="tag 24"),
        pytest.param("d9 d9 f7 01", id="self-described"),
        pytest.param("db ff ff ff ff ff ff ff ff 01", id="largest tag"),
        pytest.param("f9 00 00", id="half float"),
        pytest.param("f9 7e 00", id="half NaN"),
        pytest.param("f9 ff ff", id="half float, all ones"),
        pytest.param("fa 47 c3 50 00", id="single float"),
        pytest.param("fb 3f f0 00 00 00 00 00 00", id="double float"),
        pytest.param("fb ff ff ff ff ff ff ff ff", id="double float, all ones"),
        pytest.param("f7", id="undefined"),
        *(pytest.param(f"{0xE0 | n:02x}", id=f"simple {n}") for n in range(20)),
        *(pytest.param(f"f8 {n:02x}", id=f"simple f8 {n}") for n in (0, 19, 20, 22, 24, 32, 255)),
        pytest.param("a2 01 00 01 00", id="doubled uint key"),
        pytest.param("a2 02 00 01 00", id="unsorted uint keys"),
        pytest.param("a2 18 18 00 01 00", id="unsorted by length"),
        pytest.param("a2 61 61 00 61 61 00", id="doubled text key"),
        pytest.param("a2 61 62 00 61 61 00", id="unsorted text keys"),
        pytest.param("a2 62 61 61 00 61 62 00", id="unsorted text keys by length"),
        pytest.param("a2 01 00 61 61 00", id="map keys of one type"),
        pytest.param("a1 41 61 00", id="bstr key"),
        pytest.param("a1 f5 00", id="bool key"),
        pytest.param("a1 f6 00", id="null key"),
        pytest.param("a1 80 00", id="array key"),
        pytest.param("a1 a0 00", id="map key"),
        pytest.param("a1 01", id="key without a value"),
        pytest.param("82 01", id="array cut short"),
        pytest.param("83 01 02", id="array of one too few"),
        pytest.param("00 00", id="trailing byte"),
        pytest.param("80 f6", id="trailing null"),
        pytest.param("61 ff", id="expected UTF-8 text"),
        pytest.param("62 c0 80", id="overlong UTF-8"),
        pytest.param("63 ed a0 80", id="surrogate in UTF-8"),
        pytest.param("64 f4 90 80 80", id="UTF-8 above U+10FFFF"),
        pytest.param("61 c3", id="half a UTF-8 character"),
        pytest.param("a1 61 ff 00", id="key that is not UTF-8"),
        pytest.param("42 00", id="bstr cut short"),
        pytest.param("18", id="head cut short"),
        pytest.param("1b 00 00 00 01", id="wide head cut short"),
    ],
)  # fmt: skip
def test_refuses(text: str) -> None:
    with pytest.raises(Malformed):
        cbor.decode(bytes.fromhex(text))


@pytest.mark.parametrize("depth", [17, 18, 100, 1000, 10**5])
@pytest.mark.parametrize("opening", [b"\x81", b"\xa1\x00"], ids=["arrays", "maps"])
def test_refuses_what_is_nested_too_deep(opening: bytes, depth: int) -> None:
    with pytest.raises(Malformed):
        cbor.decode(opening * depth + b"\x00")


def test_a_deep_item_is_skipped_without_recursion() -> None:
    raw = b"\x81" * 10**5 + b"\x00"
    assert cbor.skip(raw, 0) == len(raw)


HOSTILE = {
    "array count": b"\x9b" + b"\x7f" + b"\xff" * 7,
    "array count near the input": b"\x9a\x00\x01\x00\x00" + b"\x80" * 0x10000,
    "maps in an array": b"\x9a\x00\x01\x00\x00" + b"\xa0" * 0x10000,
    "nulls cut short": b"\x9a\x00\x01\x00\x00" + b"\xf6" * 0xFFFF,
    "map count": b"\xbb" + b"\x7f" + b"\xff" * 7 + bytes(1000),
    "bstr length": b"\x5b" + b"\x00\x00\x00\xff" + b"\xff" * 4 + bytes(1000),
    "tstr length": b"\x7b" + b"\x7f" + b"\xff" * 7 + bytes(1000),
    "counts within counts": (b"\x99\x10\x00" * 14) + b"\x80" * 5000,
    "depth": b"\x81" * 10**5,
    "map depth": b"\xa1\x00" * 10**5,
    "tags": b"\xc1" * 10**5,
}


@pytest.mark.parametrize("name", HOSTILE)
def test_memory_stays_within_a_small_multiple_of_the_input(name: str) -> None:
    raw = HOSTILE[name]
    assert peak_of_decoding(raw) < 96 * len(raw) + 65_536


def peak_of_decoding(raw: bytes) -> int:
    tracemalloc.start()
    try:
        cbor.decode(raw)
    except Malformed:
        pass
    finally:
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
    return peak
