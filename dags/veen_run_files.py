"""Files of one DAG run that its tasks read instead of XCom: Airflow's API cannot write them.

XCom is for people to look at. Whoever may write to a DAG may write its XCom, so nothing that
decides about an import is read from there.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from veen_zone import workplace, zone

Context = Mapping[str, Any]


def write_run_file(context: Context, name: str, document: Any) -> None:
    from veen import durable  # noqa: PLC0415 - only a task needs it

    durable.write(_path(context, name), json.dumps(document, sort_keys=True).encode())


def read_run_file(context: Context, name: str) -> Any:
    """None if no task of this run has written it."""
    path = _path(context, name)
    return json.loads(path.read_bytes()) if path.exists() else None


def remove_run_file(context: Context, name: str) -> None:
    _path(context, name).unlink(missing_ok=True)


def _path(context: Context, name: str) -> Path:
    return workplace(zone(), context) / f"{name}.json"
