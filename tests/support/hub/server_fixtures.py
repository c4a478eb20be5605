"""Whole hubs, run as processes, and a client that shares no code with them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from support.hub import hub_process, spec_client


@pytest.fixture(scope="session")
def refusal() -> type[Any]:
    """What a client raises when the hub says no."""
    return spec_client.Refused


@pytest.fixture(scope="session")
def refused() -> Callable[[str], Any]:
    """Expects a refusal by its code and detail_enum."""

    @contextmanager
    def expect(reason: str) -> Iterator[None]:
        with pytest.raises(spec_client.Refused) as caught:
            yield
        assert caught.value.reason == reason

    return expect


@pytest.fixture(scope="session")
def veen() -> Callable[..., Any]:
    """Runs a command of the product."""
    return hub_process.veen


@pytest.fixture(scope="session")
def wait_until() -> Callable[..., None]:
    return hub_process.wait_until


def _hubs(folder: Path) -> Iterator[Callable[..., Any]]:
    made: list[Any] = []

    def make(*options: object, name: str = "hub", toml: str = "", **more: Any) -> Any:
        root = folder / name
        root.mkdir(exist_ok=True)
        if toml:
            (root / "hub.toml").write_text(toml)
            options = (*options, "--config", root / "hub.toml")
        made.append(hub_process.HubProcess(root, *options, **more))
        return made[-1]

    yield make
    for item in made:
        item.destroy()


@pytest.fixture
def make_hub(tmp_path: Path) -> Iterator[Callable[..., Any]]:
    """A hub that is not started; whatever becomes of it, it is gone after the test."""
    yield from _hubs(tmp_path)


@pytest.fixture(scope="module")
def make_shared_hub(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[..., Any]]:
    """The same for all tests of a file."""
    yield from _hubs(tmp_path_factory.mktemp("shared"))


@pytest.fixture
def open_hub(make_hub: Callable[..., Any]) -> Any:
    """A running hub where anyone may write and read."""
    return make_hub(*hub_process.OPEN).start()


@pytest.fixture(scope="module")
def shared_hub(make_shared_hub: Callable[..., Any]) -> Any:
    """One for all tests of a file, which write to streams of their own."""
    return make_shared_hub(*hub_process.OPEN).start()


@pytest.fixture
def stream(request: pytest.FixtureRequest) -> str:
    return f"record/{request.node.name}"
