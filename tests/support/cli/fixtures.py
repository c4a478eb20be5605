"""The real ``veen`` in an empty home, and hubs that it starts and stops."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from support.cli import cli_binary, cli_normal


@pytest.fixture(scope="session")
def forking(tmp_path_factory: pytest.TempPathFactory) -> Iterator[object]:
    made = cli_binary.Forking(tmp_path_factory.mktemp("forking"))
    yield made
    made.end()


@pytest.fixture(scope="session")
def normalised() -> Callable[[str, str], str]:
    result: Callable[[str, str], str] = cli_normal.normalised
    return result


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """An empty home; a hub that runs on ``hub`` in it is stopped."""
    folder = tmp_path_factory.mktemp("home")
    yield folder
    cli_binary.end_hub(folder)


@pytest.fixture(scope="module")
def veen(home: Path) -> Callable[..., cli_binary.Done]:
    """Runs a command in that home."""

    def run(*arguments: object, **more: Any) -> cli_binary.Done:
        return cli_binary.veen(*arguments, cwd=home, **more)

    return run


@pytest.fixture(scope="module")
def called(home: Path) -> Callable[..., cli_binary.Done]:
    """Runs a command in that home and within this process."""

    def run(*arguments: object, **more: Any) -> cli_binary.Done:
        return cli_binary.called(*arguments, cwd=home, **more)

    return run
