"""Query services as processes, each over a hub that runs as processes too."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from support.hub.hub_process import configured
from support.recorder import gated_zone, query_world


@pytest.fixture(scope="session")
def make_hub(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[..., Any]]:
    made: list[Any] = []

    def make(toml: str | None = None) -> Any:
        folder = tmp_path_factory.mktemp("hub")
        made.append(configured(folder, toml or query_world.hub_toml()))
        return made[-1].start()

    yield make
    for item in made:
        item.destroy()


@pytest.fixture(scope="session")
def hub(make_hub: Callable[..., Any]) -> Any:
    """One hub for all tests that leave it running."""
    return make_hub()


@pytest.fixture(scope="session")
def zone(hub: Any, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """A running service with 60 events in two streams, for tests that leave it so."""
    with query_world.closing(query_world.Zone(tmp_path_factory.mktemp("zone"), hub)) as result:
        result.emit("http.request", 50)
        result.emit("auth.login", 10)
        result.emit("secret.read", 3)
        checkpoint = result.checkpoint()
        result.start().catch_up(checkpoint)
        yield result


@pytest.fixture
def make_zone(tmp_path: Path) -> Iterator[Callable[..., Any]]:
    """Services of a test's own, over a hub that it names."""
    with ExitStack() as closing:

        def make(hub: Any, **more: Any) -> Any:
            return closing.enter_context(
                query_world.closing(query_world.Zone(tmp_path / "zone", hub, **more))
            )

        yield make


@pytest.fixture(scope="module")
def gated(make_hub: Callable[..., Any], tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """A service on a gated hub, with 5 events, that has no capability yet and is not started."""
    folder = tmp_path_factory.mktemp("gated")
    hub = make_hub(gated_zone.hub_toml(folder))
    with query_world.closing(gated_zone.GatedZone(folder, hub)) as result:
        result.emit("http.request", 5)
        yield result
    hub.stop()
