"""Prints what Airflow makes of the DAGs of a zone, as one JSON document."""

from __future__ import annotations

import json
import os
import sys
import time
from pathlib import Path
from typing import Any

from airflow.dag_processing.dagbag import BundleDagBag
from airflow.serialization.serialized_objects import DagSerialization

HEAVY = ("pyspark", "boto3", "cbor2", "nacl", "flask", "httpx", "pyarrow", "bridge.verify")


def main() -> None:
    folder = Path(os.environ["AIRFLOW__CORE__DAGS_FOLDER"])
    before = set(sys.modules)
    began = time.process_time()
    bag = BundleDagBag(str(folder), bundle_path=folder, bundle_name="dags-folder")
    facts = {
        "cpu_seconds": time.process_time() - began,
        "errors": bag.import_errors,
        "heavy": [item for item in HEAVY if item in set(sys.modules) - before],
        "dags": {name: _dag(dag) for name, dag in bag.dags.items()},
    }
    print("FACTS " + json.dumps(facts))


def _dag(dag: Any) -> dict[str, Any]:
    DagSerialization.serialize_dag(dag)
    return {
        "tags": sorted(dag.tags),
        "doc": dag.doc_md or "",
        "max_active_runs": dag.max_active_runs,
        "catchup": dag.catchup,
        "schedule": _schedule(dag.timetable),
        "params": {
            name: {"schema": dag.params.get_param(name).schema,
                   "description": dag.params.get_param(name).description}
            for name in dag.params
        },
        "tasks": {task.task_id: _task(task) for task in dag.tasks},
    }  # fmt: skip


def _schedule(of: Any) -> list[str]:
    """In plain words: cron's, minutes, and the assets that a run comes after."""
    timed = getattr(of, "timetable", of)
    result = [timed.expression] if hasattr(timed, "expression") else []
    if hasattr(timed, "delta"):
        result.append(f"{timed.delta.total_seconds() / 60:g} minutes")
    for object_ in of.asset_condition.objects if of.asset_condition else ():
        watchers = [type(each.trigger).__name__ for each in object_.watchers]
        result.append(" ".join((object_.name, *watchers)))
    return result


def _task(task: Any) -> dict[str, Any]:
    return {
        "kind": type(task).__name__,
        "bases": [item.__name__ for item in type(task).__mro__],
        "runbook": getattr(task, "_runbook", None),
        "upstream": sorted(task.upstream_task_ids),
        "outlets": [outlet.name for outlet in task.outlets],
        "trigger_rule": task.trigger_rule.value,
        "mode": getattr(task, "mode", None),
        "defaults": getattr(task, "defaults", None),
        "response_timeout": getattr(task, "response_timeout", None),
        "links": [operator_extra_link.name for operator_extra_link in task.operator_extra_links],
        "tells": bool(task.on_failure_callback),
    }


if __name__ == "__main__":
    main()
