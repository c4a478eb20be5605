"""Hubs that run as processes, for the follower of an index."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest


@pytest.fixture
def make_index_hub(tmp_path: Path) -> Iterator[Callable[..., Any]]:
    """A hub that is not started; whatever becomes of it, it is gone after the test."""
    from support.recorder import index_recorded

    with ExitStack() as ending:

        def make(name: str = "hub") -> Any:
            result = index_recorded.a_hub(tmp_path / name)
            ending.callback(result.destroy)
            return result

        yield make


@pytest.fixture(scope="module")
def shared_index_hub(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """A running hub for all tests of a file, with a stream for each: ``record/1`` and so on."""
    from support.recorder import index_recorded

    names = tuple(f"record/{number}" for number in range(1, 10))
    result = index_recorded.a_hub(tmp_path_factory.mktemp("shared") / "hub", names)
    try:
        yield result.start()
    finally:
        result.destroy()
