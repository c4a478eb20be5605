"""A whole hub is gone at once, loaded or while it starts: nothing acknowledged is lost."""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from typing import Any

import pytest

from support.hub import hub_kills, hub_load, spec_objects
from support.long_form import LONG

pytestmark = pytest.mark.e2e

KILLS_IN_START = 3


@pytest.mark.timeout(7_000)
def test_a_hub_killed_as_a_whole_keeps_its_word(make_hub: Callable[..., Any]) -> None:
    hub = hub_kills.start_directly(make_hub(toml=hub_kills.TOML))
    victims = ("everything",)
    hub_kills.kill_and_check(hub, seed=21, victims=victims, kills=150 if LONG else 8)


def test_a_hub_whose_supervisor_is_killed_while_it_starts_can_be_started(
    make_hub: Callable[..., Any],
) -> None:
    """No process may be left over that holds the directory."""
    chance = random.Random(21)
    hub = hub_kills.start_directly(make_hub(toml=hub_kills.TOML))
    producer = hub_load.Producer(hub.client().writer(spec_objects.key("client"), "record/a"))
    for _ in range(KILLS_IN_START):
        hub_kills.settle(producer, hub.client())
        hub.kill(hub.processes())
        hub.launch()
        time.sleep(chance.uniform(0.1, 1.5))
        hub.kill(hub.processes()[:1])
        hub.start()
    client = hub.client()
    log = client.read(client.log(producer.writer.label))
    hub_kills.check([producer], {log.label: log})
