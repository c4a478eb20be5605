"""Following a stream as it grows, over epochs and over hubs that are away for a while."""

from __future__ import annotations

from collections.abc import Callable
from itertools import islice
from typing import Any

import pytest

from support.client import lying_hub, reading_support
from veen.client.reader import follow, read
from veen.errors import Untrusted
from veen.label import Profile

NAME = "record/a"
HOURLY = Profile(epoch_sec=3_600)


def places(pairs: Any, count: int) -> list[int]:
    return [pair.receipt.stream_seq for pair in islice(pairs, count)]


class GrowingTime:
    """Each sleep lets something happen at the hub."""

    def __init__(self, now: float, *events: Callable[[], None]) -> None:
        self.now = now
        self.slept: list[float] = []
        self.events = list(events)

    def clock(self) -> int:
        return int(self.now)

    def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)
        self.now += seconds
        if self.events:
            self.events.pop(0)()


def nothing() -> None:
    pass


def test_follows_what_comes_and_waits_longer_while_nothing_does(
    dishonest_hub: Any, make_session: Callable[..., Any]
) -> None:
    log, alice = dishonest_hub.log(NAME), reading_support.Writer(b"alice")

    def more() -> None:
        reading_support.fill(dishonest_hub, log, 3, alice)

    reading_support.fill(dishonest_hub, log, 2, alice)
    time = GrowingTime(1_900_000_000, more, *[nothing] * 7, more)
    session = make_session(dishonest_hub.url, time=time)
    pairs: Any = follow(session, dishonest_hub.labels(NAME), NAME, from_seq=1)
    assert places(pairs, 8) == [1, 2, 3, 4, 5, 6, 7, 8]
    assert time.slept == [0.2, 0.2, 0.4, 0.8, 1.6, 3.2, 5.0, 5.0, 5.0]
    assert session.view(log.label, NAME, 0).peaks == log.peaks
    pairs.close()


def test_follows_from_beyond_the_end(dishonest_hub: Any, make_session: Callable[..., Any]) -> None:
    log, alice = dishonest_hub.log(NAME), reading_support.Writer(b"alice")
    reading_support.fill(dishonest_hub, log, 4, alice)
    time = GrowingTime(1_900_000_000, lambda: reading_support.fill(dishonest_hub, log, 3, alice))
    session = make_session(dishonest_hub.url, time=time)
    assert places(follow(session, dishonest_hub.labels(NAME), NAME, from_seq=5), 3) == [5, 6, 7]


def test_follows_a_stream_that_is_not_there_yet(
    dishonest_hub: Any, make_session: Callable[..., Any]
) -> None:
    alice = reading_support.Writer(b"alice")
    time = GrowingTime(
        1_900_000_000,
        nothing,
        lambda: reading_support.fill(dishonest_hub, dishonest_hub.log(NAME), 2, alice),
    )
    session = make_session(dishonest_hub.url, time=time)
    assert places(follow(session, dishonest_hub.labels(NAME), NAME, from_seq=1), 2) == [1, 2]


def test_goes_on_when_the_hub_is_back(dishonest_hub: Any, make_session: Callable[..., Any]) -> None:
    log, alice = dishonest_hub.log(NAME), reading_support.Writer(b"alice")
    reading_support.fill(dishonest_hub, log, 2, alice)

    def break_off() -> None:
        dishonest_hub.broken = True

    def come_back() -> None:
        dishonest_hub.broken = False
        reading_support.fill(dishonest_hub, log, 2, alice)

    time = GrowingTime(1_900_000_000, break_off, nothing, come_back)
    session = make_session(dishonest_hub.url, time=time)
    assert places(follow(session, dishonest_hub.labels(NAME), NAME, from_seq=1), 4) == [1, 2, 3, 4]


def test_ends_at_a_lie(dishonest_hub: Any, make_session: Callable[..., Any]) -> None:
    reading_support.fill(dishonest_hub, dishonest_hub.log(NAME), 4)

    def go_back() -> None:
        lying_hub.fork(dishonest_hub, NAME, 2)

    session = make_session(dishonest_hub.url, time=GrowingTime(1_900_000_000, nothing, go_back))
    pairs = follow(session, dishonest_hub.labels(NAME), NAME, from_seq=1)
    assert places(pairs, 4) == [1, 2, 3, 4]
    next_one = iter(pairs).__next__
    with pytest.raises(Untrusted, match="stream_seq 4"):
        next_one()


@pytest.fixture
def hourly(make_lying_hub: Callable[..., Any]) -> Any:
    """Three epochs with entries, one hour apart, then one without, then this one."""
    hub = make_lying_hub(b"hourly", profile=HOURLY)
    alice = reading_support.Writer(b"alice", HOURLY)
    now = HOURLY.epoch(lying_hub.NOON)
    for epoch in (now - 4, now - 3, now - 2, now):
        log = hub.log(NAME, epoch)
        log.hub_ts = epoch * 3_600 + 60
        reading_support.fill(hub, log, 3, alice)
    hub.now = now
    return hub


def test_reads_the_epochs_in_order(hourly: Any, make_session: Callable[..., Any]) -> None:
    result = list(read(make_session(hourly.url), hourly.labels(NAME), NAME, from_seq=2))
    now, labels = hourly.now, hourly.labels(NAME)
    due = [(labels.at(epoch), seq) for epoch in (now - 4, now - 3, now - 2, now) for seq in (2, 3)]
    assert [(item.receipt.label, item.receipt.stream_seq) for item in result] == due


def test_without_a_list_of_streams_the_unbroken_run_is_found(
    hourly: Any, make_session: Callable[..., Any]
) -> None:
    labels, now = hourly.labels(NAME), hourly.now
    hourly.names.clear()
    session = make_session(hourly.url)
    assert {item.receipt.label for item in read(session, labels, NAME)} == {labels.at(now)}
    hourly.hub_ts = session.runtime.clock() - 2 * 3_600
    session = make_session(hourly.url, "earlier")
    result = [item.receipt.label for item in read(session, labels, NAME, to_seq=1)]
    assert result == [labels.at(now - 4), labels.at(now - 3), labels.at(now - 2)]


def test_an_epoch_that_we_read_and_the_hub_hides_is_missed(
    hourly: Any, make_session: Callable[..., Any]
) -> None:
    session, labels = make_session(hourly.url), hourly.labels(NAME)
    list(read(session, labels, NAME))
    del hourly.logs[labels.at(hourly.now - 3)]
    pairs = read(session, labels, NAME)
    with pytest.raises(Untrusted, match=f"epoch {hourly.now - 3}"):
        list(pairs)


def test_follows_into_the_next_epoch(
    make_lying_hub: Callable[..., Any], make_session: Callable[..., Any]
) -> None:
    hub = make_lying_hub(b"hourly", profile=HOURLY)
    alice, now = reading_support.Writer(b"alice", HOURLY), HOURLY.epoch(lying_hub.NOON)
    reading_support.fill(hub, hub.log(NAME, now), 2, alice)
    labels = hub.labels(NAME)

    def an_hour_later() -> None:
        time.now += 3_600
        log = hub.log(NAME, now + 1)
        log.hub_ts = lying_hub.NOON + 3_600
        reading_support.fill(hub, log, 2, alice)

    time = GrowingTime(lying_hub.NOON, nothing, an_hour_later)
    session = make_session(hub.url, time=time)
    result = list(islice(follow(session, labels, NAME, from_seq=1), 4))
    assert [(item.receipt.label, item.receipt.stream_seq) for item in result] == [
        (labels.at(epoch), seq) for epoch in (now, now + 1) for seq in (1, 2)
    ]
