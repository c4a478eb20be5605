"""The inline engine: answers a query from the index, up to a recorder checkpoint (Query API 6, 8).

The plan of a query is the ranges to scan and the SQLite index to scan them by. Each stream is
scanned in row order and the streams are merged without sorting. The semantics of a query are
defined by ``recorder.query``; the engine only supplies the entries.
"""

from __future__ import annotations

import heapq
import sqlite3
from collections.abc import Iterable, Iterator, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from itertools import combinations, product
from operator import attrgetter
from typing import Any, Final, NamedTuple

from recorder.index import tables
from recorder.index.proofs import WitnessTerms, verified_witnesses
from recorder.index.reader import Snapshot, snapshot
from recorder.index.tables import BadIndex, IndexedStream, IndexHome
from recorder.query.descriptor import Descriptor
from recorder.query.digest import Searched
from recorder.query.evidence import Witness, is_sampled
from recorder.query.execute import QueryOutcome, Sampled, rows_of
from recorder.query.filter import Filter
from recorder.query.select import QueryEntry, SourcePlace, matches
from veen.errors import VeenError
from veen.events import RecordEvent, is_import
from veen.hub_identity import HubIdentity
from veen.recorder_checkpoint import RecorderCheckpoint
from veen.system.process_pool import IN_PROCESS, WorkerPool
from veen.wire.body import AnyItem

_MAX_SCANS: Final = 1_000
_FEW_ROWS: Final = 64
"""With fewer rows, searching for a better key costs more than scanning them."""
_COLUMNS: Final = (
    "place, hub_ts, leaf_hash, subject_id, principal_id, event_type, event_time, origin, payload"
)
_COLUMN_COUNT: Final = 9
_SOURCE_COLUMNS: Final = "source_hub, source_stream, source_seq, source_ts, source_leaf"
_MAX_TIME: Final = (1 << 63) - 1
_MAX_TYPES: Final = 500


class QueryTooLarge(VeenError):
    """The query exceeds the bounds of the inline engine; the Spark engine has none."""

    error_code = "TOO_LARGE"


class ImportsTooLarge(VeenError):
    """Like QueryTooLarge, for a scope with import streams, which only the index can answer."""


class SearchRange(NamedTuple):
    """The range of a stream that is searched, both ends included."""

    row: IndexedStream
    from_seq: int
    to_seq: int

    @property
    def places(self) -> tuple[int, int]:
        return self.row.place(self.from_seq), self.row.place(self.to_seq)

    @property
    def size(self) -> int:
        return self.to_seq - self.from_seq + 1


class Key(NamedTuple):
    """A key of the tables, its columns and the values to look up; without a name, rows by place."""

    name: str | None
    columns: tuple[str, ...] = ()
    values: tuple[tuple[str | bytes, ...], ...] = ()

    @property
    def condition(self) -> str:
        return " AND ".join(f"{column} = ?" for column in self.columns)


class QueryPlan(NamedTuple):
    ranges: list[SearchRange]
    key: Key
    searched: tuple[Searched, ...]


BY_PLACE: Final = Key(None)


def plan(
    held: Snapshot, descriptor: Descriptor, checkpoint: RecorderCheckpoint, row_budget: int
) -> QueryPlan:
    """Choose the ranges up to the checkpoint, and the key that scans the fewest rows.

    Raises QueryTooLarge when the best key scans more than the budget, NotReached when the index is
    not as far as the checkpoint.
    """
    ranges, searched = [], []
    for name in descriptor.scope:
        row, end = held.reached(checkpoint, name)
        search_range = _range(held.db, row, end.last_seq, descriptor.filter)
        if is_import(name):
            # Its events are filtered by the time at their origin, which is in another order.
            search_range = SearchRange(row, 1, end.last_seq)
        ranges.append(search_range)
        searched.append(
            Searched(
                stream=name,
                from_seq=search_range.from_seq,
                to_seq=search_range.to_seq,
                mmr_root=end.mmr_root.hex(),
                unread=_unread(held.db, row, search_range.to_seq)
                - _unread(held.db, row, search_range.from_seq - 1),
            )
        )
    filled = [range_ for range_ in ranges if range_.size]
    try:
        key = _choose(held.db, filled, descriptor.filter, row_budget)
    except QueryTooLarge as error:
        if any(map(is_import, descriptor.scope)):
            raise ImportsTooLarge(
                f"the query looks at more than {row_budget} rows, whichever key it goes by, and "
                "import/ streams are answered by the index alone: name a subject, origin or event "
                "type, or raise [recorder.query] row_budget"
            ) from error
        raise
    return QueryPlan(filled, key, tuple(searched))


