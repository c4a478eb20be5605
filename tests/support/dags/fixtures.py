"""A database for Airflow, and a pair of zones whose DAGs run."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest


@pytest.fixture(scope="session")
def airflow_database() -> Iterator[Any]:
    from support.dags import dag_zones

    # Each pytest that starts closes the folder of all of them to other users; PostgreSQL is one.
    with (
        tempfile.TemporaryDirectory(prefix="veen-dags-") as folder,
        dag_zones.database(Path(folder)) as path,
    ):
        yield path


@pytest.fixture(scope="module")
def dag_zone_pair(airflow_database: Any, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """An online zone z1 with events, and an offline zone z2; both hubs run."""
    from support.dags import dag_zones

    with dag_zones.zone_pair(tmp_path_factory.mktemp("pair"), airflow_database) as zones:
        zones[0].emit(20)
        yield zones
