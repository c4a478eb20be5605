"""The operators of the DAGs in this process, and what a task of theirs is told."""

from __future__ import annotations

import os
from collections.abc import Mapping
from importlib import import_module
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

SECTION = "Restart the hub"


def loaded(name: str, folder: Path) -> ModuleType:
    """A module that imports Airflow, which takes seconds and is told to leave our log alone."""
    given = {"AIRFLOW_HOME": str(folder), "_AIRFLOW__AS_LIBRARY": "1"}
    before = {item: os.environ.get(item) for item in given}
    os.environ.update(given)
    try:
        return import_module(name)
    finally:
        for item, value in before.items():
            if value is None:
                del os.environ[item]
            else:
                os.environ[item] = value


class Task:
    """What a task sees of itself and of those before it."""

    def __init__(self, task_id: str, run_id: str, returned: Mapping[str, Any]) -> None:
        self.dag_id, self.task_id, self.run_id, self.try_number = "veen_any", task_id, run_id, 1
        self._returned = returned

    def xcom_pull(self, task_ids: str) -> Any:
        return self._returned.get(task_ids)


def context(
    task_id: str = "step",
    run_id: str = "run-1",
    returned: Mapping[str, Any] | None = None,
    run_type: str = "manual",
    **params: Any,
) -> dict[str, Any]:
    return {
        "ti": Task(task_id, run_id, returned or {}),
        "run_id": run_id,
        "dag": SimpleNamespace(dag_id="veen_any"),
        "dag_run": SimpleNamespace(run_type=run_type),
        "params": params,
    }
