"""The zone that an Airflow runs for, and what all its DAGs have alike."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from string import ascii_letters, digits
from typing import Any, Final

from veen_airflow.alerts import tell_of_failure
from zone.config import VARIABLE, ZoneConfig, load

CHECKPOINT: Final = "veen://checkpoint"
ARCHIVE: Final = "veen://archive"
IMPORT: Final = "veen://import"
VOLUME: Final = "veen://volume"
MEDIUM: Final = "veen://medium"
_PLAIN: Final = frozenset(f"{ascii_letters}{digits}._-")


class NoZone(Exception):
    """The environment does not say which zone this is."""


def zone() -> ZoneConfig:
    """Read anew whenever a DAG is parsed; it opens nothing but the file."""
    file = os.environ.get(VARIABLE)
    if not file:
        raise NoZone(
            f"{VARIABLE} is not set: name the veen.toml of this zone, as veen zone up does"
        )
    return load(Path(file))


def usual(of: ZoneConfig, product: str, doc: str | None, **changes: Any) -> dict[str, Any]:
    """What a DAG says of itself unless it says otherwise; one run at a time."""
    return {
        "start_date": datetime(2026, 1, 1, tzinfo=UTC),
        "catchup": False,
        "max_active_runs": 1,
        "tags": [f"zone:{of.name}", product],
        "doc_md": doc,
        "default_args": attempts(of),
        **changes,
    }


def attempts(of: ZoneConfig) -> Mapping[str, Any]:
    """How often a task is tried, and who hears of it when it failed for good."""
    return {
        "retries": of.dags.retries,
        "retry_delay": timedelta(seconds=of.dags.retry_sec),
        "on_failure_callback": tell_of_failure,
    }


def at_run(words: Callable[[ZoneConfig], Sequence[str]]) -> Callable[[Any], Sequence[str]]:
    """Words that a zone may not have: whoever runs them is told so, and the DAG is there."""
    return lambda _context: words(zone())


def workplace(of: ZoneConfig, context: Mapping[str, Any]) -> Path:
    """A directory for the files of one run; a second try finds those of the first."""
    run = "".join(item if item in _PLAIN else "_" for item in context["run_id"])
    # Whoever starts a run names it, and Airflow takes "..": that is no directory of its own.
    run = run if run.strip(".") else "_" * len(run)
    folder: Path = of.folder / "runs" / context["dag"].dag_id / run
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    return folder


def write_once(file: Path, data: bytes) -> None:
    """The first one stays: a name says what is in it."""
    from veen.system import durable  # noqa: PLC0415 - only a task needs it

    if not file.exists():
        durable.make_directory(file.parent)
        durable.write(file, data)
