"""Indexes of made-up logs, and hubs that run as processes for the follower."""

from __future__ import annotations

import importlib.util
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

HERE, TESTS = Path(__file__).parent, Path(__file__).parents[1]
LONG = bool(os.environ.get("VEEN_TEST_LONG"))


def _load(name: str, folder: Path) -> ModuleType:
    """A module of the tests by its bare name, as the scripts beside it import it."""
    if name not in sys.modules:
        spec = importlib.util.spec_from_file_location(name, folder / f"{name}.py")
        assert spec is not None
        assert spec.loader is not None
        sys.modules[name] = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(sys.modules[name])
    return sys.modules[name]


for _name in ("spec_objects", "spec_client", "hub_process"):
    _load(_name, TESTS / "hub" / "server")
_PRODUCER = _load("producer", TESTS / "client")
_HISTORIES, _ORACLE, _LOG = (
    _load(name, TESTS / "query") for name in ("query_histories", "query_oracle", "recorded_log")
)
_LOGS, _RECORDED = _load("index_logs", HERE), _load("index_recorded", HERE)


@pytest.fixture(scope="session")
def histories() -> ModuleType:
    return _HISTORIES


@pytest.fixture(scope="session")
def oracle() -> ModuleType:
    return _ORACLE


@pytest.fixture(scope="session")
def logs() -> ModuleType:
    return _LOGS


@pytest.fixture(scope="session")
def recorded() -> ModuleType:
    """How the tests here write events to a hub and follow it."""
    return _RECORDED


@pytest.fixture(scope="session")
def long() -> bool:
    return LONG


@pytest.fixture
def make_hub(tmp_path: Path) -> Iterator[Callable[..., Any]]:
    """A hub that is not started; whatever becomes of it, it is gone after the test."""
    with ExitStack() as ending:

        def make(name: str = "hub") -> Any:
            found = _RECORDED.a_hub(tmp_path / name)
            ending.callback(found.destroy)
            return found

        yield make


@pytest.fixture(scope="module")
def shared_hub(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """A running hub for all tests of a file, with a stream for each: ``record/1`` and so on."""
    names = tuple(f"record/{number}" for number in range(1, 10))
    found = _RECORDED.a_hub(tmp_path_factory.mktemp("shared") / "hub", names)
    try:
        yield found.start()
    finally:
        found.destroy()


@pytest.fixture
def open_client(tmp_path: Path) -> Iterator[Callable[..., Any]]:
    """Opens clients, each in its directory; the second time the one that is there."""
    with ExitStack() as closing:

        def make(url: str, name: str = "client", **more: Any) -> Any:
            return closing.enter_context(_PRODUCER.a_client(tmp_path / name, url, **more))

        yield make
