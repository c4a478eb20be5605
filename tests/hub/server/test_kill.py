"""One process of a loaded hub is killed: nothing it acknowledged is lost, nothing forks."""

from __future__ import annotations

from collections.abc import Callable
from types import ModuleType
from typing import Any

import pytest


@pytest.mark.timeout(7_000)
def test_a_hub_that_loses_a_process_keeps_its_word(
    kills: ModuleType, make_hub: Callable[..., Any]
) -> None:
    hub = kills.start_directly(make_hub(toml=kills.TOML))
    victims = ("supervisor", "sequencer")
    kills.kill_and_check(hub, seed=20, victims=victims, kills=150 if kills.LONG else 10)
