"""Clients in directories of their own, against hubs that run as processes."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest


@contextmanager
def _hubs(folder: Path) -> Iterator[Callable[..., Any]]:
    from support.client import client_producer
    from support.hub import hub_process

    with ExitStack() as ending:

        def make(toml: str = client_producer.OPEN, name: str = "hub") -> Any:
            hub = hub_process.configured(folder / name, toml)
            ending.callback(hub.destroy)
            return hub

        yield make


@pytest.fixture(scope="session")
def hubs_in() -> Callable[..., Any]:
    """Makes hubs in a folder, until its block ends."""
    return _hubs


@pytest.fixture
def make_client_hub(tmp_path: Path) -> Iterator[Callable[..., Any]]:
    """A hub that is not started; whatever becomes of it, it is gone after the test."""
    with _hubs(tmp_path) as make:
        yield make


@pytest.fixture(scope="module")
def make_shared_client_hub(
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[Callable[..., Any]]:
    """The same for all tests of a file."""
    with _hubs(tmp_path_factory.mktemp("shared")) as make:
        yield make


@pytest.fixture(scope="module")
def open_client_hub(make_shared_client_hub: Callable[..., Any]) -> Any:
    """A running hub where anyone may write and read, for all tests of a file."""
    return make_shared_client_hub().start()


@pytest.fixture(scope="module")
def gated_hub(make_shared_client_hub: Callable[..., Any]) -> Any:
    """A running hub that asks for capabilities, and lets one principal read."""
    from support.client.client_producer import GATED

    return make_shared_client_hub(GATED, name="gated").start()


@pytest.fixture
def open_client(tmp_path: Path) -> Iterator[Callable[..., Any]]:
    """Opens clients, each in its directory; the second time the one that is there."""
    from support.client.client_producer import a_client

    with ExitStack() as closing:

        def make(url: str, name: str = "client", **more: Any) -> Any:
            return closing.enter_context(a_client(tmp_path / name, url, **more))

        yield make
