"""The core against the oracle: every generated query gives the same bytes."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import pytest

from recorder.query.descriptor import normalise
from recorder.query.digest import rows_hash
from recorder.query.execute import rows_of, run
from recorder.query.select import Cells, aggregate_rows, empty_cells, gather_cells, merge_cells
from support.recorder import query_histories, query_oracle
from veen.errors import Malformed
from veen.wire import canonical_json

LOG_ROOT = bytes(range(32))


@pytest.fixture(scope="module")
def history() -> list[Any]:
    return list(query_histories.history(1, 200))


def test_rows_are_those_of_the_oracle(
    history: list[Any], entries_of: Any, long_factor: int
) -> None:
    entries = entries_of(history)
    plain = [item.plain() for item in history]
    rows, empty = 0, 0
    for query in query_histories.queries(1, 400 * long_factor):
        expected = query_oracle.answer(query, plain)
        result = run(normalise(query, query_id_if_missing="-"), entries, LOG_ROOT)
        assert canonical_json.encode(list(result.rows)) == query_oracle.jcs(expected).encode(), (
            query
        )
        assert rows_hash(result.rows)[:2] == (query_oracle.digest(expected), len(expected))
        rows, empty = rows + len(expected), empty + (not expected)
    assert rows > 3_000 * long_factor
    assert empty < 200 * long_factor


def test_sampling_is_that_of_the_oracle(history: list[Any], entries_of: Any) -> None:
    entries = entries_of(history)
    plain = [item.plain() for item in history]
    for query in query_histories.queries(2, 100):
        result = run(normalise(query, query_id_if_missing="-"), entries, LOG_ROOT)
        count = len(query_oracle.matching(query, plain))
        mode = query["evidence"]["mode"]
        rate = {"none": 0.0, "full": 1.0}.get(mode, query["evidence"].get("sample_rate"))
        picks = [
            i for i in range(count) if query_oracle.sampled(query["query_id"], LOG_ROOT, rate, i)
        ]
        assert [sampled.index for sampled in result.sampled] == picks
        assert result.event_count == count


def test_aggregates_merge_in_any_order_and_any_grouping(
    history: list[Any], entries_of: Any
) -> None:
    draw = random.Random("orders")
    queries = [query for query in query_histories.queries(3, 60) if "aggregate" in query]
    assert len(queries) > 20
    for query in queries:
        descriptor = normalise(query, query_id_if_missing="-")
        assert descriptor.aggregate is not None
        entries = [entry for entry in entries_of(history) if entry.event is not None]
        expected = rows_of(descriptor, entries)
        draw.shuffle(entries)
        cuts = sorted(draw.sample(range(len(entries)), 5))
        parts = [entries[a:b] for a, b in zip([0, *cuts], [*cuts, None], strict=True)]
        merged: dict[bytes, Cells] = {}
        for part in parts:
            for key, cells in gather_cells(descriptor.aggregate, part).items():
                before = merged.get(key, empty_cells(descriptor.aggregate))
                merged[key] = merge_cells(cells, before)
        rows = aggregate_rows(descriptor.aggregate, merged)
        assert canonical_json.encode(rows) == canonical_json.encode(list(expected))


def test_refuses_entries_out_of_order(
    history: list[Any], entries_of: Any, a_descriptor: Callable[..., Any]
) -> None:
    entries = entries_of(history)
    entries[3], entries[4] = entries[4], entries[3]
    with pytest.raises(Malformed, match="out of the order"):
        run(a_descriptor(), entries, LOG_ROOT)


def test_refuses_an_entry_twice(
    history: list[Any], entries_of: Any, a_descriptor: Callable[..., Any]
) -> None:
    entries = entries_of(history)
    with pytest.raises(Malformed, match="out of the order"):
        run(a_descriptor(), [entries[0], *entries], LOG_ROOT)


def test_what_is_no_event_is_counted_by_stream(
    history: list[Any], entries_of: Any, a_descriptor: Callable[..., Any]
) -> None:
    result = run(a_descriptor(), entries_of(history), LOG_ROOT)
    unread = [item.stream for item in history if not item.is_event]
    assert unread
    assert dict(result.unread) == {item.stream: unread.count(item.stream) for item in history}
    assert result.event_count == len(history) - len(unread)
