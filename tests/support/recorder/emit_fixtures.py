"""Recorders on hubs that run as processes, and emitters that no hub answers."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest


@pytest.fixture(scope="module")
def emit_world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """A gated hub, its recorder's settings, a producer with its capability, and an admin."""
    from support.recorder import recorder_world

    result = recorder_world.World(tmp_path_factory.mktemp("world"))
    result.hub.start()
    try:
        yield result
    finally:
        result.hub.destroy()


@pytest.fixture
def offline_emitter(tmp_path: Path) -> Iterator[Any]:
    """An emitter whose hub does not answer."""
    from support.recorder import recorder_world

    with recorder_world.offline_emitter(tmp_path) as result:
        yield result


@pytest.fixture
def open_emitter(emit_world: Any) -> Iterator[Callable[..., Any]]:
    with ExitStack() as closing:
        yield lambda name="producer": closing.enter_context(emit_world.emitter(name))
