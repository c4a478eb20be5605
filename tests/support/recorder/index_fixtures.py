"""Indexes of made-up logs, and hubs that run as processes for the follower."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from support.client import client_producer
from support.recorder import index_recorded


@pytest.fixture
def make_hub(tmp_path: Path) -> Iterator[Callable[..., Any]]:
    """A hub that is not started; whatever becomes of it, it is gone after the test."""
    with ExitStack() as ending:

        def make(name: str = "hub") -> Any:
            result = index_recorded.a_hub(tmp_path / name)
            ending.callback(result.destroy)
            return result

        yield make


@pytest.fixture(scope="module")
def shared_hub(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """A running hub for all tests of a file, with a stream for each: ``record/1`` and so on."""
    names = tuple(f"record/{number}" for number in range(1, 10))
    result = index_recorded.a_hub(tmp_path_factory.mktemp("shared") / "hub", names)
    try:
        yield result.start()
    finally:
        result.destroy()


@pytest.fixture
def open_client(tmp_path: Path) -> Iterator[Callable[..., Any]]:
    """Opens clients, each in its directory; the second time the one that is there."""
    with ExitStack() as closing:

        def make(url: str, name: str = "client", **more: Any) -> Any:
            return closing.enter_context(client_producer.a_client(tmp_path / name, url, **more))

        yield make
