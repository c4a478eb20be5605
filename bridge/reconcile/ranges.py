"""Sets of sequence numbers as disjoint ranges, and the algebra of them; nothing here is a guess."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Iterator
from heapq import merge
from typing import NamedTuple

from veen.errors import Malformed


class Range(NamedTuple):
    """Both ends included."""

    first: int
    last: int


class Ranges:
    """Sorted, disjoint and never adjacent: one set has one form, so equal sets compare equal."""

    __slots__ = ("_spans",)

    def __init__(self, spans: Iterable[tuple[int, int]] = ()) -> None:
        self._spans = tuple(_joined(sorted(spans)))

    @classmethod
    def _of(cls, ordered: Iterable[tuple[int, int]]) -> Ranges:
        made = cls()
        made._spans = tuple(_joined(ordered))
        return made

    def __iter__(self) -> Iterator[Range]:
        return iter(self._spans)

    def __len__(self) -> int:
        """How many ranges; ``count`` is how many numbers."""
        return len(self._spans)

    def __bool__(self) -> bool:
        return bool(self._spans)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Ranges) and self._spans == other._spans

    def __hash__(self) -> int:
        return hash(self._spans)

    def __repr__(self) -> str:
        return f"Ranges({[tuple(one) for one in self._spans]})"

    def __or__(self, other: Ranges) -> Ranges:
        return Ranges._of(merge(self._spans, other._spans))

    def __and__(self, other: Ranges) -> Ranges:
        return Ranges._of(_common(self._spans, other._spans))

    def __sub__(self, other: Ranges) -> Ranges:
        return Ranges._of(_without(self._spans, other._spans))

    @property
    def count(self) -> int:
        return sum(last - first + 1 for first, last in self._spans)

    @property
    def end(self) -> int:
        """The greatest number; 0 for none."""
        return self._spans[-1].last if self._spans else 0

    def within(self, first: int, last: int) -> Ranges:
        """What lies from ``first`` to ``last``; the rest is not looked at."""
        start = bisect_left(self._spans, first, key=lambda one: one.last)
        end = bisect_left(self._spans, last + 1, lo=start, key=lambda one: one.first)
        return Ranges._of(_common(self._spans[start:end], (Range(first, last),)))

    def prefix(self) -> int:
        """The greatest k for which every number from 1 to k is there; 0 where 1 is not."""
        return self._spans[0].last if self._spans and self._spans[0].first == 1 else 0


def repeated(spans: Iterable[tuple[int, int]]) -> Ranges:
    """The numbers that lie in two of the spans or more."""
    reached, found = 0, []
    for first, last in sorted(spans):
        if first <= reached:
            found.append((first, min(last, reached)))
        reached = max(reached, last)
    return Ranges(found)


def _joined(ordered: Iterable[tuple[int, int]]) -> Iterator[Range]:
    held: Range | None = None
    for first, last in ordered:
        if not 1 <= first <= last:
            raise Malformed(f"a range of {first} to {last}")
        if held is None:
            held = Range(first, last)
        elif first <= held.last + 1:
            held = Range(held.first, max(held.last, last))
        else:
            yield held
            held = Range(first, last)
    if held is not None:
        yield held


def _common(left: tuple[Range, ...], right: tuple[Range, ...]) -> Iterator[Range]:
    here = there = 0
    while here < len(left) and there < len(right):
        one, other = left[here], right[there]
        first, last = max(one.first, other.first), min(one.last, other.last)
        if first <= last:
            yield Range(first, last)
        if one.last < other.last:
            here += 1
        else:
            there += 1


def _without(left: tuple[Range, ...], right: tuple[Range, ...]) -> Iterator[Range]:
    there = 0
    for one in left:
        first = one.first
        while there < len(right) and right[there].last < first:
            there += 1
        # The last range to cut this one may cut the next one too.
        at = there
        while at < len(right) and right[at].first <= one.last:
            if first < right[at].first:
                yield Range(first, right[at].first - 1)
            first = right[at].last + 1
            at += 1
        if first <= one.last:
            yield Range(first, one.last)
