"""Sets of sequence numbers as disjoint ranges, and the algebra of them; nothing here is a guess.

Runs of imported events joined into longer ones, in whatever portions they come.

Joining is the same in any order and over any split of the facts, so that parts of it can be done
beside each other and the rest at the end.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Iterator
from heapq import merge
from typing import NamedTuple

from bridge.reconcile.facts import Import, ImportedFact
from veen.errors import Malformed


class FactRun(NamedTuple):
    """Consecutive events of one bundle; ``is_settled`` when C2 covers their place (K2).

    ``place`` names the copy: the import stream, and how far its numbers are ahead of the origin's.
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
    """``settled_to`` is where C2 ends each import stream; without it everything is settled."""
    return join_runs(run for import_ in imports for run in _split(import_, settled_to))


def join_runs(runs: Iterable[FactRun]) -> list[FactRun]:
    """The fewest runs that say the same, in order."""
    made: list[FactRun] = []
    for run in sorted(runs, key=lambda item: (item.key, item.first, item.last, item.time_last)):
        last = made[-1] if made else None
        if last is None or last.key != run.key or run.first > last.last + 1:
            made.append(run)
        elif (run.last, run.time_last) > (last.last, last.time_last):
            made[-1] = last._replace(last=run.last, time_last=run.time_last)
    return made


def _split(import_: Import, settled_to: dict[str, int] | None) -> Iterator[FactRun]:
    """The part that C2 covers, and the rest. Of a run that is cut only its first time is known:
    no later than the true one, so nothing is called closed that is not.
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

    def __iter__(self) -> Iterator[EventRange]:
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
        """The greatest number; 0 for none."""
        return self._spans[-1].last if self._spans else 0

    def within(self, first: int, last: int) -> Ranges:
        """What lies from ``first`` to ``last``; the rest is not looked at."""
        start = bisect_left(self._spans, first, key=lambda item: item.last)
        end = bisect_left(self._spans, last + 1, lo=start, key=lambda item: item.first)
        return Ranges._of(_common(self._spans[start:end], (EventRange(first, last),)))

    def prefix(self) -> int:
        """The greatest k for which every number from 1 to k is there; 0 where 1 is not."""
        return self._spans[0].last if self._spans and self._spans[0].first == 1 else 0


def repeated(spans: Iterable[tuple[int, int]]) -> Ranges:
    """The numbers that lie in two of the spans or more."""
    reached, result = 0, []
    for first, last in sorted(spans):
        if first <= reached:
            result.append((first, min(last, reached)))
        reached = max(reached, last)
    return Ranges(result)


def _joined(ordered: Iterable[tuple[int, int]]) -> Iterator[EventRange]:
    held: EventRange | None = None
    for first, last in ordered:
        if not 1 <= first <= last:
            raise Malformed(f"a range of {first} to {last}")
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
        item, other = left[here], right[there]
        first, last = max(item.first, other.first), min(item.last, other.last)
        if first <= last:
            yield EventRange(first, last)
        if item.last < other.last:
            here += 1
        else:
            there += 1


def _without(left: tuple[EventRange, ...], right: tuple[EventRange, ...]) -> Iterator[EventRange]:
    there = 0
    for range_ in left:
        first = range_.first
        while there < len(right) and right[there].last < first:
            there += 1
        # The last range to cut this one may cut the next one too.
        at = there
        while at < len(right) and right[at].first <= range_.last:
            if first < right[at].first:
                yield EventRange(first, right[at].first - 1)
            first = right[at].last + 1
            at += 1
        if first <= range_.last:
            yield EventRange(first, range_.last)
