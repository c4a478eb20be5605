"""The runner by itself: which engine a query goes to, and how each way to fail ends."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from threading import Event
from typing import Any

import pytest
from prometheus_client import CollectorRegistry

from recorder.index.engine import QueryTooLarge
from recorder.query.descriptor import Descriptor, normalise
from recorder.service.database import Database, Query, QueryState, Results
from recorder.service.recording import Audits, Bookkeeping
from recorder.service.runner import MAX_ATTEMPTS, QueryRunner
from recorder.service.supervisor import runner_metrics
from support.recorder.memory_log import Log
from veen.errors import Untrusted
from veen.system.process_pool import PoolBroken


class Digest:
    def __init__(self, result_id: str) -> None:
        self._result_id = result_id

    def encode(self) -> bytes:
        return f'{{"result_id":"{self._result_id}"}}'.encode()


class Engine:
    """Gives a digest, or fails as it is told."""

    def __init__(self, error: BaseException | None = None) -> None:
        self.error = error
        self.may_go_on = Event()
        self.may_go_on.set()
        self.runs = 0

    def checkpoint(self, _: Descriptor) -> None:
        return None

    def run(self, _: Descriptor, result_id: str, *__: None) -> Digest:
        self.runs += 1
        self.may_go_on.wait(20)
        if self.error is not None:
            raise self.error
        return Digest(result_id)

    def stop(self) -> None:
        return None


@pytest.fixture
def results(tmp_path: Path) -> Results:
    return Results(Database(tmp_path / "service.sqlite"))


@pytest.fixture
def log() -> Log:
    return Log()


Make = Callable[..., QueryRunner]


@pytest.fixture
def runner(tmp_path: Path, log: Log) -> Make:
    def make(inline: Engine, spark: Engine | None = None, owner: str = "me") -> QueryRunner:
        database = Database(tmp_path / "service.sqlite")
        recording: Any = log
        books = Bookkeeping(
            Results(database), Audits(database), recording,
            principal_of=lambda _: None, clock_ms=lambda: 5_000,
        )  # fmt: skip
        engines: list[Any] = [inline, spark]
        return QueryRunner(
            Results(database), books, *engines, owner=owner, clock_ms=lambda: 5_000,
            metrics=runner_metrics(CollectorRegistry()), done=lambda: None,
        )  # fmt: skip

    return make


def add(results: Results, query_id: str = "q-1") -> None:
    value = {
        "scope": ["record/app/http"], "filter": {}, "projection": ["*"],
        "evidence": {"mode": "none"},
    }  # fmt: skip
    descriptor = normalise(value, query_id_if_missing=query_id).encode()
    results.add(
        query_id=query_id, result_id=f"r-{query_id}", principal="alice", descriptor=descriptor,
        now_ms=1_000,
    )  # fmt: skip


def ended(runner: QueryRunner, results: Results, query_id: str = "q-1") -> Query:
    deadline = time.monotonic() + 20
    while True:
        runner.turn()
        query = results.by_query(query_id)
        assert query is not None
        if query.has_ended:
            runner.close()
            return query
        assert time.monotonic() < deadline


def die(runner: Make, owner: str) -> None:
    """Begin what there is, and take no notice of how it ends."""
    engine = Engine()
    engine.may_go_on.clear()
    dying = runner(engine, owner=owner)
    dying.turn()
    engine.may_go_on.set()
    dying.close()


def test_a_query_is_recorded_before_it_is_run(results: Results, runner: Make, log: Log) -> None:
    add(results)
    result = ended(runner(Engine()), results)
    assert (result.state, result.engine) == (QueryState.COMPLETED, "inline")
    assert [event.event_type for event in log.events] == ["query.submitted", "query.result"]


def test_what_is_too_large_goes_to_spark(results: Results, runner: Make) -> None:
    add(results)
    inline, spark = Engine(QueryTooLarge("too many")), Engine()
    result = ended(runner(inline, spark), results)
    assert (result.state, result.engine, spark.runs) == (QueryState.COMPLETED, "spark", 1)
    assert result.attempts == 1


def test_what_is_too_large_fails_without_spark(results: Results, runner: Make, log: Log) -> None:
    add(results)
    result = ended(runner(Engine(QueryTooLarge("too many rows"))), results)
    assert (result.state, result.error_code) == (QueryState.FAILED, "execution_failed")
    assert log.of("query.result") == []


def test_evidence_that_does_not_hold_fails_and_records_no_digest(
    results: Results, runner: Make, log: Log
) -> None:
    add(results)
    result = ended(runner(Engine(Untrusted("record/app/http 7")), Engine()), results)
    assert (result.state, result.message) == (QueryState.FAILED, "record/app/http 7")
    assert log.of("query.result") == []


def test_a_fault_of_our_own_is_not_reported_in_detail(results: Results, runner: Make) -> None:
    add(results)
    result = ended(runner(Engine(ZeroDivisionError("private"))), results)
    assert result.state is QueryState.FAILED
    assert "private" not in (result.message or "")


def test_a_query_of_a_dead_runner_is_run_again_under_the_same_ids(
    results: Results, runner: Make, log: Log
) -> None:
    add(results)
    die(runner, "dead")
    before = results.by_query("q-1")
    assert before is not None
    assert before.state is QueryState.RUNNING
    result = ended(runner(Engine(), owner="next"), results)
    assert (result.state, result.result_id, result.attempts) == (QueryState.COMPLETED, "r-q-1", 2)
    assert len(log.of("query.submitted")) == len(log.of("query.result")) == 1


def test_a_query_that_ends_every_runner_is_given_up(results: Results, runner: Make) -> None:
    add(results)
    for number in range(MAX_ATTEMPTS):
        die(runner, f"dead-{number}")
    result = ended(runner(Engine(), owner="last"), results)
    assert result.state is QueryState.FAILED
    assert "interrupted" in (result.message or "")


def test_a_process_that_verified_beside_and_died_fails_no_query(
    results: Results, runner: Make
) -> None:
    """The runner ends instead, and the one after it runs the query again."""
    add(results)
    broken = runner(Engine(PoolBroken("gone")), owner="broken")
    with pytest.raises(PoolBroken):
        ended(broken, results)
    broken.close()
    before = results.by_query("q-1")
    assert before is not None
    assert before.state is QueryState.RUNNING
    assert ended(runner(Engine(), owner="next"), results).state is QueryState.COMPLETED
