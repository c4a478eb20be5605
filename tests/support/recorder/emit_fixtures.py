"""Recorders on hubs that run as processes, and emitters that no hub answers."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from support.recorder import recorder_world


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """A gated hub, its recorder's settings, a producer with its capability, and an admin."""
    result = recorder_world.World(tmp_path_factory.mktemp("world"))
    result.hub.start()
    try:
        yield result
    finally:
        result.hub.destroy()


@pytest.fixture
def offline(tmp_path: Path) -> Iterator[Any]:
    """An emitter whose hub does not answer."""
    with recorder_world.offline_emitter(tmp_path) as result:
        yield result


@pytest.fixture
def open_emitter(world: Any) -> Iterator[Callable[..., Any]]:
    with ExitStack() as closing:
        yield lambda name="producer": closing.enter_context(world.emitter(name))
