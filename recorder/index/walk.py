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
from recorder.query.entry import Entry, Source
from recorder.query.filter import Filter
from veen.import_event import is_import
from veen.overlay.body import AnyItem
from veen.record_event import RecordEvent

_COLUMNS: Final = (
    "place, hub_ts, leaf_hash, subject_id, principal_id, event_type, event_time, origin, payload"
)
_COUNT: Final = 9
_SOURCE_COLUMNS: Final = "source_hub, source_stream, source_seq, source_ts, source_leaf"
_ALL_TIME: Final = (1 << 63) - 1
_MOST_TYPES: Final = 500


def walk(held: Snapshot, plan: Plan, wanted: Filter) -> Iterator[Entry]:
    """Events that may match. The tables leave out what cannot; the filter itself decides."""
    more, given = _narrowed(wanted)
    if plan.key.name is None:
        source = f"events NOT INDEXED WHERE fault IS NULL AND place BETWEEN ? AND ?{more}"
        runs = [_run(held, source, (*one.places, *given), one, wanted) for one in plan.ranges]
    else:
        by = f"INDEXED BY {plan.key.name} WHERE {plan.key.column} = ?"
        source = f"events {by} AND place BETWEEN ? AND ?{more}"
        runs = [
            _run(held, source, (value, *one.places, *given), one, wanted)
            for one in plan.ranges
            for value in plan.key.values
        ]
    return runs[0] if len(runs) == 1 else heapq.merge(*runs, key=attrgetter("order_key"))


def _run(
    held: Snapshot, source: str, given: tuple[Any, ...], one: Range, wanted: Filter
) -> Iterator[Entry]:
    if is_import(one.row.name):
        yield from _imported(held, source, given, one, wanted)
        return
    query = f"SELECT {_COLUMNS} FROM {source} ORDER BY place"  # noqa: S608
    for found in held.db.execute(query, given):
        yield _entry(one.row.name, found)


def _imported(
    held: Snapshot, source: str, given: tuple[Any, ...], one: Range, wanted: Filter
) -> Iterator[Entry]:
    """Events of an import stream by their place at the origin; only those of whole bundles."""
    last = wanted.last_second
    query = (
        f"SELECT found.*, {_SOURCE_COLUMNS} FROM (SELECT {_COLUMNS} FROM {source}) AS found "  # noqa: S608
        "JOIN origins ON origins.place = found.place "
        "WHERE complete_at <= ? AND source_ts BETWEEN ? AND ? "
        "ORDER BY source_ts, source_stream, source_seq, found.place"
    )
    bounds = (one.to_seq, wanted.first_second, _ALL_TIME if last is None else last)
    for found in held.db.execute(query, (*given, *bounds)):
        yield _entry(one.row.name, found[:_COUNT], Source(*found[_COUNT:]))


def _entry(name: str, found: tuple[Any, ...], source: Source | None = None) -> Entry:
    place, hub_ts, leaf_hash, subject, principal, kind, time, origin, payload = found
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
    return Entry(name, tables.seq_of(place), hub_ts, leaf_hash, event, source)


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
