"""Selection of entries, their rows, and aggregates over them (Query API 4.2, 4.3, 5.1).

Partial aggregates can be merged in any order with the same result: sums are exact, and rounded
only when a row is made.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

from recorder import timestamp
from recorder.query import filter as names
from recorder.query.descriptor import SAFE_INTEGER, Descriptor, JsonLimits, read_canonical
from recorder.query.filter import EVENT_TIME, Aggregate, Filter, Function, Metric, QueryField
from veen.errors import Malformed
from veen.events import RecordEvent
from veen.system.process_pool import Portable
from veen.wire import canonical_json

_UNIT_BITS: Final = 1074
"""2^-1074 is the smallest positive double, and every double is a multiple of it."""
_KEY_LIMITS: Final = JsonLimits(max_bytes=1 << 26, max_depth=32)


class RowOrder(NamedTuple):
    """The order of rows: by hub time, then by the bytes of the stream's name, then by position.

    For an event in an import stream these are those of its origin. The last two fields distinguish
    it from an event with the same position at another hub, and are empty otherwise.
    """

    hub_ts: int
    stream: bytes
    seq: int
    import_stream: bytes = b""
    import_seq: int = 0


class SourcePlace(NamedTuple):
    """The position of an imported event at its origin, as signed by the origin's hub."""

    hub_id: bytes
    stream: str
    seq: int
    hub_ts: int
    leaf_hash: bytes


@dataclass(frozen=True, slots=True)
class QueryEntry(Portable):
    """A message at its position. ``hub_ts`` is in seconds; ``event`` is None for other messages.

    The position is that in the searched stream. In an import stream, ``source`` is the position at
    the origin, by which the event is filtered and ordered.
    """

    stream: str
    seq: int
    hub_ts: int
    leaf_hash: bytes
    event: RecordEvent | None
    source: SourcePlace | None = None

    @property
    def commit_ts(self) -> int:
        """The hub_commit_time that the time filter uses: the origin's, if there is one."""
        return self.hub_ts if self.source is None else self.source.hub_ts

    @property
    def order_key(self) -> RowOrder:
        stream, source = self.stream.encode(), self.source
        if source is None:
            return RowOrder(self.hub_ts, stream, self.seq)
        return RowOrder(source.hub_ts, source.stream.encode(), source.seq, stream, self.seq)

    @property
    def receipt_id(self) -> str:
        return receipt_id(self.leaf_hash)


def receipt_id(leaf_hash: bytes) -> str:
    """The id of a message's receipt: its leaf, which is also its msg_id."""
    return "rcpt-" + leaf_hash.hex()


Row = dict[str, Any]


def matches(descriptor: Descriptor, entry: QueryEntry) -> bool:
    """Whether the entry is an event of the scope that passes the filter."""
    if entry.event is None or entry.stream not in descriptor.scope:
        return False
    return descriptor.filter.has_time(entry.commit_ts) and _passes(descriptor.filter, entry.event)


def row(descriptor: Descriptor, entry: QueryEntry) -> Row:
    """The projection of a matching entry, with the names of the fields as keys."""
    values = values_of(descriptor.fields, entry, payload_for(descriptor.fields, entry))
    return dict(zip(descriptor.projection, values, strict=True))


def values_of(fields: Sequence[QueryField], entry: QueryEntry, payload: Any) -> list[Any]:
    """The values of these fields as JSON; ``payload`` is that of ``payload_for``."""
    event = event_of(entry)
    return [_row_value(field, entry, event, payload) for field in fields]


def payload_for(fields: Iterable[QueryField], entry: QueryEntry) -> Any:
    """The payload, decoded only if one of the fields needs it."""
    is_needed = any(field.is_path or field.text == names.PAYLOAD for field in fields)
    return event_of(entry).value() if is_needed else None


def event_of(entry: QueryEntry) -> RecordEvent:
    if entry.event is None:
        raise Malformed(
            f"{entry.stream} {entry.seq}: expected an event, got a message without fields"
        )
    return entry.event


def as_json(value: Any) -> Any:
    """A payload value as canonical JSON can hold it: larger integers become decimal text."""
    if isinstance(value, dict):
        return {key: as_json(element) for key, element in value.items()}
    if isinstance(value, list):
        return [as_json(element) for element in value]
    if type(value) is int and abs(value) > SAFE_INTEGER:
        return str(value)
    return value


def _passes(filter_: Filter, event: RecordEvent) -> bool:
    return (
        filter_.subject_id in (None, event.subject_id)
        and filter_.origin in (None, event.origin)
        and filter_.principal_id in (None, event.principal_id)
        and (filter_.event_type is None or event.event_type in filter_.event_type)
    )


def _row_value(field: QueryField, entry: QueryEntry, event: RecordEvent, payload: Any) -> Any:
    if field.is_path or field.text == names.PAYLOAD:
        return as_json(field.within(payload))
    return _PLAIN[field.text](entry, event)


