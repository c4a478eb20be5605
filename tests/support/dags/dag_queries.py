"""Queries as the service has Airflow run them, here in processes."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from recorder import settings as recorder_settings
from recorder.query.descriptor import normalise
from recorder.query.digest import ResultDigest
from recorder.service.spark import JobFailed, SparkEngine, SparkWork
from support.dags.dag_zones import HTTP, Run, Site, veen
from veen.recorder_checkpoint import RecorderCheckpoint


class ByDag:
    """The port that the service schedules by; here Airflow is asked in processes."""

    def __init__(self, site: Site, *more: dict[str, object], **keys: str) -> None:
        """``more`` are the runs that are made at once, each as its own process."""
        self._site = site
        self._more = more
        self.keys = keys
        self.runs: list[Run] = []

    def run(self, work: SparkWork, is_over: Callable[[], bool]) -> None:  # noqa: ARG002 - the port
        asked = {"dag_id": "veen_query", "conf": {"result_id": work.result_id}}
        begun = [self._site.begin(asked | item, **self.keys) for item in self._more]
        self.runs = [run for item in begun for run in item.ended()]
        for run in self.runs:
            if run.state != "success":
                raise JobFailed(run.log[-4000:])


def answered(z1: Site, by: ByDag, result_id: str, folder: Path) -> ResultDigest:
    """All events of the stream, up to a checkpoint that is made for it."""
    who = ["--client", str(z1.home.identity("admin").root), "--principal", "admin"]
    veen("recorder", "checkpoint", "create", "--config", str(z1.file), *who, **by.keys)
    last = folder / f"{result_id}.cbor"
    config = ("--config", str(z1.file))
    veen("recorder", "checkpoint", "latest", *config, "--out", str(last), **by.keys)
    asked = {
        "scope": [HTTP],
        "filter": {},
        "projection": ["origin", "receipt_id"],
        "evidence": {"mode": "full"},
    }
    descriptor = normalise(asked, query_id_if_missing="q-" + "3" * 32)
    results = recorder_settings.load(z1.file).query.results
    engine = SparkEngine(by, results / "spark", folder / "rows", lambda: 1)
    return engine.run(descriptor, result_id, RecorderCheckpoint.decode(last.read_bytes()))
