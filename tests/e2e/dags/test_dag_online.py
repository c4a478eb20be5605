"""Every DAG of an online zone, run as ``airflow dags test`` runs it, against a real hub."""

from __future__ import annotations

import pytest

from support.dags.dag_zones import HTTP, Run, Site, veen
from zone.artefacts import Artefact

pytestmark = pytest.mark.timeout(900)


@pytest.fixture(scope="module")
def z1(dag_zone_pair: tuple[Site, Site]) -> Site:
    return dag_zone_pair[0]


@pytest.fixture(scope="module")
def runs(z1: Site) -> list[Run]:
    """In one process, since the start of Airflow costs more than all of them."""
    streams = f'streams = ["{HTTP}", "record/security/access"]'
    z1.configure("[dags.acting]", f"[dags.fold]\n{streams}\n[dags.acting]")
    names = ["checkpoint", "checkpoint", "anchor", "archive", "archive", "export", "export"]
    names += ["fold", "retention", "audit"]
    again = {"dag_id": "veen_export", "conf": {"ranges": [f"{HTTP}=3..4"]}}
    return z1.run(*({"dag_id": f"veen_{name}"} for name in names), again)


def one_of(runs: list[Run], name: str, number: int = 0) -> Run:
    return [run for run in runs if run.dag_id == name][number]


def in_state(z1: Site, kind: str, state: str) -> list[Artefact]:
    return [item for item in z1.artefacts(kind) if item.state == state]


def test_a_checkpoint_is_signed_and_verified(runs: list[Run], z1: Site) -> None:
    run = one_of(runs, "veen_checkpoint")
    assert run.tasks == {"create": "success", "verify": "success"}
    assert "$ veen recorder checkpoint create --config" in run.log
    assert any(item.run_id == run.run_id for item in in_state(z1, "checkpoint", "verified"))


def test_where_nothing_has_moved_a_run_is_skipped(runs: list[Run]) -> None:
    again = one_of(runs, "veen_checkpoint", 1)
    assert set(again.tasks.values()) == {"skipped"}
    assert "nothing is new" in again.log
    assert set(one_of(runs, "veen_archive", 1).tasks.values()) == {"skipped"}
    assert set(one_of(runs, "veen_export", 1).tasks.values()) == {"skipped"}


def test_an_anchor_is_published_and_verified(runs: list[Run], z1: Site) -> None:
    assert set(one_of(runs, "veen_anchor").tasks.values()) == {"success"}
    assert in_state(z1, "anchor", "verified")


def test_an_archive_is_pushed_and_verified(runs: list[Run], z1: Site) -> None:
    assert set(one_of(runs, "veen_archive").tasks.values()) == {"success"}
    assert in_state(z1, "archive", "verified")


def test_an_export_leaves_a_checked_carrier_on_the_medium(runs: list[Run], z1: Site) -> None:
    assert set(one_of(runs, "veen_export").tasks.values()) == {"success"}
    (artefact,) = [item for item in z1.artefacts("export") if item.summary["stream"] == HTTP]
    assert (artefact.state, artefact.summary["from_seq"], artefact.summary["to_seq"]) == (
        "intact",
        1,
        20,
    )


def test_an_export_brings_again_what_it_is_asked_for(runs: list[Run], z1: Site) -> None:
    run = one_of(runs, "veen_export", 2)
    assert set(run.tasks.values()) == {"success"}, run.log[-4000:]
    assert f"--range {HTTP}=3..4" in run.log


def test_a_fold_is_stated_and_verified_and_a_stream_without_events_is_left_out(
    runs: list[Run], z1: Site
) -> None:
    run = one_of(runs, "veen_fold")
    assert run.tasks["events"] == "skipped"
    assert "plaintext_at_rest is not true" in run.log
    assert run.tasks["verify"] == "success"
    (artefact,) = z1.artefacts("fold")
    assert artefact.summary["upto_stream_seq"] == 20


def test_retention_stops_no_hub_where_nothing_is_due(runs: list[Run]) -> None:
    run = one_of(runs, "veen_retention")
    assert set(run.tasks.values()) == {"skipped"}
    assert "veen hub stop" not in run.log


def test_an_audit_is_recorded_as_an_event_and_anchored(runs: list[Run], z1: Site) -> None:
    run = one_of(runs, "veen_audit")
    assert set(run.tasks.values()) == {"success"}
    (artefact,) = z1.artefacts("audit")
    assert (artefact.state, artefact.summary["faults"]) == ("whole", 0)
    assert z1.audits() == [artefact.id]
    (checkpoint,) = [item for item in z1.artefacts("checkpoint") if item.run_id == run.run_id]
    listed = veen("anchor", "list", "--config", str(z1.file))["anchors"]
    assert checkpoint.id in [item["checkpoint_id"] for item in listed]