_PLAIN: Final[dict[str, Callable[[QueryEntry, RecordEvent], Any]]] = {
    names.STREAM: lambda entry, _: entry.stream,
    names.SEQ: lambda entry, _: as_json(entry.seq),
    names.COMMIT_TIME: lambda entry, _: timestamp.render(entry.hub_ts * 1000),
    names.SUBJECT: lambda _, event: event.subject_id,
    names.PRINCIPAL: lambda _, event: event.principal_id.hex(),
    names.EVENT_TYPE: lambda _, event: event.event_type,
    names.EVENT_TIME: lambda _, event: timestamp.render(event.event_time),
    names.ORIGIN: lambda _, event: event.origin,
    names.RECEIPT: lambda entry, _: entry.receipt_id,
    names.SOURCE_HUB: lambda entry, _: entry.source and entry.source.hub_id.hex(),
    names.SOURCE_STREAM: lambda entry, _: entry.source and entry.source.stream,
    names.SOURCE_SEQ: lambda entry, _: entry.source and as_json(entry.source.seq),
    names.SOURCE_TIME: lambda entry, _: (
        entry.source and timestamp.render(entry.source.hub_ts * 1000)
    ),
    names.SOURCE_RECEIPT: lambda entry, _: entry.source and receipt_id(entry.source.leaf_hash),
}
"""The fields of an origin are null for an event that was recorded here."""


Number = int | float


@dataclass(frozen=True, slots=True)
class Partial:
    """The partial result of a metric over some of the events.

    ``count`` counts the numbers, or the events for a metric without a field. ``doubles`` is the sum
    of the numbers that are doubles, in units of 2^-1074.
    """

    count: int = 0
    integers: int = 0
    doubles: int = 0
    any_double: bool = False
    low: Number | None = None
    high: Number | None = None


Cells = tuple[Partial, ...]
"""A partial result for each metric."""


def empty_cells(aggregate: Aggregate) -> Cells:
    return (Partial(),) * len(aggregate.metrics)


def lift(aggregate: Aggregate, entry: QueryEntry) -> tuple[bytes, Cells]:
    """The group of an event, as canonical JSON of its keys, and its partial results."""
    event, payload = event_of(entry), payload_for(aggregate.fields, entry)
    key = canonical_json.encode(values_of(aggregate.group_by, entry, payload))
    return key, tuple(_lifted(metric.field, event, payload) for metric in aggregate.metrics)


def merge_cells(left: Cells, right: Cells) -> Cells:
    return tuple(_merged(partial, other) for partial, other in zip(left, right, strict=True))


def gather_cells(aggregate: Aggregate, entries: Iterable[QueryEntry]) -> dict[bytes, Cells]:
    """The partial results of these events, by group."""
    groups: dict[bytes, Cells] = {}
    empty = empty_cells(aggregate)
    for entry in entries:
        key, cells = lift(aggregate, entry)
        groups[key] = merge_cells(groups.get(key, empty), cells)
    return groups


def aggregate_rows(aggregate: Aggregate, groups: Mapping[bytes, Cells]) -> list[Row]:
    """A row for each group, sorted by the bytes of its keys.

    Without group_by there is always one row.
    """
    if not aggregate.group_by and not groups:
        groups = {b"[]": empty_cells(aggregate)}
    return [_row(aggregate, key, groups[key]) for key in sorted(groups)]


def _row(aggregate: Aggregate, key: bytes, cells: Cells) -> Row:
    keys = read_canonical(key, _KEY_LIMITS)
    named = zip((field.text for field in aggregate.group_by), keys, strict=True)
    measured = zip(aggregate.metrics, cells, strict=True)
    return dict(named) | {
        metric.text: _metric_value(metric, partial) for metric, partial in measured
    }


def _lifted(field: QueryField | None, event: RecordEvent, payload: Any) -> Partial:
    if field is None:
        return Partial(count=1)
    value = event.event_time if field.text == EVENT_TIME else field.within(payload)
    if type(value) is int:
        return Partial(1, value, 0, False, value, value)
    if type(value) is float:
        return Partial(1, 0, _in_units(value), True, value, value)
    return Partial()


def _merged(partial: Partial, other: Partial) -> Partial:
    return Partial(
        partial.count + other.count,
        partial.integers + other.integers,
        partial.doubles + other.doubles,
        partial.any_double or other.any_double,
        _lower(partial.low, other.low),
        _higher(partial.high, other.high),
    )


def _lower(number: Number | None, other: Number | None) -> Number | None:
    if number is None or other is None:
        return other if number is None else number
    return _prefer_integer(number, other) if number == other else min(number, other)


def _higher(number: Number | None, other: Number | None) -> Number | None:
    if number is None or other is None:
        return other if number is None else number
    return _prefer_integer(number, other) if number == other else max(number, other)


def _prefer_integer(number: Number, other: Number) -> Number:
    """Of two equal numbers the integer, so that the order does not matter."""
    return number if isinstance(number, int) else other


def _metric_value(metric: Metric, partial: Partial) -> Any:
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
    """The nearest double; None when the number is out of range."""
    total = (partial.integers << _UNIT_BITS) + partial.doubles
    try:
        # Integer division rounds once, to the nearest double.
        return total / (parts << _UNIT_BITS)
    except OverflowError:
        return None


def _in_units(value: float) -> int:
    numerator, denominator = value.as_integer_ratio()
    return numerator * ((1 << _UNIT_BITS) // denominator)
