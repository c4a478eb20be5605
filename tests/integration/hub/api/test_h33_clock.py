"""H21, H33: a clock that is set ahead or back, at a real sequencer."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from prometheus_client import CollectorRegistry

from hub.api.app import create_app
from hub.api.context import SignatureGuard
from hub.clock import ClockStepped, HubClock
from hub.metrics import sequencer_metrics
from hub.policy import Policy
from hub.sequencer.committer import Unavailable
from hub.sequencer.ipc import QueueBound, SequencerClient
from hub.sequencer.service import Sequencer
from hub.settings import BadHubSettings, HubSettings, parse
from hub.storage.datadir import DataDir
from veen.client.session import skew_warning
from veen.http_signature import SIGNATURE_MEMORY_SEC, NotSigned
from veen.label import DEFAULT_PROFILE
from veen.log.entry import StreamRecord

START, DAY = 1_900_000_000, 86_400
JSON = {"Accept": "application/json"}


@dataclass
class Times:
    """The host's clock and the time since boot, as a test sets them."""

    wall: float = START
    steady: float = 500.0

    def clock(self, limit: int = 3_600) -> HubClock:
        return HubClock(limit, wall=lambda: self.wall, steady=lambda: self.steady)

    def pass_time(self, seconds: float) -> None:
        self.wall += seconds
        self.steady += seconds


def test_h33_a_clock_that_jumps_ahead_is_not_followed_and_can_be_set_right() -> None:
    times = Times()
    clock = times.clock()
    times.pass_time(40 * DAY)
    assert clock.now() == START + 40 * DAY
    times.wall += 2 * DAY
    with pytest.raises(ClockStepped, match=r"172800 s, more than clock_step_limit_sec = 3600"):
        clock.now()
    times.pass_time(60)
    with pytest.raises(ClockStepped):
        clock.now()
    times.wall -= 2 * DAY
    assert clock.now() == START + 40 * DAY + 60
    assert clock.step_ahead_sec == 0


def test_h33_drift_and_small_steps_are_followed() -> None:
    times = Times()
    clock = times.clock()
    for _ in range(100):
        times.pass_time(10)
        times.wall += 3_000
        assert clock.now() == int(times.wall)


def test_h33_a_clock_that_is_set_back_is_followed_at_once() -> None:
    times = Times()
    clock = times.clock()
    times.wall -= 20 * DAY
    assert clock.now() == START - 20 * DAY


def test_h33_a_clock_that_was_set_back_for_a_moment_may_return() -> None:
    times = Times()
    clock = times.clock()
    times.wall -= 20 * DAY
    assert clock.now() == START - 20 * DAY
    times.pass_time(3 * 3_600)
    clock.now()
    times.wall += 20 * DAY
    assert clock.now() == START + 3 * 3_600
    times.wall += 3_601
    with pytest.raises(ClockStepped, match="3601 s"):
        clock.now()


def test_h33_a_clock_that_caught_up_may_not_return_to_where_it_was_ahead() -> None:
    times = Times(wall=START + 2 * DAY)
    clock = times.clock()
    times.wall -= 2 * DAY
    clock.now()
    times.pass_time(2 * DAY)
    assert clock.now() == START + 2 * DAY
    times.wall += 2 * DAY
    with pytest.raises(ClockStepped, match="172800 s"):
        clock.now()


def test_h33_without_a_limit_every_step_is_followed() -> None:
    times = Times()
    clock = times.clock(limit=0)
    times.wall += 400 * DAY
    assert clock.now() == START + 400 * DAY
    with pytest.raises(BadHubSettings, match="clock_step_limit_sec"):
        parse({"clock_step_limit_sec": -1})


@dataclass
class Running:
    datadir: DataDir
    times: Times
    client: SequencerClient
    registry: CollectorRegistry
    sequencer: Sequencer


