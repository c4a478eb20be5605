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


@pytest.fixture
def z1(database: Any, tmp_path: Path) -> Iterator[Site]:
    (tmp_path / "retained").mkdir()
    with dag_zones.zone_pair(tmp_path / "retained", database, SMALL) as (found, _):
        found.emit(40)
        yield found


def chunks(z1: Site) -> int:
    return len(list((z1.home.hub / "log").glob("chunk-*.log")))


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
    archived = veen("archive", "verify", *z1.home.zone().storage.options(), "--read-all")
    assert archived["ok"]
    rows = veen("hub", "health", "--hub", str(z1.home.hub))
    assert rows["ok"]
