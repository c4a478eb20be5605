"""A loaded hub is killed again and again: nothing it acknowledged is lost, nothing forks."""

from __future__ import annotations

import json
import os
import random
import sys
import time
from collections.abc import Callable
from types import ModuleType
from typing import Any

import pytest

LONG = bool(os.environ.get("VEEN_TEST_LONG"))
KILLS = 300 if LONG else 50
KILLS_IN_START = 5
TOML = """
admission = "open"
reads = "open"
[limits]
max_msg_bytes = 4096
max_chunk_bytes = 16384
max_checkpoint_interval = 50
"""


@pytest.fixture
def hub(make_hub: Callable[..., Any]) -> Any:
    """Started without the command around it, which is most of the time of a start."""
    made = make_hub(toml=TOML)
    options = json.dumps({"listen": f"127.0.0.1:{made.port}"})
    toml = str(made.data.parent / "hub.toml")
    where = ["--data-dir", str(made.data), "--config", toml, "--options", options]
    made.launch = lambda: made.run([sys.executable, "-m", "hub", *where])
    return made


@pytest.mark.timeout(3_000 if LONG else 290)
def test_a_killed_hub_keeps_its_word(spec: ModuleType, load: ModuleType, hub: Any) -> None:
    chance = random.Random(20)
    hub.start()
    first = hub.client()
    producers = [
        load.Producer(first.writer(spec.key(f"client {n}"), f"record/{n % 2}")) for n in range(4)
    ]
    logs = {one.writer.label: first.log(one.writer.label) for one in producers}
    killed: dict[str, int] = {}
    for _ in range(KILLS):
        with load.working(hub, producers):
            time.sleep(chance.uniform(0.02, 0.25))
            name = chance.choice(("supervisor", "sequencer", "everything"))
            hub.kill(_victims(hub, name))
            killed[name] = killed.get(name, 0) + 1
        client = hub.start().client()
        for one in producers:
            _settle(one, client)
        for log in logs.values():
            client.read(log)
        _check(producers, logs)
    assert min(killed.values()) > KILLS // 10
    assert sum(one.found_again for one in producers) > 0, "no answer was ever lost"
    for label, log in logs.items():
        assert client.read(client.log(label)).entries == log.entries


def test_a_hub_killed_while_it_starts_can_be_started(
    spec: ModuleType, load: ModuleType, hub: Any
) -> None:
    chance = random.Random(21)
    hub.start()
    producer = load.Producer(hub.client().writer(spec.key("client"), "record/a"))
    for _ in range(KILLS_IN_START):
        _settle(producer, hub.client())
        hub.kill(hub.processes())
        hub.launch()
        time.sleep(chance.uniform(0.1, 1.5))
        # BUG: hub/process.py begin_as_child: a supervisor killed before its child has called
        # prctl leaves that child alone for ever, with the directory's lock in its hand.
        hub.kill(hub.processes()[:1])
        hub.start()
    client = hub.client()
    log = client.read(client.log(producer.writer.label))
    _check([producer], {log.label: log})


def _victims(hub: Any, name: str) -> list[Any]:
    if name == "sequencer":
        return hub.named("hub.sequencer")
    return hub.processes()[:1] if name == "supervisor" else hub.processes()


def _settle(producer: Any, client: Any) -> None:
    """What was unanswered is asked for again, and the next messages go on after it."""
    producer.send(client)
    producer.send(client)
    assert not producer.unanswered


def _check(producers: list[Any], logs: dict[bytes, Any]) -> None:
    """The verified log holds every promise in its place, and nothing beyond what was sent."""
    for label, log in logs.items():
        own = [one for one in producers if one.writer.label == label]
        for one in own:
            for receipt in one.promised:
                assert log.entries[receipt[2] - 1][1] == receipt
        assert sum(len(one.promised) for one in own) == log.mmr.size
    for one in producers:
        assert len(one.promised) == one.writer.seq