def _range(
    db: sqlite3.Connection, row: IndexedStream, last_seq: int, filter_: Filter
) -> SearchRange:
    from_seq, to_seq = 1, last_seq
    if filter_.first_second and last_seq:
        first = db.execute(
            "SELECT place FROM events INDEXED BY by_time WHERE stream_no = ? AND hub_ts >= ? "
            "ORDER BY hub_ts, place LIMIT 1",
            (row.stream_no, filter_.first_second),
        ).fetchone()
        from_seq = min(tables.seq_of(first[0]), last_seq + 1) if first else last_seq + 1
    if filter_.last_second is not None and last_seq:
        last = db.execute(
            "SELECT place FROM events INDEXED BY by_time WHERE stream_no = ? AND hub_ts <= ? "
            "ORDER BY hub_ts DESC, place DESC LIMIT 1",
            (row.stream_no, filter_.last_second),
        ).fetchone()
        to_seq = min(tables.seq_of(last[0]), last_seq) if last else 0
    return SearchRange(row, from_seq, to_seq)


def _unread(db: sqlite3.Connection, row: IndexedStream, seq: int) -> int:
    """Count the messages up to a place that are not events; every row holds the count."""
    if not seq:
        return 0
    event = db.execute("SELECT unread FROM events WHERE place = ?", (row.place(seq),)).fetchone()
    if event is None:
        raise BadIndex(f"{row.name}: the index lacks stream_seq {seq}; {tables.REMEDY}")
    return int(event[0])


def _choose(
    db: sqlite3.Connection, ranges: Sequence[SearchRange], filter_: Filter, row_budget: int
) -> Key:
    key, best = BY_PLACE, sum(range_.size for range_ in ranges)
    for other in _keys(filter_, tables.keys(db), len(ranges)):
        if best <= _FEW_ROWS:
            break
        count = _count(db, ranges, other, min(best, row_budget + 1))
        if count < best:
            key, best = other, count
    if best > row_budget:
        raise QueryTooLarge(
            f"the query looks at more than {row_budget} rows, whichever key it goes by; narrow its "
            "time or subject, or let the spark engine run it"
        )
    return key


def _keys(filter_: Filter, known: AbstractSet[str], streams: int) -> list[Key]:
    """The keys that a filter can use: those of two columns if there are any, else of one."""
    named = {column: _values(filter_, column) for column in tables.KEYED}
    columns = [column for column, values in named.items() if values]
    for size in (2, 1):
        keys = [
            Key(tables.key_name(chosen), chosen, tuple(product(*map(named.__getitem__, chosen))))
            for chosen in combinations(columns, size)
            if tables.key_name(chosen) in known
        ]
        if usable := [key for key in keys if streams * len(key.values) <= _MAX_SCANS]:
            return usable
    return []


def _values(filter_: Filter, column: str) -> tuple[str | bytes, ...]:
    """The values of a column that a filter accepts; none if it does not name the column."""
    value = getattr(filter_, column)
    return () if value is None else value if isinstance(value, tuple) else (value,)


def _count(db: sqlite3.Connection, ranges: Sequence[SearchRange], key: Key, limit: int) -> int:
    """Count the rows that a key scans, up to the limit."""
    query = (
        f"SELECT count(*) FROM (SELECT 1 FROM events INDEXED BY {key.name} "  # noqa: S608
        f"WHERE {key.condition} AND place BETWEEN ? AND ? LIMIT ?)"
    )
    total = 0
    for range_ in ranges:
        for values in key.values:
            (count,) = db.execute(query, (*values, *range_.places, limit - total)).fetchone()
            total += int(count)
            if total >= limit:
                return total
    return total


def walk(held: Snapshot, plan: QueryPlan, filter_: Filter) -> Iterator[QueryEntry]:
    """Yield events that may match, in row order.

    SQL excludes most, and the filter itself decides.
    """
    conditions, parameters = _sql_conditions(filter_, plan.key)
    if plan.key.name is None:
        source = f"events NOT INDEXED WHERE fault IS NULL AND place BETWEEN ? AND ?{conditions}"
        runs = [
            _run(held, source, (*range_.places, *parameters), range_, filter_)
            for range_ in plan.ranges
        ]
    else:
        by = f"INDEXED BY {plan.key.name} WHERE {plan.key.condition}"
        source = f"events {by} AND place BETWEEN ? AND ?{conditions}"
        runs = [
            _run(held, source, (*values, *range_.places, *parameters), range_, filter_)
            for range_ in plan.ranges
            for values in plan.key.values
        ]
    return runs[0] if len(runs) == 1 else heapq.merge(*runs, key=attrgetter("order_key"))


def _run(
    held: Snapshot, source: str, parameters: tuple[Any, ...], range_: SearchRange, filter_: Filter
) -> Iterator[QueryEntry]:
    if is_import(range_.row.name):
        yield from _imported(held, source, parameters, range_, filter_)
        return
    query = f"SELECT {_COLUMNS} FROM {source} ORDER BY place"  # noqa: S608
    for row in held.db.execute(query, parameters):
        yield _entry(range_.row.name, row)


