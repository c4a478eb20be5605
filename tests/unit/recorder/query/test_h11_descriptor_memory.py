"""H11: reading a descriptor takes bounded memory, however many values its bytes hold."""

from __future__ import annotations

import tracemalloc

import pytest

from recorder.query.descriptor import JsonLimits, parse_json
from recorder.service.errors import BadDescriptor

MEASURED = JsonLimits(max_bytes=20_000)
MOST_PER_BYTE = 100
"""At most 96 MiB for the 1,000,000 bytes that ``max_descriptor_bytes`` may be set to."""


@pytest.mark.parametrize("part", [b"0,", b"{},", b"[],", b'"a",', b'{"a":{}},'])
def test_h11_a_descriptor_of_many_values_takes_bounded_memory(part: bytes) -> None:
    raw = b"[" + part * ((MEASURED.max_bytes - 10) // len(part)) + b"0]"
    tracemalloc.start()
    try:
        parse_json(raw, MEASURED)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < MOST_PER_BYTE * len(raw)


def test_h11_a_descriptor_above_its_bound_is_not_parsed() -> None:
    with pytest.raises(BadDescriptor, match="expected at most"):
        parse_json(b"[" + b"{}," * 7_000 + b"0]", MEASURED)
