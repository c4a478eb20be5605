"""A query on Spark as the service has it run: by the DAG, and taken back by the service."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from dag_zones import HTTP, Run, Site, veen

from recorder import settings as recorder_settings
from recorder.query.descriptor import normalise
from recorder.service.scheduling import JobFailed, SparkWork
from recorder.service.spark_engine import SparkEngine
from veen.recorder_checkpoint import RecorderCheckpoint

pytestmark = pytest.mark.timeout(900)

RESULT = "r-" + "1" * 32
UNKNOWN = "r-" + "2" * 32


class ByDag:
    """The port that the service schedules by; here Airflow is asked in a process."""

    def __init__(self, site: Site) -> None:
        self._site = site
        self.runs: list[Run] = []

    def run(self, work: SparkWork, is_over: Callable[[], bool]) -> None:  # noqa: ARG002 - the port
        self.runs += self._site.run(
            {"dag_id": "veen_query", "conf": {"result_id": work.result_id}},
            {"dag_id": "veen_query", "conf": {"result_id": UNKNOWN}},
        )
        if self.runs[0].state != "success":
            raise JobFailed(self.runs[0].log[-4000:])


@pytest.fixture(scope="module")
def z1(pair: tuple[Site, Site]) -> Site:
    pair[0].configure("retry_sec = 1", "retry_sec = 1\nretries = 0")
    return pair[0]


@pytest.fixture(scope="module")
def scheduler(z1: Site) -> ByDag:
    return ByDag(z1)


@pytest.fixture(scope="module")
def rows(z1: Site, scheduler: ByDag, tmp_path_factory: pytest.TempPathFactory) -> int:
    folder = tmp_path_factory.mktemp("query")
    who = ["--client", str(z1.home.identity("admin").root), "--principal", "admin"]
    veen("recorder", "checkpoint", "create", "--config", str(z1.file), *who)
    last = folder / "last.cbor"
    veen("recorder", "checkpoint", "latest", "--config", str(z1.file), "--out", str(last))
    results = recorder_settings.load(z1.file).query.results
    engine = SparkEngine(scheduler, results / "spark", folder / "rows", lambda: 1)
    asked = {
        "scope": [HTTP],
        "filter": {},
        "projection": ["origin", "receipt_id"],
        "evidence": {"mode": "full"},
    }
    descriptor = normalise(asked, query_id_if_missing="q-" + "3" * 32)
    checkpoint = RecorderCheckpoint.decode(last.read_bytes())
    return engine.run(descriptor, RESULT, checkpoint).row_count


def test_the_service_takes_the_rows_that_the_run_has_left(
    rows: int, scheduler: ByDag, z1: Site
) -> None:
    assert rows == 20
    assert scheduler.runs[0].tasks == {"push": "success", "answer": "success"}
    made = {one.id: one.state for one in z1.made("query")}
    assert made == {RESULT: "done", UNKNOWN: "failed"}


def test_a_run_that_fails_says_so_and_names_the_runbook(
    rows: int, scheduler: ByDag, z1: Site
) -> None:
    run = scheduler.runs[1]
    assert run.state == "failed"
    assert run.tasks["answer"] == "failed"
    assert 'docs/runbook.md, section "A query has failed on Spark"' in run.log
    results = recorder_settings.load(z1.file).query.results
    assert not (results / "spark" / UNKNOWN / "out").exists()
