"""What the query service does regularly costs the same after any number of queries."""

from __future__ import annotations

import json
import random
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from recorder.service.database import Database, RecordRef, Results
from recorder.service.errors import ErrorCode
from recorder.service.recording import Audits
from recorder.service.runner import Expiry
from recorder.service.supervisor import ServiceHome
from support.recorder.service_database import BEFORE_5

OWNER = "this runner"


def event(seq: int) -> RecordRef:
    return RecordRef("record/query/requests", seq, "00" * 32, f"rcpt-{seq:064x}")


class Service:
    """A database of the service, and the steps that a query can take."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.open()
        self.seq = 0

    def open(self) -> None:
        self.database = Database(self.path)
        self.results = Results(self.database)
        self.audits = Audits(self.database)

    def add(self, number: int) -> None:
        self.results.add(
            query_id=f"q-{number}", result_id=f"r-{number:032x}", principal="alice",
            descriptor=b"{}", now_ms=number,
        )  # fmt: skip

    def record(self, number: int) -> None:
        self.seq += 1
        self.results.begin_recording(f"q-{number}", self.seq - 1)
        self.results.recorded(f"q-{number}", event(self.seq))

    def begin(self, number: int) -> None:
        self.results.begin(f"q-{number}", owner=OWNER, engine="inline", now_ms=number)

    def complete(self, number: int) -> None:
        self.results.materialised(f"q-{number}", b"{}", 0)
        self.results.completed(f"q-{number}", event(self.seq), number)

    def whole(self, number: int) -> None:
        for step in (self.add, self.record, self.begin, self.complete):
            step(number)

    def many(self, count: int) -> None:
        """Completed queries, all in one transaction."""
        with self.database.changing() as db:
            db.executemany(
                "INSERT INTO queries (query_id, result_id, principal, descriptor, submitted, "
                "request_event) VALUES (?, ?, 'alice', '{}', ?, ?)",
                (
                    (f"q-{number}", f"r-{number:032x}", number, event(number).encode())
                    for number in range(count)
                ),
            )
            db.execute("UPDATE queries SET state = 'running', owner = 'earlier', digest = '{}'")
            db.execute(
                "UPDATE queries SET state = 'completed', result_event = request_event, "
                "finished = submitted"
            )
        self.seq = count

    @property
    def db(self) -> sqlite3.Connection:
        return self.database._connection()

    def steps(self, work: Callable[[Service], object]) -> int:
        """How many times ten virtual machine instructions of SQLite some work takes."""
        count = 0

        def tick() -> int:
            nonlocal count
            count += 1
            return 0

        self.db.set_progress_handler(tick, 10)
        work(self)
        self.db.set_progress_handler(None, 0)
        return count

    def traced(self, work: Callable[[Service], object]) -> list[str]:
        statements: list[str] = []
        self.db.set_trace_callback(statements.append)
        work(self)
        self.db.set_trace_callback(None)
        return statements


class Work(NamedTuple):
    name: str
    run: Callable[[Service], object]


REGULAR = (
    Work("unrecorded", lambda service: service.results.unrecorded()),
    Work("half recorded", lambda service: service.results.half_recorded()),
    Work("materialised", lambda service: service.results.materialised_only()),
    Work("runnable", lambda service: service.results.runnable(OWNER)),
    Work("last request", lambda service: service.results.last_seq("request_event")),
    Work("last result", lambda service: service.results.last_seq("result_event")),
    Work("counts", lambda service: service.results.counts()),
    Work("by result", lambda service: service.results.by_result(f"r-{3:032x}")),
    Work("by query", lambda service: service.results.by_query("q-3")),
    Work("audits", lambda service: service.audits.next_batch(500)),
    Work("counted", lambda service: service.audits.settle_counts(1)),
    Work("expire nothing", lambda service: service.results.expire(0, 0)),
    Work("removals", lambda service: service.results.unremoved(10)),
    Work("a whole query", lambda service: service.whole(10**6)),
)


@pytest.fixture(scope="module")
def services(tmp_path_factory: pytest.TempPathFactory) -> tuple[Service, Service]:
    small, large = (Service(tmp_path_factory.mktemp("service") / "db") for _ in range(2))
    small.many(20)
    large.many(20_000)
    return small, large


@pytest.mark.parametrize("work", REGULAR, ids=[work.name for work in REGULAR])
def test_costs_the_same_after_any_number_of_queries(
    services: tuple[Service, Service], work: Work
) -> None:
    small, large = services
    assert large.steps(work.run) <= small.steps(work.run) + 3


@pytest.mark.parametrize("work", REGULAR, ids=[work.name for work in REGULAR])
def test_scans_no_table_of_the_history(services: tuple[Service, Service], work: Work) -> None:
    service = services[1]
    for statement in service.traced(
        lambda service: work.run(service) if work.name != "a whole query" else None
    ):
        if statement.startswith(("SELECT", "UPDATE", "DELETE", "INSERT")):
            plan = [row[3] for row in service.db.execute(f"EXPLAIN QUERY PLAN {statement}")]
            scans = [line for line in plan if line.startswith(("SCAN queries", "SCAN expired"))]
            assert all("USING INDEX open_queries" in line for line in scans), (statement, plan)


def test_expiry_costs_what_expires(services: tuple[Service, Service], tmp_path: Path) -> None:
    small, large = services
    costs = [
        service.steps(lambda service: service.results.expire(5, 9)) for service in (small, large)
    ]
    assert costs[1] <= costs[0] + 3
    assert small.results.unremoved(9) == large.results.unremoved(9) != []


def naive_counts(db: sqlite3.Connection) -> dict[str, int]:
    return dict(db.execute("SELECT state, count(*) FROM queries GROUP BY state").fetchall())


def naive_last(db: sqlite3.Connection, column: str) -> int:
    events = [json.loads(row[0]) for row in db.execute(f"SELECT {column} FROM queries") if row[0]]
    return max((item["seq"] for item in events), default=0)


def verify(service: Service, now: int) -> None:
    """Compare with what the table of queries alone says."""
    counts = {name: count for name, count in service.results.counts().items() if count}
    assert counts == naive_counts(service.db)
    for column in ("request_event", "result_event"):
        assert service.results.last_seq(column) == naive_last(service.db, column)
    rows: list[Any] = service.db.execute("SELECT * FROM queries").fetchall()
    names = [item[0] for item in service.db.execute("SELECT * FROM queries LIMIT 0").description]
    queries = [dict(zip(names, row, strict=True)) for row in rows]
    pending = [query for query in queries if query["state"] == "pending"]
    assert {query.query_id for query in service.results.unrecorded()} == {
        query["query_id"] for query in pending if query["request_event"] is None
    }
    assert {query.query_id for query in service.results.materialised_only()} == {
        query["query_id"] for query in queries if query["state"] == "running" and query["digest"]
    }
    results = {query["result_id"]: query["finished"] for query in queries}
    assert {name for name in results if service.results.is_expired(name)} == {
        name for name, finished in results.items() if finished is not None and finished < now
    }


def step(service: Service, rng: random.Random, number: int) -> None:
    kind, query_id = rng.randrange(7), f"q-{number}"
    query = service.results.by_query(query_id)
    if query is None:
        service.add(number)
    elif query.has_ended:
        return
    elif kind == 0 and query.request_event is None:
        service.results.cancel(query_id)
    elif kind == 1:
        service.results.failed(query_id, ErrorCode.EXECUTION_FAILED, "no", number)
    elif query.request_event is None:
        service.record(number)
    elif query.owner is None:
        service.begin(number)
    elif query.digest is None:
        service.results.materialised(query_id, b"{}", 0)
    else:
        service.results.completed(query_id, event(service.seq), number)


@pytest.mark.parametrize("seed", range(6))
def test_says_what_the_queries_say(tmp_path: Path, seed: int) -> None:
    service, rng = Service(tmp_path / "db"), random.Random(seed)
    now = 0
    for turn in range(120):
        step(service, rng, rng.randrange(30))
        if turn % 20 == 7:
            now = max(now, rng.randrange(30))
        service.results.expire(now, turn)
        if turn % 40 == 5:
            with closing(sqlite3.connect(service.path)) as db:
                db.executescript(BEFORE_5)
            service.open()
        verify(service, now)


def test_a_database_of_version_4_is_migrated(tmp_path: Path) -> None:
    service = Service(tmp_path / "db")
    service.many(7)
    service.whole(100)
    service.add(101)
    service.results.expire(3, 9)
    with closing(sqlite3.connect(service.path)) as db:
        db.executescript(BEFORE_5)
    service.open()
    verify(service, 3)
    assert len(service.results.unremoved(10)) == 3
    service.results.expire(7, 9)
    assert len(service.results.unremoved(10)) == 7


def test_a_removal_that_was_interrupted_is_finished(tmp_path: Path) -> None:
    home = ServiceHome(tmp_path)
    for folder in (home.rows, home.spark):
        folder.mkdir(parents=True, exist_ok=True)
    service = Service(home.database)
    service.many(3)
    for number in range(3):
        (home.rows / f"r-{number:032x}").mkdir()
    service.results.expire(2, 9)
    (home.rows / f"r-{0:032x}").rmdir()
    Expiry(service.results, home, None, lambda: 0, lambda: 0.0).turn()
    assert [path.name for path in home.rows.iterdir()] == [f"r-{2:032x}"]
    assert service.results.unremoved(9) == []
