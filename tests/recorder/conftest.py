"""Recorders on hubs that run as processes, and emitters that no hub answers."""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

HERE = Path(__file__).parent
SERVER = HERE.parent / "hub" / "server"


def _load(folder: Path, name: str) -> ModuleType:
    """A module beside the tests, under its own name."""
    if name not in sys.modules:
        spec = importlib.util.spec_from_file_location(name, folder / f"{name}.py")
        assert spec is not None
        assert spec.loader is not None
        sys.modules[name] = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(sys.modules[name])
    return sys.modules[name]


for _name in ("spec_objects", "spec_client", "hub_process"):
    _load(SERVER, _name)
_RECORDING = _load(HERE, "recording")


@pytest.fixture(scope="session")
def recording() -> ModuleType:
    return _RECORDING


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """A gated hub, its recorder's settings, a producer with its capability, and an admin."""
    found = _RECORDING.World(tmp_path_factory.mktemp("world"))
    found.hub.start()
    try:
        yield found
    finally:
        found.hub.destroy()


@pytest.fixture
def offline(tmp_path: Path) -> Iterator[Any]:
    """An emitter whose hub does not answer."""
    with _RECORDING.offline_emitter(tmp_path) as found:
        yield found


@pytest.fixture
def open_emitter(world: Any) -> Iterator[Callable[..., Any]]:
    with ExitStack() as closing:
        yield lambda name="producer": closing.enter_context(world.emitter(name))
