"""Query services as processes, each over a hub that runs as processes too."""

from __future__ import annotations

import importlib.util
import json
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


for _name in ("spec_objects", "spec_client"):
    _load(SERVER, _name)
_PROCESS = _load(SERVER, "hub_process")
_WORLD = _load(HERE, "query_world")
_GATED = _load(HERE, "gated_zone")
_CERTIFICATES = _load(HERE, "certificates")
_load(HERE, "memory_log")


def _hub(folder: Path, toml: str) -> Any:
    hub = _PROCESS.HubProcess(folder)
    (folder / "hub.toml").write_text(toml)
    options = json.dumps({"listen": f"127.0.0.1:{hub.port}"})
    where = ["--data-dir", str(hub.data), "--config", str(folder / "hub.toml")]
    hub.launch = lambda: hub.run([sys.executable, "-m", "hub", *where, "--options", options])
    return hub


@pytest.fixture(scope="session")
def world() -> ModuleType:
    return _WORLD


@pytest.fixture(scope="session")
def certificates() -> ModuleType:
    return _CERTIFICATES


@pytest.fixture(scope="session")
def make_hub(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[..., Any]]:
    made: list[Any] = []

    def make(toml: str | None = None) -> Any:
        made.append(_hub(tmp_path_factory.mktemp("hub"), toml or _WORLD.hub_toml()))
        return made[-1].start()

    yield make
    for one in made:
        one.destroy()


@pytest.fixture(scope="session")
def hub(make_hub: Callable[..., Any]) -> Any:
    """One hub for all tests that leave it running."""
    return make_hub()


@pytest.fixture(scope="session")
def zone(hub: Any, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """A running service with 60 events in two streams, for tests that leave it so."""
    with _WORLD.closing(_WORLD.Zone(tmp_path_factory.mktemp("zone"), hub)) as found:
        found.emit("http.request", 50)
        found.emit("auth.login", 10)
        found.emit("secret.read", 3)
        checkpoint = found.checkpoint()
        found.start().catch_up(checkpoint)
        yield found


@pytest.fixture
def make_zone(tmp_path: Path) -> Iterator[Callable[..., Any]]:
    """Services of a test's own, over a hub that it names."""
    with ExitStack() as closing:

        def make(hub: Any, **more: Any) -> Any:
            return closing.enter_context(
                _WORLD.closing(_WORLD.Zone(tmp_path / "zone", hub, **more))
            )

        yield make


@pytest.fixture(scope="module")
def gated(make_hub: Callable[..., Any], tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """A service on a gated hub, with 5 events, that has no capability yet and is not started."""
    folder = tmp_path_factory.mktemp("gated")
    hub = make_hub(_GATED.hub_toml(folder))
    with _WORLD.closing(_GATED.GatedZone(folder, hub)) as found:
        found.emit("http.request", 5)
        yield found
    hub.stop()
