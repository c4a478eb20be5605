"""A query on Spark as the service has it run: by the DAG, and taken back by the service."""

from __future__ import annotations

from pathlib import Path

import pytest

from recorder import settings as recorder_settings
from recorder.query.digest import ResultDigest
from support.dags.dag_queries import ByDag, answered
from support.dags.dag_zones import Site

pytestmark = pytest.mark.timeout(900)

RESULT, TWICE, UNKNOWN = ("r-" + item * 32 for item in "123")


@pytest.fixture(scope="module")
def z1(dag_zone_pair: tuple[Site, Site]) -> Site:
    return dag_zone_pair[0]


@pytest.fixture(scope="module")
def killed(z1: Site) -> ByDag:
    return ByDag(z1, {"kill": 3})


@pytest.fixture(scope="module")
def result(z1: Site, killed: ByDag, tmp_path_factory: pytest.TempPathFactory) -> ResultDigest:
    return answered(z1, killed, RESULT, tmp_path_factory.mktemp("killed"))


@pytest.mark.long
def test_the_service_takes_what_a_killed_run_has_left_at_last(
    z1: Site, killed: ByDag, result: ResultDigest
) -> None:
    assert result.row_count == 20
    (run,) = killed.runs
    assert run.tasks == {"push": "success", "answer": "success"}
    assert len(run.killed) == 2
    assert (RESULT, "done") in [(item.id, item.state) for item in z1.artefacts("query")]


@pytest.mark.long
def test_two_runs_at_once_leave_what_one_run_leaves(
    z1: Site, result: ResultDigest, tmp_path: Path
) -> None:
    twice = ByDag(z1, {}, {})
    assert answered(z1, twice, TWICE, tmp_path).rows_hash == result.rows_hash
    for run in twice.runs:
        assert run.tasks == {"push": "success", "answer": "success"}
    assert (TWICE, "done") in [(item.id, item.state) for item in z1.artefacts("query")]


def test_a_run_that_fails_says_so_and_names_the_runbook(z1: Site) -> None:
    (run,) = z1.run({"dag_id": "veen_query", "conf": {"result_id": UNKNOWN}})
    assert run.state == "failed"
    assert run.tasks["answer"] == "failed"
    assert 'docs/runbook.md, section "A query has failed on Spark"' in run.log
    assert (UNKNOWN, "failed") in [(item.id, item.state) for item in z1.artefacts("query")]
    results = recorder_settings.load(z1.file).query.results
    assert not (results / "spark" / UNKNOWN / "out").exists()
