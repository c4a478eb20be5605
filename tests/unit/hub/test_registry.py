"""The registry: the stream of a label by its key, as a naive search over all streams finds it."""

from __future__ import annotations

import random
from functools import partial

import pytest

from hub.registry import Registry, Routed
from support.hub.counted import counted_calls
from veen.label import EpochLabels, Profile
from veen.log.entry import StreamRecord

ROUTING = bytes(range(32))
SKEW = 300
NOW = 1_700_000_000
DAY = 86_400


def a_stream(number: int, epoch_sec: int) -> StreamRecord:
    return StreamRecord(name=f"epoch/{number}", profile=Profile(epoch_sec=epoch_sec))


def label_at(stream: StreamRecord, epoch: int) -> bytes:
    return EpochLabels(ROUTING, stream.stream_id(), stream.profile).at(epoch)


def oracle(streams: list[StreamRecord], label: bytes, hub_ts: int) -> Routed | None:
    """Try every epoch of every stream that is recognised at this time."""
    for stream in streams:
        profile = stream.profile
        reach = min(DAY, 256 * profile.epoch_sec) + SKEW if profile.epoch_sec else 0
        for epoch in profile.epochs(hub_ts, reach):
            if label_at(stream, epoch) == label:
                in_window = epoch in profile.epochs(hub_ts, SKEW)
                profile_id = profile.profile_id()
                return Routed(stream, stream.stream_id(), profile_id, epoch, in_window)
    return None


def a_registry(streams: list[StreamRecord]) -> Registry:
    registry = Registry(ROUTING, SKEW)
    for stream in streams:
        assert registry.add(stream)
    return registry


def test_a_label_of_no_stream_is_unknown_at_any_time() -> None:
    registry = a_registry([a_stream(1, 60), a_stream(2, 0)])
    for hub_ts in (0, NOW, NOW + 10 * DAY, NOW - DAY):
        assert registry.route(bytes(32), hub_ts) is None


@pytest.mark.parametrize("epoch_sec", [60, 3_600])
def test_after_a_long_silence_the_labels_are_those_of_the_time(epoch_sec: int) -> None:
    stream = a_stream(1, epoch_sec)
    registry = a_registry([stream])
    for hub_ts in (NOW, NOW + 400 * DAY, NOW + 400 * DAY + 17 * epoch_sec):
        epoch = stream.profile.epoch(hub_ts)
        routed = registry.route(label_at(stream, epoch), hub_ts)
        assert routed == oracle([stream], label_at(stream, epoch), hub_ts)
        assert routed is not None
        assert routed.in_window
        assert registry.route(label_at(stream, epoch - 5_000), hub_ts) is None


def test_a_time_that_goes_back_is_answered_for_that_time() -> None:
    stream = a_stream(1, 3_600)
    registry = a_registry([stream])
    for hub_ts in (NOW, NOW - 100 * DAY, NOW - 200 * DAY, NOW):
        label = label_at(stream, stream.profile.epoch(hub_ts))
        assert registry.route(label, hub_ts) == oracle([stream], label, hub_ts)


def test_a_stream_that_gets_its_name_keeps_its_labels() -> None:
    named = a_stream(1, 3_600)
    nameless = StreamRecord(name=named.stream_id().hex(), profile=named.profile)
    registry = a_registry([nameless])
    label = label_at(named, named.profile.epoch(NOW))
    before = registry.route(label, NOW)
    assert before is not None
    assert before.stream == nameless
    assert registry.add(named)
    after = registry.route(label, NOW)
    assert after is not None
    assert after.stream == named


def test_a_stream_named_with_another_profile_has_the_labels_of_that_profile() -> None:
    named = a_stream(1, 60)
    registry = a_registry(
        [StreamRecord(name=named.stream_id().hex(), profile=Profile(epoch_sec=3_600))]
    )
    registry.route(bytes(32), NOW)
    assert registry.add(named)
    label = label_at(named, named.profile.epoch(NOW))
    assert registry.route(label, NOW) == oracle([named], label, NOW)


def test_random_times_and_labels_give_what_the_oracle_finds() -> None:
    chance = random.Random(11)
    for _ in range(12):
        streams = [a_stream(number, chance.choice((0, 60, 900, 3_600, DAY))) for number in range(5)]
        registry, hub_ts = Registry(ROUTING, SKEW), NOW
        known: list[StreamRecord] = []
        for _ in range(40):
            if len(known) < len(streams) and chance.random() < 0.3:
                known.append(streams[len(known)])
                registry.add(known[-1])
            hub_ts += chance.choice((0, 1, 59, 900, 4_000, DAY, 20 * DAY, -3_000))
            stream = chance.choice(streams)
            epoch = max(0, stream.profile.epoch(hub_ts) + chance.choice((0, 0, 1, -1, 5, -24, 260)))
            label = label_at(stream, epoch)
            assert registry.route(label, hub_ts) == oracle(known, label, hub_ts)
            if chance.random() < 0.3:
                registry.advance(hub_ts, 2)


def test_routing_costs_the_same_for_any_number_of_streams() -> None:
    """A label of the last stream, one that is unknown, and either after an epoch has ended."""
    costs = []
    for count in (10, 1_000):
        streams = [a_stream(number, 3_600) for number in range(count)]
        registry = a_registry(streams)
        for _ in range(count):
            registry.route(bytes(32), NOW)
        calls = []
        for hub_ts in (NOW, NOW + 3_600, NOW + 7_200):
            label = label_at(streams[-1], streams[-1].profile.epoch(hub_ts))
            for _ in range(3):
                calls.append(counted_calls(partial(registry.route, label, hub_ts)))
                calls.append(counted_calls(partial(registry.route, bytes(32), hub_ts)))
        costs.append(max(calls))
    small, large = costs
    assert large <= small + 4


def test_windows_move_a_few_streams_at_a_time() -> None:
    """Under steady traffic no call moves more than a few windows."""
    streams = [a_stream(number, 60) for number in range(200)]
    registry = a_registry(streams)
    registry.route(bytes(32), NOW)
    label, calls = label_at(streams[-1], streams[-1].profile.epoch(NOW)), []
    for second in range(0, 3_000, 2):
        calls.append(counted_calls(partial(registry.advance, NOW + second, 2)))
        calls.append(counted_calls(partial(registry.route, bytes(32), NOW + second)))
        registry.route(label, NOW + second)
    assert max(calls) < 3_000
