"""Runs DAGs in this process, as ``airflow dags test`` does, and prints how each run ended.

With ``kill`` each command that a task starts is killed once, somewhere in its middle.
"""

from __future__ import annotations

import json
import os
import random
import sys
import threading
import time
from pathlib import Path
from typing import Any

import psutil  # type: ignore[import-untyped]
from airflow.dag_processing.dagbag import BundleDagBag

MOST_SEC = (0.7, 0.5, 0.3, 0.1)
"""When the strike comes at the latest; on a quick machine all commands may have ended by then, and
the run is made again with earlier ones."""

SPARK, LAUNCHER = "org.apache.spark.deploy.SparkSubmit", "org.apache.spark.launcher.Main"
SPARK_TIMES = 8
"""A Spark job lasts longer than a command, so that the strike may come later."""


class Killer:
    """Kills every command once, by its words; its second try is left alone."""

    def __init__(self, seed: int, most_sec: float) -> None:
        self.killed: list[str] = []
        self._random = random.Random(seed)
        self._most = most_sec
        self._seen: set[tuple[str, ...]] = set()
        self._is_over = threading.Event()
        threading.Thread(target=self._watch, daemon=True).start()

    def stop(self) -> None:
        self._is_over.set()

    def _watch(self) -> None:
        me = psutil.Process()
        while not self._is_over.is_set():
            for child in me.children(recursive=True):
                try:
                    self._strike(child)
                except psutil.Error:
                    continue
            time.sleep(0.02)

    def _strike(self, process: psutil.Process) -> None:
        words = tuple(process.cmdline())
        # Not the scripts before it, nor the launcher that works out how it is called.
        is_spark = (
            words[:1] and words[0].endswith("java") and SPARK in words and LAUNCHER not in words
        )
        if not (is_spark or "cli.main" in words) or words in self._seen:
            return
        self._seen.add(words)
        time.sleep(self._random.uniform(0, self._most) * (SPARK_TIMES if is_spark else 1))
        process.kill()
        self.killed.append(" ".join(words[-6:]))


def main() -> None:
    folder = Path(os.environ["AIRFLOW__CORE__DAGS_FOLDER"])
    bag = BundleDagBag(str(folder), bundle_path=folder, bundle_name="dags-folder")
    assert not bag.import_errors, bag.import_errors
    for load in json.loads(sys.argv[1]):
        dag, killed = bag.dags[load["dag_id"]], list[str]()
        for most_sec in MOST_SEC if "kill" in load else (0.0,):
            killer = Killer(load["kill"], most_sec) if "kill" in load else None
            run = dag.test(run_conf=load.get("conf"))
            if killer:
                killer.stop()
                killed = killer.killed
            if killed:
                break
        print("\n" + json.dumps(_describe(run) | {"killed": killed}), flush=True)


def _describe(run: Any) -> dict[str, Any]:
    tasks = {
        task_instance.task_id: str(task_instance.state)
        for task_instance in run.get_task_instances()
    }
    tries = {
        task_instance.task_id: task_instance.try_number
        for task_instance in run.get_task_instances()
    }
    result = {"dag_id": run.dag_id, "run_id": run.run_id, "state": str(run.state)}
    return result | {"tasks": tasks, "tries": tries}


if __name__ == "__main__":
    main()
