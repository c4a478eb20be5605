"""Clients in directories of their own, against hubs that run as processes."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest

from support.client import client_producer
from support.hub import hub_process


@pytest.fixture(scope="session")
def wait_until() -> Callable[..., None]:
    return hub_process.wait_until


@contextmanager
def _hubs(folder: Path) -> Iterator[Callable[..., Any]]:
    made: list[Any] = []

    def make(toml: str = client_producer.OPEN, name: str = "hub") -> Any:
        process = hub_process.configured(folder / name, toml)
        made.append(process)
        return process

    try:
        yield make
    finally:
        for item in made:
            item.destroy()


@pytest.fixture(scope="session")
def hubs_in() -> Callable[..., Any]:
    """Makes hubs in a folder, until its block ends."""
    return _hubs


@pytest.fixture
def make_hub(tmp_path: Path) -> Iterator[Callable[..., Any]]:
    """A hub that is not started; whatever becomes of it, it is gone after the test."""
    with _hubs(tmp_path) as make:
        yield make


@pytest.fixture(scope="module")
def make_shared_hub(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[..., Any]]:
    with _hubs(tmp_path_factory.mktemp("shared")) as make:
        yield make


@pytest.fixture(scope="module")
def open_hub(make_shared_hub: Callable[..., Any]) -> Any:
    """A running hub where anyone may write and read, for all tests of a file."""
    return make_shared_hub().start()


@pytest.fixture(scope="module")
def gated_hub(make_shared_hub: Callable[..., Any]) -> Any:
    """A running hub that asks for capabilities, and lets one principal read."""
    return make_shared_hub(client_producer.GATED, name="gated").start()


@pytest.fixture
def open_client(tmp_path: Path) -> Iterator[Callable[..., Any]]:
    """Opens clients, each in its directory; the second time the one that is there."""
    with ExitStack() as closing:

        def make(url: str, name: str = "client", **more: Any) -> Any:
            return closing.enter_context(client_producer.a_client(tmp_path / name, url, **more))

        yield make


@pytest.fixture
def stream(request: pytest.FixtureRequest) -> str:
    return f"record/{request.node.name}"
