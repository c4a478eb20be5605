"""Every predicate of a query, and every pair of them, is answered by a key of the index."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import combinations
from pathlib import Path
from typing import Any

import pytest

from recorder.index import tables
from recorder.index.engine import (
    EngineLimits,
    QueryPlan,
    SearchRange,
    _choose,
    answer,
    plan,
    walk,
)
from recorder.index.proofs import check_checkpoint
from recorder.index.reader import Snapshot, snapshot
from recorder.query.descriptor import Descriptor, normalise
from recorder.query.digest import rows_hash
from recorder.query.filter import Filter
from support.recorder import index_logs, query_histories, query_oracle

ENOUGH = EngineLimits(row_budget=10**6, max_rows=10**6)
COMPOSITE = (("principal_id",), *combinations(tables.KEYED, 2))
OF_AN_EARLIER_RELEASE = 2
"""The schema without the keys of principals and of pairs."""
PREDICATES: dict[str, Any] = {
    "subject_id": "user:1",
    "event_type": ["login", "logout"],
    "origin": "worker",
    "principal_id": query_histories.principal(1),
    "time": {"from": "2026-01-01T00:00:00Z", "to": None},
}


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Any:
    log = index_logs.a_log(7, 400)
    log.index = index_logs.Index(tmp_path_factory.mktemp("keys") / "index", log)
    log.index.fill(log.checkpoint)
    return log


def a_descriptor(
    filter_: dict[str, Any], scope: tuple[str, ...] = query_histories.STREAMS
) -> Descriptor:
    query = {"scope": list(scope), "filter": filter_, "projection": ["*"]}
    return normalise(query | {"evidence": {"mode": "none"}}, query_id_if_missing="q")


def put_back(index: Any, schema: int) -> None:
    """Make the index one of an earlier release, or of a migration that was killed."""
    for columns in COMPOSITE[schema - OF_AN_EARLIER_RELEASE :]:
        index.execute(f"DROP INDEX {tables.key_name(columns)}")
    index.execute(f"PRAGMA user_version = {schema}")


def verify_answers(log: Any, count: int) -> None:
    for query in query_histories.queries(23, count):
        descriptor = normalise(query | {"evidence": {"mode": "none"}}, query_id_if_missing="q")
        outcome = answer(log.index.home, descriptor, log.checkpoint, log.hub, ENOUGH).outcome
        due = query_oracle.answer(query, log.plain_items)
        assert rows_hash(outcome.rows).rows_hash == query_oracle.digest(due), query


@pytest.mark.parametrize("schema", [2, 3, 5, 8])
def test_an_earlier_index_answers_and_is_migrated_from_where_it_was(
    tmp_path: Path, schema: int
) -> None:
    log = index_logs.a_log(7, 120)
    log.index = index_logs.Index(tmp_path / "index", log)
    log.index.fill(log.checkpoint)
    put_back(log.index, schema)
    verify_answers(log, 40)
    with log.index.writer() as writer:
        names = tables.keys(writer.db)
        check_checkpoint(writer)
    assert {tables.key_name(columns) for columns in COMPOSITE} <= names
    verify_answers(log, 40)


def test_a_migration_that_is_killed_goes_on_with_its_step(tmp_path: Path) -> None:
    log = index_logs.a_log(7, 60)
    log.index = index_logs.Index(tmp_path / "index", log)
    log.index.fill(log.checkpoint)
    put_back(log.index, 4)
    # The step was written, and the power failed before its number.
    log.index.execute("CREATE INDEX by_subject_id_origin ON events (subject_id, origin) "
                      "WHERE subject_id IS NOT NULL")  # fmt: skip
    with log.index.writer() as writer:
        assert tables.key_name(("origin", "principal_id")) in tables.keys(writer.db)
    verify_answers(log, 20)


def chosen(held: Snapshot, log: Any, descriptor: Descriptor) -> Any:
    return plan(held, descriptor, log.checkpoint, 10**6)


@contextmanager
def traced(held: Snapshot) -> Iterator[list[str]]:
    statements: list[str] = []
    held.db.set_trace_callback(statements.append)
    yield statements
    held.db.set_trace_callback(None)


@pytest.mark.parametrize(
    "names", [chosen for size in range(6) for chosen in combinations(PREDICATES, size)], ids=str
)
def test_no_predicate_scans_or_sorts_the_events(world: Any, names: tuple[str, ...]) -> None:
    descriptor = a_descriptor({name: PREDICATES[name] for name in names})
    with snapshot(world.index.home) as held:
        with traced(held) as statements:
            query_plan = chosen(held, world, descriptor)
            list(walk(held, query_plan, descriptor.filter))
        assert len(statements) > len(query_histories.STREAMS)
        for statement in statements:
            steps = [row[3] for row in held.db.execute(f"EXPLAIN QUERY PLAN {statement}")]
            assert not [step for step in steps if step.startswith("SCAN events")], statement
            assert not [step for step in steps if "TEMP B-TREE" in step], statement


@pytest.mark.parametrize("size", [1, 2, 3, 4])
def test_a_filter_takes_a_key_of_as_many_columns_as_there_is(world: Any, size: int) -> None:
    for names in combinations(tables.KEYED, size):
        descriptor = a_descriptor({name: PREDICATES[name] for name in names})
        with snapshot(world.index.home) as held:
            assert len(chosen(held, world, descriptor).key.columns) == min(size, 2)


EVENT = "INSERT INTO events VALUES (?, ?, 1, zeroblob(32), 0, NULL, ?, ?, ?, 1, ?, x'a0')"
COMMON: dict[str, Any] = {
    "subject_id": "s", "principal_id": b"p" * 32, "event_type": "t", "origin": "o",
}  # fmt: skip
BOTH = 5


def add_events(home: tables.IndexHome, pair: tuple[str, str], count: int) -> None:
    """Events of which each has one value of a pair, and a few have both."""
    with tables.connected(home.current(), writable=True) as db, tables.transaction(db):
        (stream_no,) = db.execute("SELECT max(stream_no) FROM streams").fetchone()
        db.execute("DELETE FROM events WHERE stream_no = ?", (stream_no,))
        for number in range(count):
            values = dict(COMMON)
            if number >= BOTH:
                absent = pair[number % 2]
                values[absent] = b"x" * 32 if absent == "principal_id" else "x"
            db.execute(EVENT, (tables.place(stream_no, 1 + number), stream_no, *values.values()))


def steps(db: sqlite3.Connection, work: Callable[[], object]) -> int:
    """How many times ten virtual machine instructions of SQLite some work takes."""
    count = 0

    def tick() -> int:
        nonlocal count
        count += 1
        return 0

    db.set_progress_handler(tick, 10)
    work()
    db.set_progress_handler(None, 0)
    return count


def cost(home: tables.IndexHome, pair: tuple[str, str], count: int) -> int:
    """The cost of a query for both values, when each of them is frequent."""
    named: dict[str, Any] = {name: COMMON[name] for name in pair}
    if "event_type" in named:
        named["event_type"] = (named["event_type"],)
    filter_ = Filter(**named)
    with snapshot(home) as held:
        row = max(held.streams(), key=lambda row: row.stream_no)
        ranges = [SearchRange(row, 1, count)]

        def work() -> None:
            key = _choose(held.db, ranges, filter_, 10**6)
            assert key.columns == pair
            assert len(list(walk(held, QueryPlan(ranges, key, ()), filter_))) == BOTH

        return steps(held.db, work)


@pytest.mark.parametrize("pair", list(combinations(tables.KEYED, 2)), ids=str)
def test_a_pair_costs_what_it_matches_in_any_history(tmp_path: Path, pair: tuple[str, str]) -> None:
    log = index_logs.a_log(7, 30)
    index = index_logs.Index(tmp_path / "index", log).fill(log.checkpoint)
    costs = []
    for count in (200, 5_000):
        add_events(index.home, pair, count)
        costs.append(cost(index.home, pair, count))
    assert costs[1] <= costs[0] + 1
