"""One process of a loaded hub is killed: nothing it acknowledged is lost, nothing forks."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from support.hub import hub_kills
from support.long_form import LONG

pytestmark = pytest.mark.e2e


@pytest.mark.timeout(7_000)
def test_a_hub_that_loses_a_process_keeps_its_word(make_hub: Callable[..., Any]) -> None:
    hub = hub_kills.start_directly(make_hub(toml=hub_kills.TOML))
    victims = ("supervisor", "sequencer")
    hub_kills.kill_and_check(hub, seed=20, victims=victims, kills=150 if LONG else 10)
