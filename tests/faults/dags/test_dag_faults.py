"""Commands killed in their middle, and DAGs run twice at once: the result is that of one run."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow.dataset as ds  # type: ignore[import-untyped]
import pytest

from support.dags.dag_zones import HTTP, Run, Site, veen, zone_pair
from support.long_form import LONG

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(900)]

STORED = ("veen_anchor", "veen_archive", "veen_fold") if LONG else ()
NAMES = ("veen_checkpoint", "veen_export", *STORED)
FOLD = f"""[dags.fold]
streams = ["{HTTP}"]
plaintext_at_rest = true
[dags.acting]"""


SMALL = """
[hub.limits]
max_msg_bytes = 4096
max_chunk_bytes = 4500
"""


@pytest.fixture(scope="module")
def z1(airflow_database: Any, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    """With chunks that are sealed after a few events, as the table of events wants them."""
    with zone_pair(tmp_path_factory.mktemp("faults"), airflow_database, SMALL) as (result, _):
        result.configure("[dags.acting]", FOLD)
        result.emit(20)
        yield result


def carried(z1: Site) -> list[tuple[int, int]]:
    """The events of the stream on the medium, by carriers, all of which are whole."""
    result = veen("bridge", "verify", str(z1.home.zone().dags.medium), "--level", "intact")
    rows = [item for item in result["carriers"] if item["stream"] == HTTP]
    return sorted((row["from_seq"], row["to_seq"]) for row in rows)


def checkpoints(z1: Site) -> list[dict[str, Any]]:
    result: list[dict[str, Any]] = veen("recorder", "checkpoint", "list", "--config", str(z1.file))[
        "checkpoints"
    ]
    return result


def archived(z1: Site) -> dict[str, Any]:
    by = ("--hub-identity", str(z1.home.hub))
    storage = z1.home.zone().storage
    assert storage is not None
    return veen("archive", "verify", *storage.arguments(), *by)


def states(z1: Site, kind: str) -> list[str]:
    return [item.state for item in z1.artefacts(kind)]


def rows(z1: Site) -> list[int]:
    """The places of the stream's events in the table of events, which has the sealed chunks."""
    folder = z1.home.root / "objects"
    result = ds.dataset(sorted(str(path) for path in folder.rglob("*.parquet"))).to_table()
    return sorted(result.filter(ds.field("stream_name") == HTTP)["stream_seq"].to_pylist())


@pytest.fixture(scope="module")
def killed(z1: Site) -> list[Run]:
    return z1.run(*({"dag_id": item, "kill": seed} for seed, item in enumerate(NAMES)))


def test_killing_each_command_in_its_middle_leaves_what_one_clean_run_leaves(
    killed: list[Run], z1: Site
) -> None:
    for run in killed:
        assert run.state == "success", run.log[-4000:]
        assert run.killed, run.dag_id
    assert len(checkpoints(z1)) == len(z1.artefacts("checkpoint"))
    assert states(z1, "checkpoint")[-1] == "verified"
    assert carried(z1) == [(1, 20)]
    if STORED:
        assert all(checkpoint["anchors"] >= 1 for checkpoint in checkpoints(z1))
        check_stored(z1, [20])


def check_stored(z1: Site, folded: list[int]) -> None:
    """What went to object storage is there once, up to each of these places."""
    assert archived(z1)["manifest"] == z1.artefacts("archive")[0].id
    assert sorted(item.summary["upto_stream_seq"] for item in z1.artefacts("fold")) == folded
    table = rows(z1)
    assert table == list(range(1, len(table) + 1))
    assert len(table) > folded[-1] // 2


def test_two_runs_at_once_leave_what_one_run_leaves(killed: list[Run], z1: Site) -> None:
    before = len(checkpoints(z1))
    z1.emit(10)
    both = [z1.begin(*({"dag_id": item} for item in NAMES)) for _ in range(2)]
    for running in both:
        for run in running.ended():
            assert run.state == "success", run.log[-4000:]
    assert len(checkpoints(z1)) == before + 1
    assert carried(z1) == [(1, 20), (21, 30)]
    assert set(states(z1, "checkpoint")) == {"verified"}
    if STORED:
        check_stored(z1, [20, 30])


def test_a_run_that_is_killed_as_a_whole_is_finished_by_the_next(
    killed: list[Run], z1: Site
) -> None:
    z1.emit(5)
    last = carried(z1)[-1][1]
    running = z1.begin({"dag_id": "veen_checkpoint"}, {"dag_id": "veen_export"})
    running.says("$ veen bridge export")
    running.process.kill()
    running.process.wait()
    for run in z1.run({"dag_id": "veen_checkpoint"}, {"dag_id": "veen_export"}):
        assert run.state == "success", run.log[-4000:]
    spans = carried(z1)
    assert spans[-1][1] == last + 5
    assert [span[0] for span in spans] == [1, *(span[1] + 1 for span in spans[:-1])]
    assert not list(Path(z1.home.root).glob("**/hub.rest"))


@pytest.mark.long
def test_audits_are_recorded_once_though_killed_or_two_at_once(killed: list[Run], z1: Site) -> None:
    (run,) = z1.run({"dag_id": "veen_audit", "kill": 5})
    assert run.state == "success", run.log[-4000:]
    assert run.killed
    assert z1.audits() == [item.id for item in z1.artefacts("audit")]
    both = [z1.begin({"dag_id": "veen_audit"}) for _ in range(2)]
    for run in (run for item in both for run in item.ended()):
        assert run.state == "success", run.log[-4000:]
    assert sorted(z1.audits()) == sorted(item.id for item in z1.artefacts("audit"))
    assert set(states(z1, "audit")) == {"whole"}
