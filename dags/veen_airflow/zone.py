"""The zone of this Airflow, and defaults that all its DAGs share."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from string import ascii_letters, digits
from typing import Any, Final

from veen_airflow.alerts import notify_failure
from zone.config import VARIABLE, ZoneConfig, load

CHECKPOINT: Final = "veen://checkpoint"
ARCHIVE: Final = "veen://archive"
IMPORT: Final = "veen://import"
VOLUME: Final = "veen://volume"
MEDIUM: Final = "veen://medium"
_PLAIN: Final = frozenset(f"{ascii_letters}{digits}._-")


class NoZone(Exception):
    """The environment names no zone."""


def zone() -> ZoneConfig:
    """Read the zone's file; called whenever a DAG is parsed."""
    file = os.environ.get(VARIABLE)
    if not file:
        raise NoZone(
            f"{VARIABLE} is not set: name the veen.toml of this zone, as veen zone up does"
        )
    return load(Path(file))


def dag_defaults(
    config: ZoneConfig, product: str, doc: str | None, **changes: Any
) -> dict[str, Any]:
    """Default arguments of a DAG; one run at a time."""
    return {
        "start_date": datetime(2026, 1, 1, tzinfo=UTC),
        "catchup": False,
        "max_active_runs": 1,
        "tags": [f"zone:{config.name}", product],
        "doc_md": doc,
        "default_args": retry_arguments(config),
        **changes,
    }


def retry_arguments(config: ZoneConfig) -> Mapping[str, Any]:
    """Default arguments of a task: its retries, and the callback for its failure."""
    return {
        "retries": config.dags.retries,
        "retry_delay": timedelta(seconds=config.dags.retry_sec),
        "on_failure_callback": notify_failure,
    }


def at_run(argv: Callable[[ZoneConfig], Sequence[str]]) -> Callable[[Any], Sequence[str]]:
    """A command line that is derived when the task runs, since it may fail for this zone."""
    return lambda _context: argv(zone())


def run_directory(config: ZoneConfig, context: Mapping[str, Any]) -> Path:
    """The directory for the files of a run, shared by all tries."""
    run = "".join(character if character in _PLAIN else "_" for character in context["run_id"])
    # The run_id is chosen by whoever starts the run, and Airflow accepts "..".
    run = run if run.strip(".") else "_" * len(run)
    folder: Path = config.folder / "runs" / context["dag"].dag_id / run
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    return folder


def write_once(file: Path, data: bytes) -> None:
    """Write a file unless it exists; its name identifies its content."""
    from veen.system import durable  # noqa: PLC0415 - only a task needs it

    if not file.exists():
        durable.make_directory(file.parent)
        durable.write(file, data)
