"""The entries of a plan in the order of rows: each stream by its key, merged without sorting."""

from __future__ import annotations

import heapq
from collections.abc import Iterator
from operator import attrgetter
from typing import Any, Final

from recorder.index import tables
from recorder.index.plan import Plan, Range
from recorder.index.snapshot import Snapshot
from recorder.index.tables import BadIndex
from recorder.query.entry import Entry
from recorder.query.filter import Filter
from veen.overlay.body import AnyItem
from veen.record_event import RecordEvent

_COLUMNS: Final = (
    "place, hub_ts, leaf_hash, subject_id, principal_id, event_type, event_time, origin, payload"
)
_MOST_TYPES: Final = 500


def walk(held: Snapshot, plan: Plan, wanted: Filter) -> Iterator[Entry]:
    """Events that may match. The tables leave out what cannot; the filter itself decides."""
    more, given = _narrowed(wanted)
    if plan.key.name is None:
        source = f"events NOT INDEXED WHERE fault IS NULL AND place BETWEEN ? AND ?{more}"
        runs = [_run(held, source, (*one.places, *given), one) for one in plan.ranges]
    else:
        by = f"INDEXED BY {plan.key.name} WHERE {plan.key.column} = ?"
        source = f"events {by} AND place BETWEEN ? AND ?{more}"
        runs = [
            _run(held, source, (value, *one.places, *given), one)
            for one in plan.ranges
            for value in plan.key.values
        ]
    return runs[0] if len(runs) == 1 else heapq.merge(*runs, key=attrgetter("order_key"))


def _run(held: Snapshot, source: str, given: tuple[Any, ...], one: Range) -> Iterator[Entry]:
    name = one.row.name
    query = f"SELECT {_COLUMNS} FROM {source} ORDER BY place"  # noqa: S608
    for (
        place,
        hub_ts,
        leaf_hash,
        subject,
        principal,
        kind,
        time,
        origin,
        payload,
    ) in held.db.execute(query, given):
        if payload is None:
            raise BadIndex(f"{name} {tables.seq_of(place)} has no payload; {tables.REMEDY}")
        event = RecordEvent(
            subject_id=subject,
            principal_id=principal,
            event_type=kind,
            event_time=time,
            origin=origin,
            payload=AnyItem(payload),
        )
        yield Entry(name, tables.seq_of(place), hub_ts, leaf_hash, event)


def _narrowed(wanted: Filter) -> tuple[str, tuple[Any, ...]]:
    """The plain parts of a filter as the tables can check them."""
    parts: list[str] = []
    given: list[Any] = []
    for column in ("subject_id", "origin", "principal_id"):
        value = getattr(wanted, column)
        if value is not None:
            # The sign keeps SQLite from walking by this column's own key.
            parts.append(f" AND +{column} = ?")
            given.append(value)
    if wanted.event_type is not None and len(wanted.event_type) <= _MOST_TYPES:
        parts.append(f" AND +event_type IN ({', '.join('?' * len(wanted.event_type))})")
        given += wanted.event_type
    return "".join(parts), tuple(given)
