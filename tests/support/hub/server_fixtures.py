"""Whole hubs, run as processes, and a client that shares no code with them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest


@pytest.fixture(scope="session")
def refusal() -> type[Any]:
    """What a client raises when the hub says no."""
    from support.hub.spec_client import Refused

    return Refused


@pytest.fixture(scope="session")
def refused() -> Callable[[str], Any]:
    """Expects a refusal by its code and detail_enum."""
    from support.hub.spec_client import Refused

    @contextmanager
    def expect(reason: str) -> Iterator[None]:
        with pytest.raises(Refused) as caught:
            yield
        assert caught.value.reason == reason

    return expect


@pytest.fixture(scope="session")
def run_veen() -> Callable[..., Any]:
    """Runs a command of the product."""
    from support.hub import hub_process

    return hub_process.veen


@pytest.fixture(scope="session")
def wait_until() -> Callable[..., None]:
    from support.hub import hub_process

    return hub_process.wait_until


@contextmanager
def _hubs(folder: Path) -> Iterator[Callable[..., Any]]:
    from support.hub.hub_process import HubProcess

    with ExitStack() as ending:

        def make(*options: object, name: str = "hub", toml: str = "", **more: Any) -> Any:
            root = folder / name
            root.mkdir(exist_ok=True)
            if toml:
                (root / "hub.toml").write_text(toml)
                options = (*options, "--config", root / "hub.toml")
            hub = HubProcess(root, *options, **more)
            ending.callback(hub.destroy)
            return hub

        yield make


@pytest.fixture
def make_hub(tmp_path: Path) -> Iterator[Callable[..., Any]]:
    """A hub that is not started; whatever becomes of it, it is gone after the test."""
    with _hubs(tmp_path) as make:
        yield make


@pytest.fixture(scope="module")
def make_shared_hub(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[..., Any]]:
    """The same for all tests of a file."""
    with _hubs(tmp_path_factory.mktemp("shared")) as make:
        yield make


@pytest.fixture
def open_hub(make_hub: Callable[..., Any]) -> Any:
    """A running hub where anyone may write and read."""
    from support.hub.hub_process import OPEN

    return make_hub(*OPEN).start()


@pytest.fixture(scope="module")
def shared_hub(make_shared_hub: Callable[..., Any]) -> Any:
    """One for all tests of a file, which write to streams of their own."""
    from support.hub.hub_process import OPEN

    return make_shared_hub(*OPEN).start()


@pytest.fixture
def stream(request: pytest.FixtureRequest) -> str:
    """The name of a stream of the test's own."""
    return f"record/{request.node.name}"
