"""Query services as processes, each over a hub that runs as processes too."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest


@pytest.fixture(scope="session")
def start_query_hub(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[..., Any]]:
    from support.hub.hub_process import configured
    from support.recorder import query_world

    with ExitStack() as ending:

        def start(toml: str | None = None) -> Any:
            hub = configured(tmp_path_factory.mktemp("hub"), toml or query_world.hub_toml())
            ending.callback(hub.destroy)
            return hub.start()

        yield start


@pytest.fixture(scope="session")
def query_hub(start_query_hub: Callable[..., Any]) -> Any:
    """One hub for all tests that leave it running."""
    return start_query_hub()


@pytest.fixture(scope="session")
def query_zone(query_hub: Any, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """A running service with 60 events in two streams, for tests that leave it so."""
    from support.recorder.query_world import Zone, closing

    with closing(Zone(tmp_path_factory.mktemp("zone"), query_hub)) as zone:
        zone.emit("http.request", 50)
        zone.emit("auth.login", 10)
        zone.emit("secret.read", 3)
        checkpoint = zone.checkpoint()
        zone.start().catch_up(checkpoint)
        yield zone


@pytest.fixture
def make_query_zone(tmp_path: Path) -> Iterator[Callable[..., Any]]:
    """Services of a test's own, over a hub that it names."""
    from support.recorder.query_world import Zone, closing

    with ExitStack() as ending:

        def make(hub: Any, **more: Any) -> Any:
            return ending.enter_context(closing(Zone(tmp_path / "zone", hub, **more)))

        yield make


@pytest.fixture(scope="module")
def gated_query_zone(
    start_query_hub: Callable[..., Any], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Any]:
    """A service on a gated hub, with 5 events, that has no capability yet and is not started."""
    from support.recorder import gated_zone
    from support.recorder.query_world import closing

    folder = tmp_path_factory.mktemp("gated")
    hub = start_query_hub(gated_zone.hub_toml(folder))
    with closing(gated_zone.GatedZone(folder, hub)) as zone:
        zone.emit("http.request", 5)
        yield zone
    hub.stop()
