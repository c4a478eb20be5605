"""What the statistics of a recorder count, and how streams are put together."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from support.overlay import overlay_histories
from veen.errors import Malformed
from veen.overlay.overlay import Event, fold_events
from veen.overlay.statistics import RecorderStatistics, Statistics, across

CLIENT, OTHER = bytes([1]) * 32, bytes([2]) * 32
Records = Callable[..., Event]


@pytest.fixture
def records(an_event: Callable[..., Event]) -> Records:
    def build(at: int, hub_ts: int, client_id: bytes = CLIENT, **changes: Any) -> Event:
        body = {
            "subject_id": "user:1", "principal_id": client_id, "event_type": "login",
            "event_time": 5, "origin": "web", "payload": "",
        }  # fmt: skip
        return an_event(
            overlay_histories.RECORD, body | changes, at, hub_ts=hub_ts, client_id=client_id
        )

    return build


def folded(*events: Event) -> Statistics:
    return fold_events(RecorderStatistics(), events).state


def test_events_and_bytes_are_counted_under_each_name(records: Records) -> None:
    first = records(1, 86_399)
    second = records(2, 86_400, OTHER, event_type="logout", event_time=3, payload="x" * 50)
    document = RecorderStatistics().document(folded(first, second))
    small, large = len(first.body), len(second.body)
    assert document["totals"] == {
        "events": 2, "size": small + large, "size_min": small, "size_max": large,
        "first_hub_ts": 86_399, "last_hub_ts": 86_400, "first_event_time": 3, "last_event_time": 5,
    }  # fmt: skip
    item, other = {"events": 1, "bytes": small}, {"events": 1, "bytes": large}
    both = {"events": 2, "bytes": small + large}
    assert document["by_type"] == {"login": item, "logout": other}
    assert document["by_subject"] == {"user:1": both}
    assert document["by_producer"] == {CLIENT.hex(): item, OTHER.hex(): other}
    assert document["by_origin"] == {"web": both}
    assert document["by_day"] == {"1970-01-01": item, "1970-01-02": other}


def test_an_event_that_names_another_than_who_signed_it_is_counted_as_malformed(
    records: Records,
) -> None:
    result = fold_events(RecorderStatistics(), [records(1, 0, OTHER, principal_id=CLIENT)])
    assert result.state == Statistics()
    assert result.skipped.malformed.count == 1


def test_a_day_beyond_the_calendar_is_a_number(records: Records) -> None:
    document = RecorderStatistics().document(folded(records(1, 2**64 - 1)))
    assert list(document["by_day"]) == [str((2**64 - 1) // 86_400)]


def test_nothing_has_no_totals() -> None:
    assert RecorderStatistics().document(Statistics())["totals"] is None


def test_streams_are_counted_together_and_apart(records: Records) -> None:
    streams = {
        "record/b": folded(records(1, 100), records(2, 200)),
        "record/a": folded(records(1, 50, OTHER)),
        "record/none": Statistics(),
    }
    result = across(streams)
    assert result["totals"]["events"] == 3
    assert (result["totals"]["first_hub_ts"], result["totals"]["last_hub_ts"]) == (50, 200)
    assert list(result["by_stream"]) == ["record/a", "record/b", "record/none"]
    assert result["by_stream"]["record/b"]["events"] == 2
    assert result["by_stream"]["record/none"] is None
    assert across(dict(reversed(streams.items()))) == result


def test_a_part_is_what_one_producer_sent(records: Records) -> None:
    state = folded(records(1, 100), records(2, 200, OTHER), records(3, 300))
    (mine,) = RecorderStatistics().part(state, CLIENT).by_producer
    assert (mine.name, mine.events) == (CLIENT, 2)


@pytest.mark.parametrize(
    "totals",
    [
        [0, 0, 0, 0, 0, 0, 0, 0],
        [1, 5, 5, 4, 0, 0, 0, 0],
        [1, 5, 5, 5, 1, 0, 0, 0],
        [1, 5, 5, 5, 0, 0, 1, 0],
    ],
)
def test_totals_that_no_fold_gives_are_refused(totals: list[int]) -> None:
    tree: dict[int, Any] = {1: 1, 2: totals, 3: [], 4: [], 5: [], 6: [], 7: []}
    with pytest.raises(Malformed):
        Statistics.decode(overlay_histories.cbor(tree))
