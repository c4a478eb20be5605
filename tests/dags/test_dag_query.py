"""A query on Spark as the service has it run: by the DAG, and taken back by the service."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from dag_zones import HTTP, Run, Site, veen

from recorder import settings as recorder_settings
from recorder.query.descriptor import normalise
from recorder.query.digest import ResultDigest
from recorder.service.scheduling import JobFailed, SparkWork
from recorder.service.spark_engine import SparkEngine
from veen.recorder_checkpoint import RecorderCheckpoint

pytestmark = pytest.mark.timeout(900)

RESULT, TWICE, UNKNOWN = ("r-" + one * 32 for one in "123")


class ByDag:
    """The port that the service schedules by; here Airflow is asked in processes."""

    def __init__(self, site: Site, *more: dict[str, object]) -> None:
        """``more`` are the runs that are made at once, each as its own process."""
        self._site = site
        self._more = more
        self.runs: list[Run] = []

    def run(self, work: SparkWork, is_over: Callable[[], bool]) -> None:  # noqa: ARG002 - the port
        asked = {"dag_id": "veen_query", "conf": {"result_id": work.result_id}}
        begun = [self._site.begin(asked | one) for one in self._more]
        self.runs = [run for one in begun for run in one.ended()]
        for run in self.runs:
            if run.state != "success":
                raise JobFailed(run.log[-4000:])


@pytest.fixture(scope="module")
def z1(pair: tuple[Site, Site]) -> Site:
    return pair[0]


@pytest.fixture(scope="module")
def checkpoint(z1: Site, tmp_path_factory: pytest.TempPathFactory) -> RecorderCheckpoint:
    who = ["--client", str(z1.home.identity("admin").root), "--principal", "admin"]
    veen("recorder", "checkpoint", "create", "--config", str(z1.file), *who)
    last = tmp_path_factory.mktemp("query") / "last.cbor"
    veen("recorder", "checkpoint", "latest", "--config", str(z1.file), "--out", str(last))
    return RecorderCheckpoint.decode(last.read_bytes())


def answered(
    z1: Site, by: ByDag, result_id: str, checkpoint: RecorderCheckpoint, rows: Path
) -> ResultDigest:
    results = recorder_settings.load(z1.file).query.results
    asked = {
        "scope": [HTTP],
        "filter": {},
        "projection": ["origin", "receipt_id"],
        "evidence": {"mode": "full"},
    }
    descriptor = normalise(asked, query_id_if_missing="q-" + "3" * 32)
    engine = SparkEngine(by, results / "spark", rows, lambda: 1)
    return engine.run(descriptor, result_id, checkpoint)


def test_the_service_takes_what_a_killed_run_has_left_at_last(
    z1: Site, checkpoint: RecorderCheckpoint, tmp_path: Path
) -> None:
    killed, twice = ByDag(z1, {"kill": 3}), ByDag(z1, {}, {})
    one = answered(z1, killed, RESULT, checkpoint, tmp_path)
    both = answered(z1, twice, TWICE, checkpoint, tmp_path)
    assert one.row_count == both.row_count == 20
    assert one.rows_hash == both.rows_hash
    for run in (*killed.runs, *twice.runs):
        assert run.tasks == {"push": "success", "answer": "success"}
    assert len(killed.runs[0].killed) == 2
    assert {one.id: one.state for one in z1.made("query")} == {RESULT: "done", TWICE: "done"}


def test_a_run_that_fails_says_so_and_names_the_runbook(z1: Site) -> None:
    (run,) = z1.run({"dag_id": "veen_query", "conf": {"result_id": UNKNOWN}})
    assert run.state == "failed"
    assert run.tasks["answer"] == "failed"
    assert 'docs/runbook.md, section "A query has failed on Spark"' in run.log
    assert (UNKNOWN, "failed") in [(one.id, one.state) for one in z1.made("query")]
    results = recorder_settings.load(z1.file).query.results
    assert not (results / "spark" / UNKNOWN / "out").exists()
