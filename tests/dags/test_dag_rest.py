"""A hub that a zone runs is let rest while its directory is worked on, and nothing else stops."""

from __future__ import annotations

from pathlib import Path

from dag_zones import veen

from cli import zone_services as services
from cli.zone_child import stop
from cli.zone_home import ZoneHome
from cli.zone_supervisor import Supervisor
from hub.settings import load


def test_a_hub_rests_while_it_is_asked_to(tmp_path: Path) -> None:
    home = ZoneHome(tmp_path / "z1")
    veen("zone", "init", "--directory", str(home.root), "--name", "z1", "--role", "alone")
    home.logs.mkdir(parents=True)
    home.run.mkdir(parents=True, exist_ok=True)
    ready = f"{load(home.file).url}/readyz"
    supervisor = Supervisor(home, None)
    try:
        supervisor._launch(services.hub(home, home.zone()))
        supervisor._heed_rest()
        assert services.answers(ready)
        home.rest.touch()
        supervisor._heed_rest()
        supervisor._check()
        assert not services.answers(ready)
        assert home.resting.exists()
        words = ("--data-dir", str(home.hub), "--config", str(home.file))
        assert veen("hub", "retention", *words, "--prune")["pruned"] == 0
        home.rest.unlink()
        supervisor._heed_rest()
        supervisor._check()
        assert services.answers(ready)
        assert not home.resting.exists()
    finally:
        while supervisor._groups:
            stop(supervisor._groups.pop())