def _imported(
    held: Snapshot, source: str, parameters: tuple[Any, ...], range_: SearchRange, filter_: Filter
) -> Iterator[QueryEntry]:
    """Yield events of an import stream in the order of their origin.

    Only events of complete bundles are included.
    """
    last = filter_.last_second
    query = (
        f"SELECT event.*, {_SOURCE_COLUMNS} FROM (SELECT {_COLUMNS} FROM {source}) AS event "  # noqa: S608
        "JOIN origins ON origins.place = event.place "
        "WHERE complete_at <= ? AND source_ts BETWEEN ? AND ? "
        "ORDER BY source_ts, source_stream, source_seq, event.place"
    )
    bounds = (range_.to_seq, filter_.first_second, _MAX_TIME if last is None else last)
    for row in held.db.execute(query, (*parameters, *bounds)):
        yield _entry(range_.row.name, row[:_COLUMN_COUNT], SourcePlace(*row[_COLUMN_COUNT:]))


def _entry(name: str, row: tuple[Any, ...], source: SourcePlace | None = None) -> QueryEntry:
    place, hub_ts, leaf_hash, subject, principal, kind, time, origin, payload = row
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
    return QueryEntry(name, tables.seq_of(place), hub_ts, leaf_hash, event, source)


def _sql_conditions(filter_: Filter, key: Key) -> tuple[str, tuple[Any, ...]]:
    """The parts of a filter that SQL can evaluate and the key does not, with their parameters."""
    parts: list[str] = []
    parameters: list[Any] = []
    for column in ("subject_id", "origin", "principal_id"):
        value = getattr(filter_, column)
        if value is not None and column not in key.columns:
            # The unary plus keeps SQLite from using the index of this column.
            parts.append(f" AND +{column} = ?")
            parameters.append(value)
    types = filter_.event_type if "event_type" not in key.columns else None
    if types is not None and len(types) <= _MAX_TYPES:
        parts.append(f" AND +event_type IN ({', '.join('?' * len(types))})")
        parameters += types
    return "".join(parts), tuple(parameters)


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineLimits:
    """How many rows of the index a query may scan, and how many it may hold in memory."""

    row_budget: int = 100_000
    max_rows: int = 100_000


@dataclass(frozen=True, slots=True, kw_only=True)
class QueryAnswer:
    """The answer of the inline engine.

    ``witnesses`` are those of ``outcome.sampled``, in order, and verified.
    """

    outcome: QueryOutcome
    searched: tuple[Searched, ...]
    witnesses: tuple[Witness, ...]


def answer(
    home: IndexHome,
    descriptor: Descriptor,
    checkpoint: RecorderCheckpoint,
    hub: HubIdentity,
    limits: EngineLimits,
    beside: WorkerPool = IN_PROCESS,
) -> QueryAnswer:
    """Answer a query as of the checkpoint, completely, or raise.

    Witnesses are verified by the worker pool ``beside``. ``checkpoint`` has been verified to be of
    ``hub``. Raises NotReached, QueryTooLarge, IndexAlarm, and Untrusted where a sampled event is
    not what was recorded.
    """
    with snapshot(home) as held:
        held.verify_no_alarms()
        query_plan = plan(held, descriptor, checkpoint, limits.row_budget)
        matcher = _Matcher(descriptor, checkpoint.log_root, limits.max_rows)
        rows = rows_of(descriptor, matcher.through(walk(held, query_plan, descriptor.filter)))
        witnesses = verified_witnesses(
            held,
            {range_.row.name: range_.row for range_ in query_plan.ranges},
            matcher.sampled,
            WitnessTerms(hub, checkpoint),
            beside,
        )
    unread = {searched.stream: searched.unread for searched in query_plan.searched}
    outcome = QueryOutcome(rows, matcher.count, tuple(matcher.sampled), unread)
    return QueryAnswer(outcome=outcome, searched=query_plan.searched, witnesses=witnesses)


class _Matcher:
    """Passes matching events on, counts them, and collects the sampled ones."""

    def __init__(self, descriptor: Descriptor, log_root: bytes, max_rows: int) -> None:
        self.count = 0
        self.sampled: list[Sampled] = []
        self._descriptor = descriptor
        self._log_root = log_root
        self._max_rows = max_rows

    def through(self, entries: Iterable[QueryEntry]) -> Iterator[QueryEntry]:
        descriptor, policy = self._descriptor, self._descriptor.evidence
        for entry in entries:
            if not matches(descriptor, entry):
                continue
            if is_sampled(policy, descriptor.query_id, self._log_root, self.count):
                self.sampled.append(Sampled(self.count, entry))
            self.count += 1
            self._verify_size()
            yield entry

    def _verify_size(self) -> None:
        """Of an aggregate, only the sampled events are held in memory."""
        held = self.count if self._descriptor.aggregate is None else len(self.sampled)
        if held > self._max_rows:
            raise QueryTooLarge(
                f"the result holds more than {self._max_rows} events; narrow it, or let the spark "
                "engine run it"
            )
