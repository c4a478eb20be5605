"""The real ``veen`` in an empty home, and hubs that it starts and stops."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from support.cli.cli_binary import Done, Forking


@pytest.fixture(scope="session")
def forking(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Forking]:
    from support.cli.cli_binary import Forking

    server = Forking(tmp_path_factory.mktemp("forking"))
    yield server
    server.end()


@pytest.fixture(scope="session")
def normalised() -> Callable[[str, str], str]:
    from support.cli.cli_normal import normalised

    return normalised


@pytest.fixture(scope="module")
def cli_home(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """An empty home; a hub that runs on ``hub`` in it is stopped."""
    from support.cli.cli_binary import end_hub

    folder = tmp_path_factory.mktemp("home")
    yield folder
    end_hub(folder)


@pytest.fixture(scope="module")
def veen_in_home(cli_home: Path) -> Callable[..., Done]:
    """Runs a command in that home."""
    from support.cli import cli_binary

    def run(*arguments: object, **more: Any) -> Done:
        return cli_binary.veen(*arguments, cwd=cli_home, **more)

    return run


@pytest.fixture(scope="module")
def call_in_home(cli_home: Path) -> Callable[..., Done]:
    """Runs a command in that home and within this process."""
    from support.cli import cli_binary

    def run(*arguments: object, **more: Any) -> Done:
        return cli_binary.called(*arguments, cwd=cli_home, **more)

    return run
