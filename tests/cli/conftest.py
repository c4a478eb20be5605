"""The real ``veen`` in an empty home, and hubs that it starts and stops."""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType

import pytest

HERE = Path(__file__).parent


def _load(name: str) -> ModuleType:
    """A module beside this file; the scripts here import them by the same names."""
    if name not in sys.modules:
        spec = importlib.util.spec_from_file_location(name, HERE / f"{name}.py")
        assert spec is not None
        assert spec.loader is not None
        sys.modules[name] = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(sys.modules[name])
    return sys.modules[name]


_BINARY, _NORMAL, _, _, _SCENARIO = map(
    _load, ("binary", "normal", "recorder_scenario", "bridge_scenario", "scenario")
)


@pytest.fixture(scope="session")
def binary() -> ModuleType:
    return _BINARY


@pytest.fixture(scope="session")
def forking(tmp_path_factory: pytest.TempPathFactory) -> Iterator[object]:
    made = _BINARY.Forking(tmp_path_factory.mktemp("forking"))
    yield made
    made.end()


@pytest.fixture(scope="session")
def scenario() -> ModuleType:
    return _SCENARIO


@pytest.fixture(scope="session")
def normalised() -> Callable[[str, str], str]:
    found: Callable[[str, str], str] = _NORMAL.normalised
    return found


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """An empty home; a hub that runs on ``hub`` in it is stopped."""
    folder = tmp_path_factory.mktemp("home")
    yield folder
    _BINARY.end_hub(folder)


@pytest.fixture(scope="module")
def veen(home: Path) -> Callable[..., object]:
    """Runs a command in that home."""

    def run(*arguments: object, **more: object) -> object:
        return _BINARY.veen(*arguments, cwd=home, **more)

    return run


@pytest.fixture(scope="module")
def called(home: Path) -> Callable[..., object]:
    """Runs a command in that home and within this process."""

    def run(*arguments: object, **more: object) -> object:
        return _BINARY.called(*arguments, cwd=home, **more)

    return run
