"""Sets of sequence numbers as disjoint ranges, and runs of imported events joined into longer ones.

Joining is associative and commutative, so that batches of facts can be joined in parallel and in
any order.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Iterator
from heapq import merge
from typing import NamedTuple

from bridge.reconcile.facts import Import, ImportedFact
from veen.errors import Malformed


class FactRun(NamedTuple):
    """Consecutive events of one bundle; ``is_settled`` if C2 covers their place (K2).

    ``place`` identifies the copy: the import stream, and the offset of its sequence numbers from
    those of the origin.
    """

    hub_id: bytes
    stream: str
    held: ImportedFact
    is_settled: bool
    bundle_id: bytes
    place: tuple[str, int]
    first: int
    last: int
    time_last: int

    @property
    def key(self) -> tuple[object, ...]:
        return (*self[:2], self.held.value, *self[3:6])


def runs_of(imports: Iterable[Import], settled_to: dict[str, int] | None) -> list[FactRun]:
    """Runs of imports; ``settled_to`` is the end of each import stream in C2.

    Without C2 everything is settled.
    """
    return join_runs(run for import_ in imports for run in _split(import_, settled_to))


def join_runs(runs: Iterable[FactRun]) -> list[FactRun]:
    """The smallest equivalent list of runs, in order."""
    joined: list[FactRun] = []
    for run in sorted(runs, key=lambda item: (item.key, item.first, item.last, item.time_last)):
        last = joined[-1] if joined else None
        if last is None or last.key != run.key or run.first > last.last + 1:
            joined.append(run)
        elif (run.last, run.time_last) > (last.last, last.time_last):
            joined[-1] = last._replace(last=run.last, time_last=run.time_last)
    return joined


def _split(import_: Import, settled_to: dict[str, int] | None) -> Iterator[FactRun]:
    """The part that C2 covers, and the rest. Of a run that is cut only the time of its first event
    is known, which is no later than the true time, so that nothing is wrongly reported as closed.
    """
    ahead = import_.target_first - import_.first
    cut = import_.last if settled_to is None else settled_to.get(import_.target, 0) - ahead
    place = (import_.target, ahead)
    start = (import_.hub_id, import_.stream, import_.held)
    if cut >= import_.last:
        yield FactRun(
            *start, True, import_.bundle_id, place, import_.first, import_.last, import_.time_last
        )
    elif cut < import_.first:
        yield FactRun(
            *start, False, import_.bundle_id, place, import_.first, import_.last, import_.time_last
        )
    else:
        yield FactRun(
            *start, True, import_.bundle_id, place, import_.first, cut, import_.time_first
        )
        yield FactRun(
            *start, False, import_.bundle_id, place, cut + 1, import_.last, import_.time_last
        )


class EventRange(NamedTuple):
    """A range of sequence numbers, both ends included."""

    first: int
    last: int


class Ranges:
    """A set of sequence numbers as ranges, sorted, disjoint and not adjacent.

    The form is canonical, so that equal sets compare equal.
    """

    __slots__ = ("_spans",)

    def __init__(self, spans: Iterable[tuple[int, int]] = ()) -> None:
        self._spans = tuple(_joined(sorted(spans)))

    @classmethod
    def _of(cls, ordered: Iterable[tuple[int, int]]) -> Ranges:
        ranges = cls()
        ranges._spans = tuple(_joined(ordered))
        return ranges

    def __iter__(self) -> Iterator[EventRange]:
        return iter(self._spans)

    def __len__(self) -> int:
        """The number of ranges; ``count`` is the number of sequence numbers."""
        return len(self._spans)

    def __bool__(self) -> bool:
        return bool(self._spans)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Ranges) and self._spans == other._spans

    def __hash__(self) -> int:
        return hash(self._spans)

    def __repr__(self) -> str:
        return f"Ranges({[tuple(span) for span in self._spans]})"

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
        """The greatest sequence number; 0 if empty."""
        return self._spans[-1].last if self._spans else 0

    def within(self, first: int, last: int) -> Ranges:
        """The part from ``first`` to ``last``, in logarithmic time."""
        start = bisect_left(self._spans, first, key=lambda item: item.last)
        end = bisect_left(self._spans, last + 1, lo=start, key=lambda item: item.first)
        return Ranges._of(_common(self._spans[start:end], (EventRange(first, last),)))

    def prefix(self) -> int:
        """The greatest k such that every number from 1 to k is in the set; 0 if 1 is not."""
        return self._spans[0].last if self._spans and self._spans[0].first == 1 else 0


def repeated(spans: Iterable[tuple[int, int]]) -> Ranges:
    """The numbers in two or more of the spans."""
    reached, overlaps = 0, []
    for first, last in sorted(spans):
        if first <= reached:
            overlaps.append((first, min(last, reached)))
        reached = max(reached, last)
    return Ranges(overlaps)


def _joined(ordered: Iterable[tuple[int, int]]) -> Iterator[EventRange]:
    held: EventRange | None = None
    for first, last in ordered:
        if not 1 <= first <= last:
            raise Malformed(f"expected a range, got {first} to {last}")
        if held is None:
            held = EventRange(first, last)
        elif first <= held.last + 1:
            held = EventRange(held.first, max(held.last, last))
        else:
            yield held
            held = EventRange(first, last)
    if held is not None:
        yield held


def _common(left: tuple[EventRange, ...], right: tuple[EventRange, ...]) -> Iterator[EventRange]:
    here = there = 0
    while here < len(left) and there < len(right):
        range_, other = left[here], right[there]
        first, last = max(range_.first, other.first), min(range_.last, other.last)
        if first <= last:
            yield EventRange(first, last)
        if range_.last < other.last:
            here += 1
        else:
            there += 1


def _without(left: tuple[EventRange, ...], right: tuple[EventRange, ...]) -> Iterator[EventRange]:
    there = 0
    for range_ in left:
        first = range_.first
        while there < len(right) and right[there].last < first:
            there += 1
        # The last range that cuts this range may also cut the next.
        at = there
        while at < len(right) and right[at].first <= range_.last:
            if first < right[at].first:
                yield EventRange(first, right[at].first - 1)
            first = right[at].last + 1
            at += 1
        if first <= range_.last:
            yield EventRange(first, range_.last)
