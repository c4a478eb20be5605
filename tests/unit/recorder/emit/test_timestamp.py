"""Timestamps: one way to write them, a few to read them, and everything else refused."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from recorder.timestamp import parse, render
from veen.errors import Malformed
from veen.events import MAX_TIME_MS


@pytest.mark.parametrize(
    "text",
    [
        "", "2025-11-19", "2025-11-19T03:20:00", "2025-11-19T03:20:00.Z", "2025-11-19T03:20Z",
        "2025-11-19T03:20:00.0000Z", "2025-11-19T03:20:00z", "2025-11-19 03:20:00Z",
        "2025-11-19T03:20:00+00:00", "2025-02-29T00:00:00Z", "2025-11-19T24:00:00Z",
        "2025-11-19T03:20:60Z", "1969-12-31T23:59:59.999Z", "0000-01-01T00:00:00Z",
        "٢٠٢٥-11-19T03:20:00Z", " 2025-11-19T03:20:00Z", "2025-11-19T03:20:00Z\n",
    ],
)  # fmt: skip
def test_refuses(text: str) -> None:
    with pytest.raises(Malformed):
        parse(text)


@pytest.mark.parametrize("ms", [-1, MAX_TIME_MS + 1])
def test_refuses_to_render_what_it_could_not_parse(ms: int) -> None:
    with pytest.raises(Malformed):
        render(ms)


@pytest.mark.parametrize(
    ("text", "ms"),
    [
        ("1970-01-01T00:00:00Z", 0),
        ("2025-11-19T03:20:00.000Z", 1_763_522_400_000),
        ("2025-11-19T03:20:00.5Z", 1_763_522_400_500),
        ("2025-11-19T03:20:00.05Z", 1_763_522_400_050),
        ("9999-12-31T23:59:59.999Z", MAX_TIME_MS),
    ],
)
def test_reads(text: str, ms: int) -> None:
    assert parse(text) == ms


@given(st.integers(0, MAX_TIME_MS))
def test_what_is_rendered_is_read_again(ms: int) -> None:
    assert parse(render(ms)) == ms
    assert len(render(ms)) == len("2025-11-19T03:20:00.000Z")
