"""The plan of a query: the ranges it searches, and the key by which it walks them."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from typing import Final, NamedTuple

from recorder.index import tables
from recorder.index.snapshot import Snapshot
from recorder.index.tables import BadIndex, StreamRow
from recorder.query.descriptor import Descriptor
from recorder.query.digest import Searched
from recorder.query.filter import Filter
from veen.errors import VeenError
from veen.import_event import is_import
from veen.recorder_checkpoint import RecorderCheckpoint

_MOST_WALKS: Final = 1_000
_AT_ONCE: Final = 64
"""Below so many rows, looking for a better key costs more than walking them."""


class TooLarge(VeenError):
    """More than the inline engine may look at or hold; the other engine has no such bound."""


class ImportsTooLarge(VeenError):
    """As TooLarge, of a scope with import streams, which only the index can answer."""


class Range(NamedTuple):
    """What is searched of one stream, both ends included."""

    row: StreamRow
    from_seq: int
    to_seq: int

    @property
    def places(self) -> tuple[int, int]:
        return self.row.place(self.from_seq), self.row.place(self.to_seq)

    @property
    def size(self) -> int:
        return self.to_seq - self.from_seq + 1


class Key(NamedTuple):
    """A key of the tables, its column and the values to look up; without one, rows by place."""

    name: str | None
    column: str = ""
    values: tuple[str, ...] = ()


class Plan(NamedTuple):
    ranges: list[Range]
    key: Key
    searched: tuple[Searched, ...]


BY_PLACE: Final = Key(None)


def plan(
    held: Snapshot, descriptor: Descriptor, checkpoint: RecorderCheckpoint, row_budget: int
) -> Plan:
    """Ranges up to the checkpoint, and the key that walks the fewest rows of them.

    Raises TooLarge when the best one walks more than the budget, NotReached when the index is not
    as far as the checkpoint.
    """
    ranges, searched = [], []
    for name in descriptor.scope:
        row, end = held.reached(checkpoint, name)
        found = _range(held.db, row, end.last_seq, descriptor.filter)
        if is_import(name):
            # Its events are filtered by the time of their origin, which has another order.
            found = Range(row, 1, end.last_seq)
        ranges.append(found)
        searched.append(
            Searched(
                stream=name,
                from_seq=found.from_seq,
                to_seq=found.to_seq,
                mmr_root=end.mmr_root.hex(),
                unread=_unread(held.db, row, found.to_seq)
                - _unread(held.db, row, found.from_seq - 1),
            )
        )
    filled = [one for one in ranges if one.size]
    try:
        key = _choose(held.db, filled, descriptor.filter, row_budget)
    except TooLarge as error:
        if any(map(is_import, descriptor.scope)):
            raise ImportsTooLarge(
                f"the query looks at more than {row_budget} rows, whichever key it goes by, and "
                "import/ streams are answered by the index alone: name a subject, origin or event "
                "type, or raise [recorder.query] row_budget"
            ) from error
        raise
    return Plan(filled, key, tuple(searched))


def _range(db: sqlite3.Connection, row: StreamRow, last_seq: int, wanted: Filter) -> Range:
    from_seq, to_seq = 1, last_seq
    if wanted.first_second and last_seq:
        found = db.execute(
            "SELECT place FROM events INDEXED BY by_time WHERE stream_no = ? AND hub_ts >= ? "
            "ORDER BY hub_ts, place LIMIT 1",
            (row.stream_no, wanted.first_second),
        ).fetchone()
        from_seq = min(tables.seq_of(found[0]), last_seq + 1) if found else last_seq + 1
    if wanted.last_second is not None and last_seq:
        found = db.execute(
            "SELECT place FROM events INDEXED BY by_time WHERE stream_no = ? AND hub_ts <= ? "
            "ORDER BY hub_ts DESC, place DESC LIMIT 1",
            (row.stream_no, wanted.last_second),
        ).fetchone()
        to_seq = min(tables.seq_of(found[0]), last_seq) if found else 0
    return Range(row, from_seq, to_seq)


def _unread(db: sqlite3.Connection, row: StreamRow, seq: int) -> int:
    """How many messages up to a place are no events; every row keeps count."""
    if not seq:
        return 0
    found = db.execute("SELECT unread FROM events WHERE place = ?", (row.place(seq),)).fetchone()
    if found is None:
        raise BadIndex(f"{row.name}: the index lacks stream_seq {seq}; {tables.REMEDY}")
    return int(found[0])


def _choose(
    db: sqlite3.Connection, ranges: Sequence[Range], wanted: Filter, row_budget: int
) -> Key:
    key, best = BY_PLACE, sum(one.size for one in ranges)
    for other in _keys(wanted):
        if best <= _AT_ONCE:
            break
        count = _count(db, ranges, other, min(best, row_budget + 1))
        if count < best:
            key, best = other, count
    if best > row_budget:
        raise TooLarge(
            f"the query looks at more than {row_budget} rows, whichever key it goes by; narrow its "
            "time or subject, or let the spark engine run it"
        )
    return key


def _keys(wanted: Filter) -> list[Key]:
    found = []
    if wanted.subject_id is not None:
        found.append(Key("by_subject", "subject_id", (wanted.subject_id,)))
    if wanted.origin is not None:
        found.append(Key("by_origin", "origin", (wanted.origin,)))
    if wanted.event_type is not None:
        found.append(Key("by_type", "event_type", wanted.event_type))
    return found


def _count(db: sqlite3.Connection, ranges: Sequence[Range], key: Key, limit: int) -> int:
    """How many rows a key walks; counting stops at the limit."""
    if len(ranges) * len(key.values) > _MOST_WALKS:
        return limit
    query = (
        f"SELECT count(*) FROM (SELECT 1 FROM events INDEXED BY {key.name} "  # noqa: S608
        f"WHERE {key.column} = ? AND place BETWEEN ? AND ? LIMIT ?)"
    )
    total = 0
    for one in ranges:
        for value in key.values:
            (found,) = db.execute(query, (value, *one.places, limit - total)).fetchone()
            total += int(found)
            if total >= limit:
                return total
    return total
