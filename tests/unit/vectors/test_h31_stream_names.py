"""H31: whether a stream name is valid is the same for every Python."""

from __future__ import annotations

from operator import itemgetter
from typing import Any
from unicodedata import category

import pytest

from recorder.query.descriptor import normalise
from recorder.service.errors import BadDescriptor
from support.vectors import load_vectors
from veen.errors import Malformed
from veen.label import DEFAULT_PROFILE, MAX_NAME, REFUSED, is_name
from veen.log.entry import StreamRecord
from veen.wire import cbor

CASES = load_vectors("stream_names.json")
POINTS = 0x110000


@pytest.mark.parametrize("case", CASES["cases"], ids=itemgetter("name"))
def test_h31_a_name_is_valid_or_not_whatever_the_interpreter_calls_printable(
    case: dict[str, Any],
) -> None:
    text, is_valid = case["text"], case["valid"]
    assert is_name(text) is is_valid
    raw = cbor.encode({1: text, 2: cbor.decode(DEFAULT_PROFILE.encode())})
    query = {
        "scope": [text],
        "filter": {},
        "projection": ["*"],
        "evidence": {"mode": "none"},
    }
    if is_valid:
        assert StreamRecord.decode(raw).name == text
        assert normalise(query, query_id_if_missing="q").scope == (text,)
        return
    with pytest.raises(Malformed):
        StreamRecord.decode(raw)
    with pytest.raises(BadDescriptor):
        normalise(query, query_id_if_missing="q")


def test_h31_the_ranges_are_those_of_the_vectors() -> None:
    assert POINTS - len(refused()) == CASES["valid_code_points"]
    assert not any(is_name(chr(point)) for pair in REFUSED for point in pair)


def test_h31_no_name_of_an_existing_log_becomes_malformed() -> None:
    """What this Python calls printable, as hubs did, is valid; what is refused never was."""
    printable = "".join(filter(str.isprintable, map(chr, range(POINTS))))
    for start in range(0, len(printable), MAX_NAME):
        assert is_name(printable[start : start + MAX_NAME]), f"from {printable[start]!a}"
    never = {"Cc", "Cf", "Cn", "Co", "Cs", "Zl", "Zp", "Zs"}
    assert {category(chr(point)) for point in refused()} <= never


def refused() -> set[int]:
    return {point for first, last in REFUSED for point in range(first, last + 1)}
