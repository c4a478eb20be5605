"""A hub that a zone runs is let rest while its directory is worked on, and nothing else stops."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

from hub.settings import load
from support.dags.dag_zones import veen
from zone import services
from zone.directory import ZoneHome
from zone.supervisor import Supervisor


def test_a_hub_rests_while_it_is_asked_to(tmp_path: Path) -> None:
    home = ZoneHome(tmp_path / "z1")
    veen("zone", "init", "--directory", str(home.root), "--name", "z1", "--role", "alone")
    home.logs.mkdir(parents=True)
    home.run.mkdir(parents=True, exist_ok=True)
    ready = f"{load(home.file).url}/readyz"
    supervisor = Supervisor(home, None)
    supervisor.parts = (supervisor.hub,)

    def until(happened: Callable[[], bool]) -> None:
        deadline = time.monotonic() + 60
        while not happened():
            assert time.monotonic() < deadline
            supervisor.look()
            time.sleep(0.05)

    try:
        until(lambda: supervisor.hub.is_up)
        assert services.answers(ready)
        home.rest.touch()
        until(home.resting.exists)
        assert not services.answers(ready)
        words = ("--data-dir", str(home.hub), "--config", str(home.file))
        assert veen("hub", "retention", *words, "--prune")["pruned"] == 0
        home.rest.unlink()
        until(lambda: not home.resting.exists())
        assert services.answers(ready)
    finally:
        supervisor.stop_parts()
