"""Retention beside a hub that others run, and on one of our own: only what may go is gone."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import dag_zones
import pytest
from dag_zones import Site, veen

pytestmark = pytest.mark.timeout(900)

SMALL = """
[hub.limits]
max_msg_bytes = 4096
max_chunk_bytes = 8192
[[hub.retention]]
streams = "record/app/*"
keep_days = 1
"""
TWO_DAYS = {
    "PYTHONPATH": str(Path(__file__).parent / "shifted_clock"),
    "VEEN_TEST_AHEAD_SEC": str(2 * 86_400),
}


@pytest.fixture(scope="module")
def site(database: Any, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    folder = tmp_path_factory.mktemp("retained")
    with dag_zones.zone_pair(folder, database, SMALL) as (found, _):
        yield found


@pytest.fixture
def z1(site: Site) -> Site:
    site.emit(40)
    return site


def chunks(z1: Site) -> int:
    return len(list((z1.home.hub / "log").glob("chunk-*.log")))


def pruned(z1: Site) -> int:
    """How many chunks all runs together say that they have let go."""
    return sum(one.summary["pruned"] for one in z1.made("retention"))


def is_whole(z1: Site) -> bool:
    """What is left verifies, and what is gone is in the archive."""
    archived = veen("archive", "verify", *z1.home.zone().storage.options(), "--read-all")
    return bool(archived["ok"] and veen("hub", "health", "--hub", str(z1.home.hub))["ok"])


def test_due_chunks_go_and_the_hub_proves_that_nothing_else_is_gone(z1: Site) -> None:
    before = chunks(z1)
    checkpoint, kept = z1.run({"dag_id": "veen_checkpoint"}, {"dag_id": "veen_retention"})
    assert checkpoint.state == "success"
    assert kept.tasks["stop"] == "skipped"
    (run,) = z1.run({"dag_id": "veen_retention", "kill": 4}, **TWO_DAYS)
    assert set(run.tasks.values()) == {"success"}, run.log[-6000:]
    assert run.killed
    assert chunks(z1) < before
    assert z1.made("retention")[0].state == "pruned"
    assert is_whole(z1)


@pytest.mark.long
def test_two_runs_at_once_leave_what_one_run_leaves(z1: Site) -> None:
    before, gone = chunks(z1), pruned(z1)
    assert z1.run({"dag_id": "veen_checkpoint"})[0].state == "success"
    both = [z1.begin({"dag_id": "veen_retention"}, **TWO_DAYS) for _ in range(2)]
    for run in (run for one in both for run in one.ended()):
        assert run.state == "success", run.log[-6000:]
    assert chunks(z1) < before
    assert pruned(z1) - gone == before - chunks(z1)
    assert is_whole(z1)
