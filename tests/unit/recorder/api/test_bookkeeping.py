"""What is recorded is recorded once, wherever a crash or a lost answer falls."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from recorder.service.database import Database, QueryState, Results
from recorder.service.recording import AccessAttempt, Audits, Bookkeeping
from support.recorder.memory_log import Log


@pytest.fixture
def database(tmp_path: Path) -> Database:
    return Database(tmp_path / "service.sqlite")


@pytest.fixture
def results(database: Database) -> Results:
    return Results(database)


@pytest.fixture
def log() -> Log:
    return Log()


@pytest.fixture
def start(database: Database, log: Log) -> Callable[[], Bookkeeping]:
    """A runner's books; called again, those of the next runner after a crash."""

    def make() -> Bookkeeping:
        recording: Any = log
        return Bookkeeping(
            Results(database), Audits(database), recording,
            principal_of=lambda _: None, clock_ms=lambda: 5_000,
        )  # fmt: skip

    return make


def add(results: Results, query_id: str) -> None:
    results.add(
        query_id=query_id, result_id=f"r-{query_id}", principal="alice",
        descriptor=f'{{"query_id":"{query_id}"}}'.encode(), now_ms=1_000,
    )  # fmt: skip


@pytest.mark.parametrize("restart", [False, True], ids=["goes on", "restarted"])
@pytest.mark.parametrize("fails", ["landed", "waits", "lost"])
def test_a_descriptor_is_recorded_once_or_its_query_is_gone(
    results: Results, log: Log, start: Callable[[], Bookkeeping], fails: str, restart: bool
) -> None:
    books = start()
    assert books.settle()
    add(results, "q-1")
    log.fails = fails
    books.record_requests()
    query = results.by_query("q-1")
    assert query is not None
    assert query.request_event is None
    books = start() if restart else books
    assert books.settle()
    books.record_requests()
    query = results.by_query("q-1")
    assert log.of("query.submitted") == ([] if fails == "lost" else [{"query_id": "q-1"}])
    assert (query is None) == (fails == "lost")
    assert query is None or query.request_event is not None


@pytest.mark.parametrize("restart", [False, True], ids=["goes on", "restarted"])
@pytest.mark.parametrize("fails", [None, "landed", "waits", "lost"])
def test_a_digest_is_recorded_exactly_once(
    results: Results, log: Log, start: Callable[[], Bookkeeping], fails: str | None, restart: bool
) -> None:
    books = start()
    assert books.settle()
    for query_id in ("q-1", "q-2"):
        add(results, query_id)
    books.record_requests()
    for query_id in ("q-1", "q-2"):
        results.begin(query_id, owner="me", engine="inline", now_ms=1)
        results.materialised(query_id, f'{{"result_id":"r-{query_id}"}}'.encode(), 0)
    log.fails = fails
    books.record_digests()
    books = start() if restart else books
    assert books.settle()
    books.record_digests()
    assert sorted(item["result_id"] for item in log.of("query.result")) == ["r-q-1", "r-q-2"]
    for query_id in ("q-1", "q-2"):
        query = results.by_query(query_id)
        assert query is not None
        assert query.state is QueryState.COMPLETED


def test_a_digest_does_not_change_once_it_is_materialised(
    results: Results, start: Callable[[], Bookkeeping]
) -> None:
    add(results, "q-1")
    books = start()
    books.settle()
    books.record_requests()
    results.begin("q-1", owner="me", engine="inline", now_ms=1)
    results.materialised("q-1", b'{"result_id":"one"}', 0)
    results.materialised("q-1", b'{"result_id":"two"}', 0)
    query = results.by_query("q-1")
    assert query is not None
    assert query.digest == b'{"result_id":"one"}'
    assert results.runnable("another owner") == []


def test_while_the_hub_is_away_queries_are_refused_and_audits_wait(
    results: Results, log: Log, start: Callable[[], Bookkeeping], database: Database
) -> None:
    log.is_away = True
    books = start()
    assert not books.settle()
    add(results, "q-1")
    books.cancel_new()
    assert results.by_query("q-1") is None
    Audits(database).add(an_attempt())
    books.record_audits()
    log.is_away = False
    assert books.settle()
    books.record_audits()
    assert len(log.of("query.audit")) == 1
    assert Audits(database).count() == 0


def test_audits_that_were_kept_are_not_kept_again(
    log: Log, start: Callable[[], Bookkeeping], database: Database
) -> None:
    audits = Audits(database)
    audits.add(an_attempt())
    begun = audits.next_batch(10)
    assert begun is not None
    log.store_audits(begun)
    audits.add(an_attempt())
    start().record_audits()
    assert len(log.of("query.audit")) == 2


def an_attempt() -> AccessAttempt:
    return AccessAttempt(
        requester="alice", subject_id="user:alice", identity=bytes(32), route="/x",
        resource="query:q",
        parameters={}, purpose=None, outcome="ok", status=200, source="127.0.0.1",
        result_digest=None, time_ms=1_000,
    )  # fmt: skip