@pytest.fixture
def running(tmp_path: Path) -> Iterator[Running]:
    times, registry = Times(), CollectorRegistry()
    datadir = DataDir(tmp_path / "hub")
    datadir.create()
    sequencer = Sequencer(datadir, HubSettings(admission="open"), os.urandom, times.clock())
    sequencer.observe_clock(sequencer_metrics(registry).clock_read)
    thread = threading.Thread(target=sequencer.run)
    thread.start()
    yield Running(datadir, times, SequencerClient(datadir, QueueBound(16)), registry, sequencer)
    sequencer.stop()
    thread.join()


def register(client: SequencerClient, name: str) -> None:
    client.register(StreamRecord(name=name, profile=DEFAULT_PROFILE))


def test_h33_a_hub_refuses_to_write_at_a_time_its_clock_jumped_to(running: Running) -> None:
    register(running.client, "record/before")
    running.times.wall += 2 * DAY
    with pytest.raises(Unavailable, match="stepped ahead by 172800 s"):
        register(running.client, "record/meanwhile")
    seen = running.client.times()
    assert (seen.hub_ts, seen.clock_step_ahead_sec) == (START, 2 * DAY)
    running.sequencer._tick()
    assert running.registry.get_sample_value("veen_clock_step_ahead_seconds") == 2 * DAY
    running.times.wall -= 2 * DAY
    running.times.pass_time(5)
    register(running.client, "record/after")
    seen = running.client.times()
    assert (seen.hub_ts, seen.ahead_of_clock_sec) == (START + 5, 0)


def test_h33_hub_time_that_stands_still_is_reported(running: Running) -> None:
    register(running.client, "record/before")
    running.times.wall -= 20 * DAY
    register(running.client, "record/after")
    seen = running.client.times()
    assert (seen.hub_ts, seen.clock, seen.ahead_of_clock_sec) == (START, START - 20 * DAY, 20 * DAY)
    running.sequencer._tick()
    assert running.registry.get_sample_value("veen_hub_time_ahead_seconds") == 20 * DAY


def test_h33_readiness_fails_for_a_step_and_warns_of_time_that_stands_still(
    running: Running,
) -> None:
    http = create_app(HubSettings(admission="open"), running.datadir).test_client()
    register(running.client, "record/before")
    assert http.get("/readyz", headers=JSON).get_json()["ok"] is True
    running.times.wall += 2 * DAY
    reply = http.get("/readyz", headers=JSON)
    assert reply.status_code == 503
    assert "stepped ahead by 172800 s" in reply.get_json()["message"]
    running.times.wall -= 22 * DAY
    reply = http.get("/readyz", headers=JSON)
    json = reply.get_json()
    assert (reply.status_code, json["ok"]) == (200, False)
    assert json["hub_time_ahead_sec"] == 20 * DAY
    assert "is held until" in json["warnings"][-1]


def test_h33_a_client_warns_of_a_hub_whose_time_is_not_its_own() -> None:
    assert skew_warning(60) is None
    assert skew_warning(-60) is None
    assert "172800 s ahead of this host's clock" in str(skew_warning(2 * DAY))
    assert "61 s behind this host's clock" in str(skew_warning(-61))


def test_h21_signatures_are_forgotten_by_a_clock_that_nobody_sets() -> None:
    times = Times()
    guard = SignatureGuard(Policy(), steady=lambda: times.steady)
    guard._take("reader", b"first")
    times.wall += 20 * DAY
    guard._take("reader", b"second")
    times.wall -= 20 * DAY
    with pytest.raises(NotSigned, match="used before"):
        guard._take("reader", b"second")
    times.pass_time(SIGNATURE_MEMORY_SEC + 1)
    guard._take("reader", b"third")
    assert list(guard._taken["reader"]) == [b"third"]


def test_h21_a_principal_that_signs_too_often_keeps_no_other_out() -> None:
    guard = SignatureGuard(Policy(), steady=lambda: 0.0, most_signatures=3)
    for number in range(3):
        guard._take("producer", bytes([number]))
    with pytest.raises(NotSigned, match="principal producer signed 3 requests"):
        guard._take("producer", b"one more")
    guard._take("reader", b"the first")
