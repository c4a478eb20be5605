"""An online zone with a hub that runs as a process, and media to export to."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from bridge.carrier.verify import VerifyContext, VerifyReport, check_carrier
from bridge.errors import Level
from support.bridge import online_zone


@pytest.fixture(scope="module")
def export_zone(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """One for all tests of a file."""
    with online_zone.running(tmp_path_factory.mktemp("zone")) as result:
        yield result


@pytest.fixture
def new_medium(tmp_path: Path) -> Callable[[], Path]:
    numbers = itertools.count(1)

    def new() -> Path:
        path = tmp_path / f"medium-{next(numbers)}"
        path.mkdir()
        return path

    return new


@pytest.fixture
def fresh(export_zone: Any, new_medium: Callable[[], Path]) -> Any:
    """The zone with three changes that were not exported yet, and nothing else."""
    export_zone.advance(new_medium())
    return export_zone


@pytest.fixture
def check(export_zone: Any, tmp_path: Path) -> Callable[..., VerifyReport]:
    """The check of one carrier, as whoever receives it makes it."""

    def of(*bags: Path, level: Level = Level.VALID, **more: Any) -> VerifyReport:
        scratch = tmp_path / "scratch"
        scratch.mkdir(exist_ok=True)
        return check_carrier(
            bags, level, VerifyContext(trust=export_zone.trust(), scratch=scratch, **more)
        )

    return of
