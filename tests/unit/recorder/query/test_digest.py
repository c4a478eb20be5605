"""The result digest: one form, hashes that do not depend on how rows pass by, strict reading."""

from __future__ import annotations

import json
import math
import struct
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from recorder.query.digest import ResultDigest, RowChain, row_hash, rows_hash
from recorder.query.select import as_json
from support.recorder import query_oracle, query_proven
from veen.errors import Malformed
from veen.wire import canonical_json

ROWS: list[dict[str, Any]] = [{"b": 1, "a": "\u20ac"}, {}, {"a": [1.5, None]}]


@pytest.fixture(scope="module")
def digest(small_log: Any, a_descriptor: Any) -> ResultDigest:
    result: ResultDigest = query_proven.result_of(
        small_log, a_descriptor(evidence={"mode": "full"})
    )[1]
    return result


@pytest.mark.parametrize("count", range(4))
def test_rows_hash_is_that_of_the_whole_array(count: int) -> None:
    rows = ROWS[:count]
    hash_ = rows_hash(row for row in rows)
    assert hash_.rows_hash == query_oracle.digest(rows)
    assert hash_.row_count == count


def test_the_chain_follows_from_the_hashes_of_the_rows() -> None:
    chain = RowChain()
    for row in ROWS:
        chain.add(row_hash(canonical_json.encode(row)))
    assert chain.value.hex() == rows_hash(ROWS).chain


def test_the_order_of_rows_is_bound() -> None:
    item, other = rows_hash(ROWS), rows_hash(ROWS[::-1])
    assert item.rows_hash != other.rows_hash
    assert item.chain != other.chain


def test_rows_are_taken_one_at_a_time() -> None:
    def endless() -> Iterator[dict[str, Any]]:
        for number in range(20_000):
            yield {"n": number}

    assert rows_hash(endless()).row_count == 20_000


def test_a_digest_reads_back_as_itself(digest: ResultDigest) -> None:
    assert ResultDigest.decode(digest.encode()) == digest
    assert ResultDigest.read(json.loads(digest.encode())) == digest


def test_a_digest_has_what_the_text_asks_for(digest: ResultDigest) -> None:
    document = digest.document()
    asked = {
        "query_id", "result_id", "version", "row_count", "evidence_policy", "rows_hash",
        "evidence_hash", "executed_at", "hub_id", "profile_id",
    }  # fmt: skip
    assert asked <= set(document)
    assert document["executed_at"] == "2023-11-15T00:43:20.123Z"


@pytest.mark.parametrize(
    ("path", "value"),
    [
        (("version",), 2),
        (("version",), True),
        (("row_count",), -1),
        (("row_count",), 1.5),
        (("row_count",), "1"),
        (("rows_hash",), "00"),
        (("rows_hash",), "AA" * 32),
        (("rows_hash",), None),
        (("query_id",), ""),
        (("query_id",), 1),
        (("executed_at",), "2025-01-01T00:00:00Z"),
        (("executed_at",), "now"),
        (("evidence_policy",), {"mode": "spot"}),
        (("evidence_policy",), {"mode": "full", "sample_rate": None}),
        (("checkpoint",), None),
        (("checkpoint", "log_root"), "00"),
        (("checkpoint", "more"), 1),
        (("searched",), {}),
        (("searched", 0, "from_seq"), 0),
        (("searched", 0, "from_seq"), 10**6),
        (("searched", 0, "unread"), 10**6),
        (("searched", 0, "mmr_root"), "zz" * 32),
        (("more",), 1),
    ],
)
def test_refuses_a_digest_with(digest: ResultDigest, path: tuple[Any, ...], value: Any) -> None:
    document = json.loads(digest.encode())
    inner = document
    for step in path[:-1]:
        inner = inner[step]
    inner[path[-1]] = value
    with pytest.raises(Malformed):
        ResultDigest.read(document)


def test_refuses_a_digest_that_lacks_any_field(digest: ResultDigest) -> None:
    for key in digest.document():
        document = {k: v for k, v in digest.document().items() if k != key}
        with pytest.raises(Malformed):
            ResultDigest.read(document)


def test_refuses_a_digest_in_another_form(digest: ResultDigest) -> None:
    for raw in (b" " + digest.encode(), json.dumps(digest.document()).encode(), b"[]", b""):
        with pytest.raises(Malformed):
            ResultDigest.decode(raw)


@pytest.mark.parametrize("number", [2**53, -(2**53), 2**64 - 1, -(2**64)])
def test_integers_beyond_canonical_json_become_decimal_text(number: int) -> None:
    assert as_json({"a": [number, 1]}) == {"a": [str(number), 1]}


@given(st.integers(-(2**53) + 1, 2**53 - 1) | st.booleans() | st.floats(allow_nan=False))
def test_other_numbers_stay_what_they_are(number: Any) -> None:
    assert as_json(number) is number


@given(st.floats(allow_nan=False, allow_infinity=False))
def test_doubles_are_written_as_a_second_program_writes_them(number: float) -> None:
    assert canonical_json.encode(number).decode() == query_oracle.double(number)


@given(st.integers(0, 2**64 - 1))
def test_doubles_of_any_bits_are_written_so_too(bits: int) -> None:
    (number,) = struct.unpack(">d", bits.to_bytes(8, "big"))
    if math.isfinite(number):
        assert canonical_json.encode(number).decode() == query_oracle.double(number)


@given(st.text(max_size=20))
def test_texts_are_written_so_too(text: str) -> None:
    assert canonical_json.encode(text).decode() == query_oracle.jcs(text)
