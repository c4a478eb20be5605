"""Reading a signed array in one go takes the same bytes for the same objects (spec 3.1)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import field, fields, make_dataclass
from typing import Any, get_type_hints

import pytest
from hypothesis import given
from hypothesis import strategies as st

from veen.errors import Malformed
from veen.msg import Msg
from veen.receipt import Receipt
from veen.wire import cbor
from veen.wire.objects import SignedArray

Objects = Callable[[type], st.SearchStrategy[Any]]
Mutated = Callable[[Any, bytes], bytes]
Read = Callable[[type[SignedArray], bytes], SignedArray]

BOTH = pytest.mark.parametrize("cls", [Msg, Receipt], ids=lambda cls: cls.__name__)
HEADS = [
    b"\x17", b"\x18\x17", b"\x18\x18", b"\x19\x00\xff", b"\x19\x01\x00", b"\x1a\x00\x00\xff\xff",
    b"\x1a\x00\x01\x00\x00", b"\x1b\x00\x00\x00\x00\xff\xff\xff\xff",
    b"\x1b\x00\x00\x00\x01\x00\x00\x00\x00", b"\x1b" + b"\xff" * 8, b"\x1c", b"\x20", b"\x40",
    b"\x61a", b"\x80", b"\xa0", b"\xc1\x00", b"\xf5", b"\xf6", b"\xf9\x00\x00", b"\x58\x20",
]  # fmt: skip


def field_by_field(cls: type[SignedArray], raw: bytes) -> SignedArray:
    result, end = cls.read(raw, 0)
    cbor.finish(raw, end)
    result.check()
    return result


def outcome(read: Read, cls: type[SignedArray], raw: bytes) -> object:
    """What comes of bytes: an object, or the kind and the words of a refusal."""
    try:
        return read(cls, raw)
    except Malformed as error:
        return type(error), str(error)


def assert_same(cls: type[SignedArray], raw: bytes) -> None:
    assert outcome(lambda cls, raw: cls.decode(raw), cls, raw) == outcome(field_by_field, cls, raw)


@BOTH
@given(data=st.data())
def test_an_object_is_the_same_either_way(
    wire_objects: Objects, cls: type[SignedArray], data: st.DataObject
) -> None:
    item = data.draw(wire_objects(cls))
    assert cls.decode(item.encode()) == field_by_field(cls, item.encode()) == item


@BOTH
@given(data=st.data())
def test_bytes_near_valid_ones_come_out_the_same(
    wire_objects: Objects, mutated: Mutated, cls: type[SignedArray], data: st.DataObject
) -> None:
    assert_same(cls, mutated(data, data.draw(wire_objects(cls)).encode()))


@BOTH
@given(data=st.data())
def test_any_head_in_any_place_comes_out_the_same(
    wire_objects: Objects, cls: type[SignedArray], data: st.DataObject
) -> None:
    plain = data.draw(wire_objects(cls)).plain()
    place = data.draw(st.integers(0, len(plain) - 1))
    before = cbor.array_head(len(plain)) + b"".join(map(cbor.dump, plain[:place]))
    after = b"".join(map(cbor.dump, plain[place + 1 :]))
    for head in HEADS:
        assert_same(cls, before + head + after)


@BOTH
@given(data=st.data())
def test_a_byte_string_of_any_size_in_any_place_comes_out_the_same(
    wire_objects: Objects, cls: type[SignedArray], data: st.DataObject
) -> None:
    plain = data.draw(wire_objects(cls)).plain()
    plain[data.draw(st.integers(0, len(plain) - 1))] = bytes(data.draw(st.integers(0, 300)))
    assert_same(cls, cbor.dump(plain))


SAMPLES = [
    Msg(
        profile_id=b"p" * 32, label=b"l" * 32, client_id=b"c" * 32, client_seq=300, prev_ack=0,
        auth_ref=None, ct_hash=b"h" * 32, ciphertext=b"ct", sig=b"s" * 64,
    ),
    Msg(
        profile_id=b"p" * 32, label=b"l" * 32, client_id=b"c" * 32, client_seq=2**64 - 1,
        prev_ack=2**32, auth_ref=b"a" * 32, ct_hash=b"h" * 32, ciphertext=bytes(300),
        sig=b"s" * 64,
    ),
    Receipt(
        label=b"l" * 32, stream_seq=24, leaf_hash=b"f" * 32, mmr_root=b"r" * 32,
        hub_ts=1_700_000_000, hub_sig=b"s" * 64,
    ),
]  # fmt: skip
STRINGS = [bytes(size) for size in (0, 1, 23, 24, 31, 32, 33, 63, 64, 65, 255, 256)]


def fresh(cls: Any) -> type[SignedArray]:
    """The same class anew: its shape has not been built yet."""
    hints = get_type_hints(cls, include_extras=True)
    columns = [(item.name, hints[item.name], field(default=item.default)) for item in fields(cls)]
    return make_dataclass(
        cls.__name__, columns, bases=(SignedArray,), frozen=True, slots=True, kw_only=True
    )


@pytest.mark.parametrize("sample", SAMPLES, ids=["short", "long", "receipt"])
def test_each_head_and_string_in_each_place_of_an_array_comes_out_the_same(
    sample: SignedArray,
) -> None:
    cls, plain = fresh(type(sample)), [cbor.dump(element) for element in sample.plain()]
    assert cls.decode(sample.encode()).plain() == sample.plain()
    for place in range(len(plain)):
        for item in (b"", *HEADS, *map(cbor.dump, STRINGS)):
            items = b"".join((*plain[:place], item, *plain[place + 1 :]))
            assert_same(cls, cbor.array_head(len(plain)) + items)
    for count in (0, len(plain) - 1, len(plain) + 1, 24):
        assert_same(cls, cbor.array_head(count) + b"".join(plain))


@pytest.mark.parametrize("sample", SAMPLES, ids=["short", "long", "receipt"])
def test_each_cut_and_each_byte_more_comes_out_the_same(sample: SignedArray) -> None:
    cls, raw = fresh(type(sample)), sample.encode()
    for end in range(len(raw)):
        assert_same(cls, raw[:end])
    for tail in (b"\x00", b"s", raw):
        assert_same(cls, raw + tail)
