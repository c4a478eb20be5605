"""The inline engine gives what the most obvious answer gives, and says when it cannot."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from pathlib import Path
from typing import Any

import pytest

from recorder.index.engine import EngineLimits, QueryAnswer, QueryTooLarge, answer, plan
from recorder.index.reader import NotReached, snapshot
from recorder.index.tables import IndexHome, NoIndex
from recorder.query.descriptor import Descriptor, normalise
from recorder.query.digest import Searched, rows_hash
from recorder.query.evidence import WitnessCheck
from recorder.query.execute import run
from support.long_form import LONG
from support.recorder import index_logs, query_histories, query_oracle
from veen.errors import Untrusted

ENOUGH = EngineLimits(row_budget=10**6, max_rows=10**6)
SIZE, QUERIES = 300, 320


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """A log and its index, which have both gone on beyond the checkpoint of the queries."""
    log = index_logs.a_log(7, SIZE)
    log.index = index_logs.Index(tmp_path_factory.mktemp("engine") / "index", log)
    log.index.fill(log.checkpoint)
    return log


def a_query(**changes: Any) -> dict[str, Any]:
    whole = {"scope": ["record/users"], "filter": {}, "projection": ["*"]}
    return whole | {"evidence": {"mode": "full"}} | changes


def a_descriptor(query: dict[str, Any]) -> Descriptor:
    return normalise(query, query_id_if_missing="q")


def asked(world: Any, query: dict[str, Any], limits: EngineLimits = ENOUGH) -> QueryAnswer:
    return answer(world.index.home, a_descriptor(query), world.checkpoint, world.hub, limits)


def test_refuses_where_no_index_was_built(world: Any, tmp_path: Path) -> None:
    with pytest.raises(NoIndex, match="veen recorder index follow"):
        answer(IndexHome(tmp_path), a_descriptor(a_query()), world.checkpoint, world.hub, ENOUGH)


def test_refuses_a_checkpoint_it_has_not_learnt(world: Any) -> None:
    another = world.make_checkpoint(world.checkpoint.created_at + 9)
    with pytest.raises(NotReached, match="has not reached this checkpoint"):
        answer(world.index.home, a_descriptor(a_query()), another, world.hub, ENOUGH)


def test_refuses_a_stream_that_the_checkpoint_does_not_know(world: Any) -> None:
    with pytest.raises(NotReached, match="record/new"):
        asked(world, a_query(scope=["record/new"]))


def test_refuses_a_checkpoint_beyond_its_place(tmp_path: Path) -> None:
    log = index_logs.a_log(3, 60)
    later = log.checkpoint
    short = index_logs.Index(tmp_path / "index", index_logs.a_log(3, 40)).fill(later)
    with pytest.raises(NotReached, match="indexed up to"):
        answer(short.home, a_descriptor(a_query()), later, log.hub, ENOUGH)


def test_refuses_to_look_at_more_rows_than_its_budget(world: Any) -> None:
    last = world.checkpoint.end("record/users").last_seq
    asked(world, a_query(), EngineLimits(row_budget=last, max_rows=last))
    with pytest.raises(QueryTooLarge, match="looks at more than"):
        asked(world, a_query(), EngineLimits(row_budget=last - 1, max_rows=last))


def test_refuses_to_hold_more_rows_than_it_may(world: Any) -> None:
    count = asked(world, a_query()).outcome.event_count
    asked(world, a_query(), EngineLimits(row_budget=10**6, max_rows=count))
    with pytest.raises(QueryTooLarge, match="holds more than"):
        asked(world, a_query(), EngineLimits(row_budget=10**6, max_rows=count - 1))


def test_aggregates_hold_only_what_is_verified(world: Any) -> None:
    few = EngineLimits(row_budget=10**6, max_rows=1)
    counted = a_query(aggregate={"metrics": ["count"]}, evidence={"mode": "none"})
    question = asked(world, counted, few)
    assert question.outcome.rows == ({"count": question.outcome.event_count},)
    with pytest.raises(QueryTooLarge, match="holds more than"):
        asked(world, counted | {"evidence": {"mode": "full"}}, few)


@pytest.mark.parametrize(
    ("requested", "key"),
    [
        ({"subject_id": "user:1"}, "by_subject"),
        ({"event_type": ["login"]}, "by_type"),
        ({"origin": "worker"}, "by_origin"),
        ({"principal_id": "ab" * 32}, "by_principal_id"),
        ({}, None),
        ({"subject_id": "nobody", "event_type": ["login"]}, "by_subject_id_event_type"),
        ({"origin": "worker", "event_type": ["nothing"]}, "by_event_type_origin"),
    ],
)
def test_walks_by_the_key_that_has_the_fewest_rows(
    world: Any, requested: dict[str, Any], key: str | None
) -> None:
    with snapshot(world.index.home) as held:
        query = a_query(filter=requested, scope=list(query_histories.STREAMS))
        result = plan(held, a_descriptor(query), world.checkpoint, 10**6)
    assert result.key.name == key


def test_a_narrow_filter_fits_a_budget_that_the_stream_does_not(world: Any) -> None:
    expected = a_query(filter={"subject_id": "user:2"})
    count = asked(world, expected).outcome.event_count
    question = asked(world, expected, EngineLimits(row_budget=count, max_rows=count))
    assert question.outcome.event_count == count


@pytest.mark.parametrize(
    ("where", "source"),
    [
        ("subject_id = ? AND place BETWEEN ? AND ?", "INDEXED BY by_subject"),
        ("event_type = ? AND place BETWEEN ? AND ?", "INDEXED BY by_type"),
        ("origin = ? AND place BETWEEN ? AND ?", "INDEXED BY by_origin"),
    ],
)
def test_walks_each_key_in_the_order_of_rows_without_sorting(
    world: Any, where: str, source: str
) -> None:
    query = f"EXPLAIN QUERY PLAN SELECT * FROM events {source} WHERE {where} ORDER BY place"
    with snapshot(world.index.home) as held:
        steps = [row[-1] for row in held.db.execute(query, ("x", 1, 9))]
    assert len(steps) == 1
    assert "=? AND rowid>? AND rowid<?" in steps[0]


def test_agrees_with_the_oracle_on_every_byte(world: Any) -> None:
    stored = 0
    for query in query_histories.queries(11, QUERIES * (10 if LONG else 1)):
        due = query_oracle.answer(query, world.plain_items)
        outcome = asked(world, query | {"evidence": {"mode": "none"}}).outcome
        assert rows_hash(outcome.rows).rows_hash == query_oracle.digest(due), query
        assert outcome.event_count == len(query_oracle.matching(query, world.plain_items))
        stored += len(due)
    assert stored > 2_000


def test_samples_and_searches_what_a_run_in_memory_does(world: Any) -> None:
    sampled = 0
    for query in query_histories.queries(12, QUERIES if LONG else 60):
        descriptor = a_descriptor(query)
        due = run(descriptor, _searchable(world, descriptor), world.checkpoint.log_root)
        question = asked(world, query)
        assert question.outcome.rows == due.rows
        assert question.outcome.sampled == due.sampled
        assert question.searched == tuple(_searched(world, descriptor, name, due.unread)
                                       for name in descriptor.scope)  # fmt: skip
        for witness, item in zip(question.witnesses, question.outcome.sampled, strict=True):
            WitnessCheck(world.hub, world.checkpoint).event(witness, item.entry)
        sampled += len(question.witnesses)
    assert sampled > 300


def test_speaks_up_to_an_older_checkpoint_when_asked(tmp_path: Path) -> None:
    small, large = index_logs.a_log(5, 60), index_logs.a_log(5, 100)
    index = index_logs.Index(tmp_path / "index", large).fill(small.checkpoint, large.checkpoint)
    for log in (small, large):
        result = answer(index.home, a_descriptor(a_query()), log.checkpoint, log.hub, ENOUGH)
        events = [entry for entry in log.entries if entry.stream == "record/users" and entry.event]
        assert [sampled.entry for sampled in result.outcome.sampled] == events
        assert result.searched[0].to_seq == log.checkpoint.end("record/users").last_seq


def test_a_query_does_not_see_what_is_written_meanwhile(world: Any) -> None:
    with snapshot(world.index.home) as held:
        before = held.db.execute("SELECT count(*) FROM meta").fetchone()
        world.index.execute("INSERT INTO meta VALUES ('later', 1)")
        assert held.db.execute("SELECT count(*) FROM meta").fetchone() == before
    world.index.execute("DELETE FROM meta WHERE key = 'later'")


def test_fails_whole_when_another_hub_signed_the_receipts(world: Any) -> None:
    stranger = index_logs.another_hub()
    with pytest.raises(Untrusted):
        answer(
            world.index.home, a_descriptor(a_query()), world.checkpoint, stranger, ENOUGH
        )  # fmt: skip


def _searchable(world: Any, descriptor: Descriptor) -> list[Any]:
    spans = {name: _span(world, descriptor, name) for name in descriptor.scope}
    return [
        entry
        for entry in world.entries
        if entry.stream in spans and spans[entry.stream][0] <= entry.seq <= spans[entry.stream][1]
    ]


def _span(world: Any, descriptor: Descriptor, name: str) -> tuple[int, int]:
    times, expected = [1000 * time for time in world.times(name)], descriptor.filter
    first = 0 if expected.from_ms is None else bisect_left(times, expected.from_ms)
    last = len(times) if expected.to_ms is None else bisect_right(times, expected.to_ms)
    return first + 1, last


def _searched(world: Any, descriptor: Descriptor, name: str, unread: Any) -> Searched:
    first, last = _span(world, descriptor, name)
    root = world.checkpoint.end(name).mmr_root.hex()
    return Searched(
        stream=name, from_seq=first, to_seq=last, mmr_root=root, unread=unread.get(name, 0)
    )
