"""Recorder statistics: events and bytes by type, subject, producer, origin and day (SDR0 3.2.1)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import date
from functools import reduce
from typing import Any, Final, TypeVar

from veen.errors import Malformed
from veen.events import RECORD_SCHEMA, read_event
from veen.overlay.overlay import Event, Overlay, merged, verify_order
from veen.wire.objects import WireArray, WireMap
from veen.wire.schema import Bytes32, Version

_DAY: Final = 86_400
_EPOCH: Final = date(1970, 1, 1).toordinal()


@dataclass(frozen=True, slots=True, kw_only=True)
class NamedCount(WireArray):
    name: str
    events: int
    size: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ProducerCount(WireArray):
    name: Bytes32
    events: int
    size: int


@dataclass(frozen=True, slots=True, kw_only=True)
class DayCount(WireArray):
    """The counts of a day; ``name`` is the number of days since 1970, by hub time."""

    name: int
    events: int
    size: int


CountT = TypeVar("CountT", NamedCount, ProducerCount, DayCount)
AnyCount = NamedCount | ProducerCount | DayCount


@dataclass(frozen=True, slots=True, kw_only=True)
class Totals(WireArray):
    """Sums and extremes over at least one event."""

    events: int
    size: int
    size_min: int
    size_max: int
    first_hub_ts: int
    last_hub_ts: int
    first_event_time: int
    last_event_time: int

    def rule(self) -> None:
        extents = (
            (1, self.events),
            (self.size_min, self.size_max),
            (self.first_hub_ts, self.last_hub_ts),
            (self.first_event_time, self.last_event_time),
        )
        if any(low > high for low, high in extents):
            raise Malformed("expected minimum <= maximum, got the reverse")


@dataclass(frozen=True, slots=True, kw_only=True)
class Statistics(WireMap):
    ver: Version = 1
    totals: Totals | None = None
    by_type: tuple[NamedCount, ...] = ()
    by_subject: tuple[NamedCount, ...] = ()
    by_producer: tuple[ProducerCount, ...] = ()
    by_origin: tuple[NamedCount, ...] = ()
    by_day: tuple[DayCount, ...] = ()

    def rule(self) -> None:
        named = (self.by_type, self.by_subject, self.by_origin)
        for rows in (*named, self.by_producer, self.by_day):
            verify_order(row.name for row in rows)


class RecorderStatistics(Overlay[Statistics]):
    name = "recorder.statistics"
    schemas = frozenset({RECORD_SCHEMA})
    kind = Statistics

    def read(self, event: Event) -> Statistics:
        record = read_event(event.schema, event.body, event.client_id)
        size = len(event.body)
        return Statistics(
            totals=Totals(
                events=1, size=size, size_min=size, size_max=size,
                first_hub_ts=event.hub_ts, last_hub_ts=event.hub_ts,
                first_event_time=record.event_time, last_event_time=record.event_time,
            ),
            by_type=(NamedCount(name=record.event_type, events=1, size=size),),
            by_subject=(NamedCount(name=record.subject_id, events=1, size=size),),
            by_producer=(ProducerCount(name=event.client_id, events=1, size=size),),
            by_origin=(NamedCount(name=record.origin, events=1, size=size),),
            by_day=(DayCount(name=event.hub_ts // _DAY, events=1, size=size),),
        )  # fmt: skip

    def join(self, left: Statistics, right: Statistics) -> Statistics:
        return Statistics(
            totals=_total(left.totals, right.totals),
            by_type=merged(left.by_type, right.by_type, _name, _sum),
            by_subject=merged(left.by_subject, right.by_subject, _name, _sum),
            by_producer=merged(left.by_producer, right.by_producer, _name, _sum),
            by_origin=merged(left.by_origin, right.by_origin, _name, _sum),
            by_day=merged(left.by_day, right.by_day, _name, _sum),
        )

    def part(self, state: Statistics, state_id: bytes) -> Statistics:
        """The counts of the producer with that key."""
        return Statistics(by_producer=tuple(c for c in state.by_producer if c.name == state_id))

    def document(self, state: Statistics) -> dict[str, Any]:
        return {
            "totals": state.totals and dict(zip(_TOTALS, state.totals.to_json(), strict=True)),
            "by_type": {c.name: _count_document(c) for c in state.by_type},
            "by_subject": {c.name: _count_document(c) for c in state.by_subject},
            "by_producer": {c.name.hex(): _count_document(c) for c in state.by_producer},
            "by_origin": {c.name: _count_document(c) for c in state.by_origin},
            "by_day": {_day(c.name): _count_document(c) for c in state.by_day},
        }


def across(streams: Mapping[str, Statistics]) -> dict[str, Any]:
    """The statistics of several streams together, and the totals of each."""
    overlay = RecorderStatistics()
    together = reduce(overlay.join, streams.values(), Statistics())
    totals = {name: overlay.document(streams[name])["totals"] for name in sorted(streams)}
    return overlay.document(together) | {"by_stream": totals}


_TOTALS: Final = tuple(Totals.__dataclass_fields__)


def _name(count: AnyCount) -> Any:
    return count.name


def _sum(left: CountT, right: CountT) -> CountT:
    return replace(left, events=left.events + right.events, size=left.size + right.size)


def _total(left: Totals | None, right: Totals | None) -> Totals | None:
    if left is None or right is None:
        return left or right
    return Totals(
        events=left.events + right.events,
        size=left.size + right.size,
        size_min=min(left.size_min, right.size_min),
        size_max=max(left.size_max, right.size_max),
        first_hub_ts=min(left.first_hub_ts, right.first_hub_ts),
        last_hub_ts=max(left.last_hub_ts, right.last_hub_ts),
        first_event_time=min(left.first_event_time, right.first_event_time),
        last_event_time=max(left.last_event_time, right.last_event_time),
    )


def _count_document(count: AnyCount) -> dict[str, int]:
    return {"events": count.events, "bytes": count.size}


def _day(days: int) -> str:
    """The date, or the number of days when that is beyond the calendar."""
    if days > date.max.toordinal() - _EPOCH:
        return str(days)
    return date.fromordinal(_EPOCH + days).isoformat()
