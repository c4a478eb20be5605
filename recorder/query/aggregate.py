"""Aggregates: partial results that merge in any order into the same bytes (Query API 4.3, 5.1).

Sums are exact while they grow, and are rounded once, when a row is made of them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from recorder import timestamp
from recorder.query.entry import Entry
from recorder.query.field import EVENT_TIME, Field
from recorder.query.json_text import JsonLimits, read_canonical
from recorder.query.metric import Aggregate, Function, Metric
from recorder.query.select import Row, as_json, event_of, payload_for, values_of
from veen import canonical_json
from veen.record_event import RecordEvent

Number = int | float
_UNIT_BITS: Final = 1074
"""2^-1074 is the smallest double, and every double is a multiple of it."""
_KEY_LIMITS: Final = JsonLimits(max_bytes=1 << 26, max_depth=32)


@dataclass(frozen=True, slots=True)
class Partial:
    """What is known of one metric over some of the events.

    ``count`` counts the numbers, or the events for the metric that has no field. ``doubles`` is
    the sum of those numbers that were doubles, in units of 2^-1074.
    """

    count: int = 0
    integers: int = 0
    doubles: int = 0
    any_double: bool = False
    low: Number | None = None
    high: Number | None = None


Cells = tuple[Partial, ...]
"""One partial result for each metric."""


def empty(aggregate: Aggregate) -> Cells:
    return (Partial(),) * len(aggregate.metrics)


def lift(aggregate: Aggregate, entry: Entry) -> tuple[bytes, Cells]:
    """The group of one event, named by the canonical JSON of its keys, and what it adds there."""
    event, payload = event_of(entry), payload_for(aggregate.fields, entry)
    key = canonical_json.encode(values_of(aggregate.group_by, entry, payload))
    return key, tuple(_lifted(metric.field, event, payload) for metric in aggregate.metrics)


def merge(left: Cells, right: Cells) -> Cells:
    return tuple(_merged(one, other) for one, other in zip(left, right, strict=True))


def gather(aggregate: Aggregate, entries: Iterable[Entry]) -> dict[bytes, Cells]:
    """The groups of these events."""
    groups: dict[bytes, Cells] = {}
    nothing = empty(aggregate)
    for entry in entries:
        key, cells = lift(aggregate, entry)
        groups[key] = merge(groups.get(key, nothing), cells)
    return groups


def rows(aggregate: Aggregate, groups: Mapping[bytes, Cells]) -> list[Row]:
    """A row for each group, by the bytes of its keys. Without group_by there is always one row."""
    if not aggregate.group_by and not groups:
        groups = {b"[]": empty(aggregate)}
    return [_row(aggregate, key, groups[key]) for key in sorted(groups)]


def _row(aggregate: Aggregate, key: bytes, cells: Cells) -> Row:
    keys = read_canonical(key, _KEY_LIMITS)
    named = zip((field.text for field in aggregate.group_by), keys, strict=True)
    measured = zip(aggregate.metrics, cells, strict=True)
    return dict(named) | {metric.text: _value(metric, partial) for metric, partial in measured}


def _lifted(field: Field | None, event: RecordEvent, payload: Any) -> Partial:
    if field is None:
        return Partial(count=1)
    value = event.event_time if field.text == EVENT_TIME else field.within(payload)
    if type(value) is int:
        return Partial(1, value, 0, False, value, value)
    if type(value) is float:
        return Partial(1, 0, _in_units(value), True, value, value)
    return Partial()


def _merged(one: Partial, other: Partial) -> Partial:
    return Partial(
        one.count + other.count,
        one.integers + other.integers,
        one.doubles + other.doubles,
        one.any_double or other.any_double,
        _lower(one.low, other.low),
        _higher(one.high, other.high),
    )


def _lower(one: Number | None, other: Number | None) -> Number | None:
    if one is None or other is None:
        return other if one is None else one
    return _whole(one, other) if one == other else min(one, other)


def _higher(one: Number | None, other: Number | None) -> Number | None:
    if one is None or other is None:
        return other if one is None else one
    return _whole(one, other) if one == other else max(one, other)


def _whole(one: Number, other: Number) -> Number:
    """Of two equal numbers the integer, so that it does not matter which came first."""
    return one if isinstance(one, int) else other


def _value(metric: Metric, partial: Partial) -> Any:
    if metric.field is None:
        return as_json(partial.count)
    if not partial.count:
        return None
    if metric.field.text == EVENT_TIME and metric.function is not Function.SUM:
        return timestamp.render(_time(metric.function, partial))
    match metric.function:
        case Function.MIN:
            return as_json(partial.low)
        case Function.MAX:
            return as_json(partial.high)
        case Function.SUM if not partial.any_double:
            return as_json(partial.integers)
        case Function.SUM:
            return _rounded(partial, 1)
    return _rounded(partial, partial.count)


def _time(function: Function, partial: Partial) -> int:
    if function is Function.AVG:
        return partial.integers // partial.count
    return int((partial.low if function is Function.MIN else partial.high) or 0)


def _rounded(partial: Partial, parts: int) -> float | None:
    """The nearest double; None when the number is beyond all of them."""
    total = (partial.integers << _UNIT_BITS) + partial.doubles
    try:
        # The division of integers rounds once, to the nearest double.
        return total / (parts << _UNIT_BITS)
    except OverflowError:
        return None


def _in_units(value: float) -> int:
    numerator, denominator = value.as_integer_ratio()
    return numerator * ((1 << _UNIT_BITS) // denominator)
