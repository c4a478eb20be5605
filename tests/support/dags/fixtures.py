"""One pair of zones for all tests here."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from support.dags import dag_zones


@pytest.fixture(scope="session")
def database() -> Iterator[Any]:
    # Each pytest that starts closes the folder of all of them to other users; PostgreSQL is one.
    with (
        tempfile.TemporaryDirectory(prefix="veen-dags-") as folder,
        dag_zones.database(Path(folder)) as path,
    ):
        yield path


@pytest.fixture(scope="module")
def pair(database: Any, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """An online zone z1 with events, and an offline zone z2; both hubs run."""
    with dag_zones.zone_pair(tmp_path_factory.mktemp("pair"), database) as result:
        result[0].emit(20)
        yield result
