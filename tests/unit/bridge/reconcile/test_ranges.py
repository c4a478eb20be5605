"""Ranges are exact: every operation is that of sets of whole numbers."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bridge.reconcile.ranges import Ranges, repeated
from veen.errors import Malformed

SPAN = st.tuples(st.integers(1, 60), st.integers(0, 12)).map(lambda item: (item[0], sum(item)))
SPANS = st.lists(SPAN, max_size=12)


def numbers(spans: object) -> set[int]:
    return {n for first, last in spans for n in range(first, last + 1)}  # type: ignore[attr-defined]


@pytest.mark.parametrize("span", [(0, 3), (5, 4), (-2, -1)])
def test_refuses_what_is_no_range(span: tuple[int, int]) -> None:
    with pytest.raises(Malformed):
        Ranges([span])


@given(SPANS, SPANS)
@settings(max_examples=250, deadline=None)
def test_is_the_algebra_of_sets(left: list[tuple[int, int]], right: list[tuple[int, int]]) -> None:
    item, other = Ranges(left), Ranges(right)
    assert numbers(item | other) == numbers(left) | numbers(right)
    assert numbers(item & other) == numbers(left) & numbers(right)
    assert numbers(item - other) == numbers(left) - numbers(right)
    assert item.count == len(numbers(left))
    assert item.end == max(numbers(left), default=0)


@given(SPANS)
@settings(max_examples=120, deadline=None)
def test_one_set_has_one_form(spans: list[tuple[int, int]]) -> None:
    ranges = Ranges(spans)
    assert ranges == Ranges((n, n) for n in numbers(spans))
    assert all(
        item.last + 1 < other.first for item, other in zip(ranges, list(ranges)[1:], strict=False)
    )
    assert hash(ranges) == hash(Ranges(reversed(spans)))


@given(SPANS)
@settings(max_examples=120, deadline=None)
def test_finds_what_lies_in_two_spans(spans: list[tuple[int, int]]) -> None:
    twice = {n for n in numbers(spans) if sum(first <= n <= last for first, last in spans) > 1}
    assert numbers(repeated(spans)) == twice


@given(SPANS)
@settings(max_examples=80, deadline=None)
def test_prefix_ends_before_the_first_hole(spans: list[tuple[int, int]]) -> None:
    result, held = Ranges(spans).prefix(), numbers(spans)
    assert set(range(1, result + 1)) <= held
    assert result + 1 not in held
