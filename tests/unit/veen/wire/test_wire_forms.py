"""The forms of wire objects and bodies, byte for byte: CBOR, JSON, absent fields, refusals."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field, fields, make_dataclass, replace
from hashlib import sha256
from typing import Any, get_type_hints

import cbor2
import pytest

from support.broken import changed
from veen.crypto import SigningKey
from veen.errors import Malformed, Untrusted, WrongSize, WrongVersion
from veen.hub_identity import HubIdentity, new_identity
from veen.msg import Msg
from veen.receipt import Receipt
from veen.wire import api
from veen.wire.body import AnyItem, EventBody, Integer
from veen.wire.objects import ShapePart, SignedArray, WireArray, WireMap, shape_of
from veen.wire.schema import Bytes32, Bytes64, Detail, Optional, RawItem, Version, kind_of

A, B, SIG = b"a" * 32, b"b" * 32, b"s" * 64


@dataclass(frozen=True, slots=True, kw_only=True)
class Row(WireArray):
    """An array with an optional element inside and two at the end."""

    number: int
    inside: Bytes32 | None
    text: str
    fourth: int | None = None
    fifth: Bytes32 | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Every(WireMap):
    """A map with a field of each kind."""

    ver: Version = 1
    number: int
    data: bytes
    key: Bytes32
    text: str
    flag: bool
    item: RawItem
    rows: tuple[Row, ...]
    detail: Detail | None = None
    absent: Bytes64 | None = None
    last: bool | None = None


def fresh(cls: Any) -> Any:
    """The same class anew: what is built when a class is first used has not been built for it."""
    hints = get_type_hints(cls, include_extras=True)
    columns = [(item.name, hints[item.name], field(default=item.default)) for item in fields(cls)]
    namespace = {name: vars(cls)[name] for name in ("rule", "__module__") if name in vars(cls)}
    return make_dataclass(
        cls.__name__, columns, bases=cls.__bases__, namespace=namespace, frozen=True, slots=True,
        kw_only=True,
    )  # fmt: skip


ROW = Row(number=7, inside=None, text="t")
EVERY = Every(
    number=300, data=b"\x00\xff", key=A, text="é", flag=False, item=b"\x82\x41\x0a\x05",
    rows=(ROW, Row(number=0, inside=B, text="", fourth=1, fifth=A)), detail={"n": 1, "b": b"\x0a"},
    last=True,
)  # fmt: skip
EVERY_TREE: dict[int, Any] = {
    1: 1, 2: 300, 3: b"\x00\xff", 4: A, 5: "é", 6: False, 7: [b"\x0a", 5],
    8: [[7, None, "t"], [0, B, "", 1, A]], 9: {"b": b"\x0a", "n": 1}, 11: True,
}  # fmt: skip
EVERY_JSON: dict[str, Any] = {
    "ver": 1, "number": 300, "data": "00ff", "key": A.hex(), "text": "é", "flag": False,
    "item": ["0a", 5], "rows": [[7, None, "t"], [0, B.hex(), "", 1, A.hex()]],
    "detail": {"n": 1, "b": "0a"}, "last": True,
}  # fmt: skip


def test_a_map_is_the_cbor_of_its_numbered_fields() -> None:
    assert EVERY.encode() == cbor2.dumps(EVERY_TREE)
    assert Every.decode(cbor2.dumps(EVERY_TREE)) == EVERY


def test_a_map_in_json_has_the_names_of_its_fields() -> None:
    assert EVERY.to_json() == EVERY_JSON
    plain = replace(EVERY, detail={"n": 1})
    assert Every.from_json(plain.to_json()) == plain


@pytest.mark.parametrize(
    ("row", "tree"),
    [
        (ROW, [7, None, "t"]),
        (replace(ROW, inside=A), [7, A, "t"]),
        (replace(ROW, fourth=2), [7, None, "t", 2]),
        (replace(ROW, fourth=2, fifth=B), [7, None, "t", 2, B]),
    ],
    ids=["least", "inside", "fourth", "whole"],
)
def test_an_absent_element_is_null_inside_and_cut_off_at_the_end(row: Row, tree: list[Any]) -> None:
    assert row.encode() == cbor2.dumps(tree)
    assert Row.decode(cbor2.dumps(tree)) == row
    as_json = [element.hex() if isinstance(element, bytes) else element for element in tree]
    assert row.to_json() == as_json
    assert Row.from_json(as_json) == row


@pytest.mark.parametrize(
    "tree",
    [
        [7, None], [7, None, "t", None], [7, None, "t", 2, None], [7, None, "t", None, None],
        [7, None, "t", 2, B, 0], [None, None, "t"], [7, None, None], [7, 1, "t"], [], {},
    ],
)  # fmt: skip
def test_refuses_an_array_of_another_form_in_cbor_and_in_json(tree: Any) -> None:
    with pytest.raises(Malformed):
        fresh(Row).decode(cbor2.dumps(tree))
    with pytest.raises(Malformed):
        fresh(Row).from_json(
            [e.hex() if isinstance(e, bytes) else e for e in tree] if tree else tree
        )


@pytest.mark.parametrize("item", [EVERY, ROW, replace(ROW, fourth=2, fifth=B)])
def test_a_class_reads_and_writes_from_its_first_use(item: Any) -> None:
    values = {column.name: getattr(item, column.name) for column in fields(item)}
    assert fresh(type(item))(**values).encode() == item.encode()
    assert fresh(type(item))(**values).to_json() == item.to_json()
    decoded = fresh(type(item)).decode(item.encode())
    assert {name: getattr(decoded, name) for name in values} == values
    assert decoded.encode() == item.encode()


@dataclass(frozen=True, slots=True, kw_only=True)
class Loose(WireArray):
    """An array that may have no element."""

    first: int | None = None
    second: int | None = None


def test_an_array_of_absent_elements_is_empty() -> None:
    assert (Loose().encode(), Loose().to_json()) == (b"\x80", [])
    assert Loose.decode(b"\x80") == Loose.from_json([]) == Loose()


def test_an_element_between_two_absent_ones_keeps_its_place() -> None:
    row = replace(ROW, fourth=None, fifth=B)
    assert row.encode() == cbor2.dumps([7, None, "t", None, B])
    with pytest.raises(Malformed):
        Row.decode(row.encode())


@pytest.mark.parametrize(
    ("key", "wrong"),
    [
        (1, True), (1, "1"), (2, -1), (2, 1.0), (2, False), (2, None), (3, "text"), (3, None),
        (4, 1), (5, b"text"), (5, None), (6, 1), (6, None), (7, None), (8, {}), (8, [1]),
        (8, [[7, None]]), (9, [1]), (9, {1: 1}), (9, None), (11, None), (11, 0), (12, 1),
    ],
)  # fmt: skip
def test_refuses_another_type_in_a_map(key: int, wrong: Any) -> None:
    with pytest.raises(Malformed) as refusal:
        fresh(Every).decode(cbor2.dumps({**EVERY_TREE, key: wrong}))
    assert type(refusal.value) is Malformed


@pytest.mark.parametrize("key", [1, 2, 3, 4, 5, 6, 7, 8])
def test_refuses_a_map_that_lacks_a_field(key: int) -> None:
    tree = {number: value for number, value in EVERY_TREE.items() if number != key}
    with pytest.raises(Malformed):
        fresh(Every).decode(cbor2.dumps(tree))
    name = list(EVERY_JSON)[key - 1]
    with pytest.raises(Malformed):
        Every.from_json({other: value for other, value in EVERY_JSON.items() if other != name})


@pytest.mark.parametrize(
    ("name", "wrong"),
    [
        ("ver", True), ("ver", "1"), ("number", -1), ("number", 2**64), ("number", 1.0),
        ("number", True), ("data", "0"), ("data", "0G"), ("data", "0A"), ("data", 1),
        ("key", None), ("text", 1), ("flag", 0), ("flag", None),
        pytest.param("text", "\ud800", id="surrogate"),
        ("item", "xy"), ("item", [[1.5]]), ("rows", {}), ("rows", [7, None, "t"]), ("rows", [1]),
        ("detail", []), ("detail", {"n": -1}), ("last", None), ("more", 1),
    ],
)  # fmt: skip
def test_refuses_another_type_in_json(name: str, wrong: Any) -> None:
    with pytest.raises(Malformed) as refusal:
        Every.from_json({**EVERY_JSON, name: wrong})
    assert type(refusal.value) is Malformed


@pytest.mark.parametrize("wrong", [[], None, "text", 1])
def test_refuses_what_is_no_object_in_json(wrong: Any) -> None:
    with pytest.raises(Malformed):
        Every.from_json(wrong)
    with pytest.raises(Malformed):
        Row.from_json(wrong)


@pytest.mark.parametrize(
    ("key", "name", "wrong", "fault"),
    [
        (1, "ver", 2, WrongVersion), (1, "ver", 0, WrongVersion),
        (4, "key", A[1:], WrongSize), (4, "key", A + A, WrongSize),
        (10, "absent", A, WrongSize), (10, "absent", b"", WrongSize),
    ],
)  # fmt: skip
def test_tells_a_wrong_size_and_a_wrong_version_apart(
    key: int, name: str, wrong: Any, fault: type[Malformed]
) -> None:
    tree = dict(sorted({**EVERY_TREE, key: wrong}.items()))
    with pytest.raises(fault):
        fresh(Every).decode(cbor2.dumps(tree))
    as_json = wrong.hex() if isinstance(wrong, bytes) else wrong
    with pytest.raises(fault):
        Every.from_json({**EVERY_JSON, name: as_json})
    with pytest.raises(fault):
        changed(EVERY, **{name: wrong}).encode()


def test_sizes_are_checked_before_the_version_and_inside_arrays() -> None:
    for wrong in ({1: 2, 4: A[1:]}, {1: 2, 8: [[7, A[1:], "t"]]}, {8: [[7, A[1:], "t"]]}):
        with pytest.raises(WrongSize):
            fresh(Every).decode(cbor2.dumps({**EVERY_TREE, **wrong}))
    assert fresh(Loose).decode(b"\x80").encode() == b"\x80"


def test_a_size_inside_an_array_of_objects_is_checked() -> None:
    short = {**EVERY_TREE, 8: [[7, A[1:], "t"]]}
    with pytest.raises(WrongSize):
        Every.decode(cbor2.dumps(short))
    with pytest.raises(WrongSize):
        Every.from_json({**EVERY_JSON, "rows": [[7, A[1:].hex(), "t"]]})


def nested(depth: int) -> Any:
    inner: Any = 1
    for _ in range(depth):
        inner = [inner]
    return inner


def test_an_item_in_json_is_nested_sixteen_deep_and_no_deeper() -> None:
    deepest = Every.from_json({**EVERY_JSON, "item": nested(16)})
    assert deepest.to_json()["item"] == nested(16)
    for depth in (17, 100, 10**4):
        with pytest.raises(Malformed):
            Every.from_json({**EVERY_JSON, "item": nested(depth)})


@pytest.mark.parametrize(
    "wrong",
    [
        {"number": -1}, {"number": 2**64}, {"number": True}, {"data": "text"}, {"flag": 1},
        {"text": b""}, {"item": b"\x01\x01"}, {"item": b"\x82\x01"}, {"rows": [ROW]},
        {"rows": (EVERY,)}, {"detail": {1: 1}}, {"detail": [1]}, {"ver": 1.0}, {"number": None},
    ],
)  # fmt: skip
def test_encoding_refuses_another_type(wrong: dict[str, Any]) -> None:
    with pytest.raises(Malformed):
        replace(EVERY, **wrong).encode()


def test_an_object_is_encoded_as_it_was_decoded_and_from_any_place() -> None:
    raw = EVERY.encode()
    assert Every.decode(raw).encode() is raw
    assert Every.read(b"\x00" + raw + b"\x00", 1) == (EVERY, 1 + len(raw))
    assert Row.read(b"\x00" + ROW.encode(), 1) == (ROW, 1 + len(ROW.encode()))


@dataclass(frozen=True, slots=True, kw_only=True)
class Note(EventBody):
    """A body with a field of each kind that bodies have."""

    name: str
    count: int
    amount: Integer
    payload: AnyItem
    key: Bytes32
    extra: Bytes32 | None = None

    def rule(self) -> None:
        if self.count > 1_000:
            raise Malformed("a thousand at most")


NOTE = Note(name="n", count=3, amount=Integer(-129), payload=AnyItem(b"\x81\x01"), key=A, extra=B)
NOTE_TREE: dict[str, Any] = {
    "key": A, "name": "n", "count": 3, "extra": B, "amount": b"\xff\x7f", "payload": [1]
}  # fmt: skip


def test_a_body_is_a_map_of_names_in_the_order_of_their_encodings() -> None:
    assert NOTE.encode() == cbor2.dumps(NOTE_TREE) == cbor2.dumps(NOTE_TREE, canonical=True)
    assert Note.decode(NOTE.encode()) == NOTE
    assert Note.decode(NOTE.encode()).encode() == NOTE.encode()


def test_a_body_reads_and_writes_from_its_first_use() -> None:
    assert fresh(Note)(**asdict(NOTE)).encode() == NOTE.encode()
    assert asdict(fresh(Note).decode(NOTE.encode())) == asdict(NOTE)


def test_an_absent_field_of_a_body_may_be_left_out_or_null() -> None:
    absent = replace(NOTE, extra=None)
    left_out = {name: value for name, value in NOTE_TREE.items() if name != "extra"}
    assert absent.encode() == cbor2.dumps(left_out)
    for tree in (left_out, {**NOTE_TREE, "extra": None}):
        assert asdict(fresh(Note).decode(cbor2.dumps(tree))) == asdict(absent)


@pytest.mark.parametrize(
    ("tree", "fault"),
    [
        ({**NOTE_TREE, "more": 1}, Malformed),
        ({**NOTE_TREE, "a": 1}, Malformed),
        (dict(reversed(NOTE_TREE.items())), Malformed),
        ({name: value for name, value in NOTE_TREE.items() if name != "count"}, Malformed),
        ({**NOTE_TREE, "count": None}, Malformed),
        ({**NOTE_TREE, "count": 1_001}, Malformed),
        ({**NOTE_TREE, "key": A[1:]}, WrongSize),
        ({**NOTE_TREE, "extra": A + A}, WrongSize),
        ({**NOTE_TREE, "amount": b""}, Malformed),
        ({**NOTE_TREE, "amount": b"\x00\x01"}, Malformed),
        ({**NOTE_TREE, "amount": 1}, Malformed),
    ],
)
def test_refuses_a_body_of_another_form(tree: Any, fault: type[Malformed]) -> None:
    with pytest.raises(Malformed) as refusal:
        fresh(Note).decode(cbor2.dumps(tree))
    assert type(refusal.value) is fault


def test_refuses_bytes_after_a_body_and_a_body_cut_short() -> None:
    for raw in (NOTE.encode() + b"\x00", NOTE.encode()[:-1], b""):
        with pytest.raises(Malformed):
            Note.decode(raw)


@pytest.mark.parametrize(
    "wrong",
    [
        {"count": 1_001}, {"count": -1}, {"key": A[1:]}, {"payload": AnyItem(b"\x81")},
        {"payload": AnyItem(b"\x01\x01")}, {"payload": AnyItem(b"")},
    ],
)  # fmt: skip
def test_encoding_refuses_a_body_that_decoding_would(wrong: dict[str, Any]) -> None:
    with pytest.raises(Malformed):
        replace(NOTE, **wrong).encode()


@pytest.mark.parametrize(
    ("value", "encoded"),
    [
        (0, "00"), (1, "01"), (127, "7f"), (128, "0080"), (255, "00ff"), (256, "0100"),
        (-1, "ff"), (-128, "80"), (-129, "ff7f"), (-256, "ff00"), (-(2**64), "ff0000000000000000"),
        (2**64, "010000000000000000"),
    ],
)  # fmt: skip
def test_an_integer_of_a_body_has_its_shortest_form(value: int, encoded: str) -> None:
    raw = replace(NOTE, amount=Integer(value)).encode()
    assert raw == cbor2.dumps({**NOTE_TREE, "amount": bytes.fromhex(encoded)})
    assert Note.decode(raw).amount == value


def test_the_fields_of_a_body_have_a_json_form() -> None:
    item, integer = AnyItem.as_kind(), Integer.as_kind()
    assert item.to_json(NOTE.payload) == "8101"
    assert item.from_json("8101") == NOTE.payload
    assert integer.to_json(Integer(-5)) == -5
    assert integer.from_json(-5) == Integer(-5)
    for wrong in ("5", 5.0, True, None):
        with pytest.raises(Malformed):
            integer.from_json(wrong)


MSG = Msg(
    profile_id=A, label=B, client_id=A, client_seq=1, prev_ack=0, auth_ref=None, ct_hash=A,
    ciphertext=b"ct", sig=SIG,
)  # fmt: skip
RECEIPT = Receipt(label=A, stream_seq=1, leaf_hash=B, mmr_root=A, hub_ts=9, hub_sig=SIG)


LINES = replace(RECEIPT, label=b"\n" * 32, stream_seq=10, hub_ts=300, hub_sig=b"\n" * 64)
SIGNED = [MSG, replace(MSG, auth_ref=B, client_seq=2**64 - 1), RECEIPT, LINES]


def filled(sample: SignedArray, raw: bytes) -> Any:
    """The object that the shape of its class reads in one go, or None."""
    cls, parts = fresh(type(sample)), []
    for column in fields(cls):
        kind = kind_of(column.type)
        optional = isinstance(kind, Optional)
        put = vars(cls)[column.name].__set__
        parts.append(ShapePart(kind.kind if isinstance(kind, Optional) else kind, optional, put))
    result = cls.__new__(cls)
    return result if shape_of(parts).fill(result, raw) else None


@pytest.mark.parametrize("sample", SIGNED, ids=["msg", "auth_ref", "receipt", "lines"])
def test_an_array_of_the_usual_shape_is_read_in_one_go(sample: SignedArray) -> None:
    raw = sample.encode()
    assert filled(sample, raw).plain() == sample.plain()
    for other in (raw + b"\x00", raw[:-1], raw[:-66] + b"\x58\x3f" + raw[-64:]):
        assert filled(sample, other) is None
    assert type(sample).decode(raw).encode() is raw


@pytest.mark.parametrize("auth_ref", [None, B])
def test_a_signature_covers_the_array_without_it(auth_ref: bytes | None) -> None:
    key = SigningKey(A)
    signed = replace(MSG, client_id=key.public, auth_ref=auth_ref).signed(key)
    *others, signature = cbor2.loads(signed.encode())
    digest = sha256(b"veen/sig\x00" + cbor2.dumps(others)).digest()
    assert signature == key.sign(digest)
    assert signed.signature_is_valid()
    assert not replace(signed, client_seq=2).signature_is_valid()


@pytest.mark.parametrize("count", [0, 1, 23, 24, 300])
def test_batches_are_framed_as_their_envelopes_frame_them(count: int) -> None:
    raw = RECEIPT.encode()
    results = (api.BatchResult(receipt=raw),) * count
    response = api.BatchResponse(results=results, server_version="1.2")
    assert api.encode_receipts([raw] * count, "1.2") == response.encode()
    messages = [MSG.encode()] * count
    assert api.encode_messages(messages) == api.BatchRequest(msgs=tuple(messages)).encode()


def test_a_receipt_is_framed_as_its_envelope_frames_it() -> None:
    response = api.SubmitResponse(receipt=RECEIPT, server_version="1.2")
    assert api.encode_receipt(RECEIPT.encode(), "1.2") == response.encode()


@pytest.mark.parametrize("leaf_hash", [None, A])
@pytest.mark.parametrize("label", [None, B])
@pytest.mark.parametrize("hub_ts", [None, 0])
def test_an_entry_is_located_by_its_leaf_or_by_label_and_time(
    leaf_hash: bytes | None, label: bytes | None, hub_ts: int | None
) -> None:
    request = api.LocateRequest(leaf_hash=leaf_hash, label=label, hub_ts=hub_ts)
    by_leaf, by_time = (leaf_hash, None, None), (None, label, hub_ts)
    asked = (leaf_hash, label, hub_ts)
    if (asked == by_leaf and leaf_hash) or (asked == by_time and label and hub_ts is not None):
        assert api.LocateRequest.decode(request.encode()) == request
    else:
        with pytest.raises(Malformed):
            request.encode()


@pytest.mark.parametrize("receipt", [None, b"\x80"], ids=["none", "receipt"])
@pytest.mark.parametrize("error", [None, api.ErrorEnvelope(code="E.SIG", message="no")])
def test_a_batch_result_is_a_receipt_or_an_error(
    receipt: bytes | None, error: api.ErrorEnvelope | None
) -> None:
    result = api.BatchResult(receipt=receipt, error=error)
    if (receipt is None) != (error is None):
        assert api.BatchResult.decode(result.encode()) == result
    else:
        with pytest.raises(Malformed):
            result.encode()


HUB, THIEF = SigningKey(b"h" * 32), SigningKey(b"t" * 32)


def a_status(identity: HubIdentity, signature: bytes) -> api.StatusResponse:
    return api.StatusResponse(
        server_version="1", role="hub", hub_id=identity.hub_id, hub_pk=HUB.public,
        hub_keys=identity.hub_keys, profile_ids=(), profiles=(), epoch=0, hub_ts=1,
        admission="open", reads="open", stream_scoping="none", features=(),
        limits=api.LimitRegistry(**dict.fromkeys(api.LimitRegistry.__dataclass_fields__, 1)),
        uptime_sec=1, labels=0, peaks_count=0, last_stream_seq=0, last_hub_ts=0,
        anchoring=identity.anchoring, identity_sig=signature,
    )  # fmt: skip


def test_the_identity_in_a_status_is_verified() -> None:
    identity = new_identity(HUB.public, 5, "pinned")
    assert a_status(identity, identity.signature_by(HUB)).identity() == identity
    with pytest.raises(Untrusted):
        a_status(identity, identity.signature_by(THIEF)).identity()
    other = replace(identity, anchoring="none")
    with pytest.raises(Untrusted):
        a_status(other, identity.signature_by(HUB)).identity()
    with pytest.raises(Malformed):
        a_status(replace(identity, hub_id=A), identity.signature_by(HUB)).identity()
