"""A query on Spark as the service has it run: by the DAG, and taken back by the service."""

from __future__ import annotations

from pathlib import Path

import pytest
from dag_queries import ByDag, answered
from dag_zones import Site

from recorder import settings as recorder_settings

pytestmark = pytest.mark.timeout(900)

RESULT, TWICE, UNKNOWN = ("r-" + one * 32 for one in "123")


@pytest.fixture(scope="module")
def z1(pair: tuple[Site, Site]) -> Site:
    return pair[0]


def test_the_service_takes_what_a_killed_run_has_left_at_last(z1: Site, tmp_path: Path) -> None:
    killed, twice = ByDag(z1, {"kill": 3}), ByDag(z1, {}, {})
    one = answered(z1, killed, RESULT, tmp_path)
    both = answered(z1, twice, TWICE, tmp_path)
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
