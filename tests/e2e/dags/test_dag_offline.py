"""An import from the medium to the receipt: people decide, and nothing else lets a bundle in."""

from __future__ import annotations

import json
import os
import shutil
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from bridge.audit_log import ApprovalRefused, AuditEvent, read_log
from bridge.connect import open_bridge_client
from bridge.settings import load
from bridge.stream_map import OFFLINE_LOG
from support.dags.dag_attacks import every_attack, forged_state, forged_xcom
from support.dags.dag_zones import HTTP, People, Run, Site, veen
from veen.system.environment import Runtime

pytestmark = pytest.mark.timeout(900)

APPROVE, REJECT = "Approve", "Reject"


@pytest.fixture(scope="module")
def z2(dag_zone_pair: tuple[Site, Site]) -> Site:
    """Two of three people let a bundle in."""
    result = dag_zone_pair[1]
    three = 'needed = 2\npeople = ["operator", "admin", "viewer"]'
    result.configure('people = ["operator"]', three)
    return result


@pytest.fixture(scope="module")
def people(z2: Site) -> Iterator[People]:
    with People(z2).served() as result:
        yield result


def carry(pair: tuple[Site, Site]) -> Path:
    """Have what is new carried to the medium of the other zone; the bag that is new there."""
    z1, z2 = pair
    who = ["--client", str(z1.home.identity("admin").root), "--principal", "admin"]
    veen("recorder", "checkpoint", "create", "--config", str(z1.file), *who)
    medium = z1.home.zone().dags.medium
    veen("bridge", "export", "--config", str(z1.file), "--medium", str(medium), "--stream", HTTP)
    there = z2.home.zone().dags.medium / "agb0"
    (bag,) = (path for path in (medium / "agb0").iterdir() if not (there / path.name).exists())
    shutil.copytree(bag, there / bag.name)
    return there / bag.name


def flip(bag: Path) -> None:
    """Change one bit in the middle of the largest file."""
    file = max(
        (path for path in bag.rglob("*") if path.is_file()), key=lambda item: item.stat().st_size
    )
    raw = bytearray(file.read_bytes())
    raw[len(raw) // 2] ^= 1
    file.write_bytes(raw)


def held(z2: Site) -> str | None:
    rows = veen("bridge", "status", "--config", str(z2.file))["streams"]
    return next((row["held"] for row in rows if row["stream"] == HTTP), None)


@pytest.fixture(scope="module")
def approved(dag_zone_pair: tuple[Site, Site], z2: Site, people: People) -> Run:
    """Each command is killed once in its middle; a second try goes on."""
    carry(dag_zone_pair)
    running = z2.begin({"dag_id": "veen_import", "kill": 8})
    first = people.asked("approve_1", running)
    assert held(z2) is None
    assert first["body"].startswith("**1 bundles, 20 events.**")
    assert f"| 1 | `{carried_bundle(z2)}` | {HTTP} | 1 to 20 | 20 | 0 d |" in first["body"]
    attacked = every_attack(people, "service", first)
    assert attacked == dict.fromkeys(attacked, 403)
    assert query_run(people) == ("queued", 200)
    attacked = every_attack(people, "import", first)
    read = {item for item, status in attacked.items() if status == 200}
    assert read == {"read the question"}
    assert people.says("viewer", APPROVE, first) == 403
    assert people.says("operator", APPROVE, first) == 200
    again = people.asked("approve_2", running)
    assert people.says("operator", APPROVE, again) == 200
    asked_again = people.asked("approve_2", running)
    assert held(z2) is None
    assert people.says("admin", APPROVE, asked_again) == 200
    (run,) = running.ended()
    return run


def test_two_different_people_let_a_bundle_in(approved: Run, z2: Site) -> None:
    assert approved.tasks.pop("rest") == "skipped"
    assert set(approved.tasks.values()) == {"success"}
    assert held(z2) == "1..20"
    (artefact,) = z2.artefacts("import")
    assert artefact.state == "imported"
    assert artefact.summary["decided_by"] == ["operator: Approve", "admin: Approve"]
    assert "approved by: operator, admin" in approved.log
    assert "expected another person; asking again" in approved.log


def test_a_killed_command_is_tried_again_and_nothing_is_there_twice(
    approved: Run, z2: Site
) -> None:
    assert approved.killed
    assert 2 in (approved.tries[item] for item in ("verify", "import", "checkpoint", "receipt"))
    report = reconciled(z2)
    assert report["events"]["imported"] == 20
    assert report["alarms"] == []


def test_the_receipt_is_shown_and_a_checkpoint_covers_the_import(approved: Run, z2: Site) -> None:
    assert "Words" in approved.log
    (checkpoint,) = z2.artefacts("checkpoint")
    assert checkpoint.run_id == approved.run_id
    (artefact,) = z2.artefacts("import")
    assert artefact.path is not None
    assert Path(artefact.path).read_text().startswith("<svg")


@pytest.fixture(scope="module")
def twice(approved: Run, dag_zone_pair: tuple[Site, Site], z2: Site, people: People) -> list[Run]:
    """Two runs at once for one carrier; people are asked in both."""
    dag_zone_pair[0].emit(5)
    carry(dag_zone_pair)
    both = [z2.begin({"dag_id": "veen_import"}) for _ in range(2)]
    return people.approve_all({"approve_1": "operator", "approve_2": "admin"}, *both)


def test_two_runs_at_once_let_a_bundle_in_once(twice: list[Run], z2: Site) -> None:
    assert [run.state for run in twice] == ["success", "success"], twice[1].log[-4000:]
    assert held(z2) == "1..25"
    assert [item.state for item in z2.artefacts("import")] == ["imported", "imported"]
    report = reconciled(z2)
    assert report["events"]["imported"] == 25
    assert report["alarms"] == []


@pytest.fixture(scope="module")
def tampered(twice: list[Run], dag_zone_pair: tuple[Site, Site], z2: Site) -> tuple[Run, Path]:
    dag_zone_pair[0].emit(5)
    bag = carry(dag_zone_pair)
    flip(bag)
    (run,) = z2.run({"dag_id": "veen_import"})
    return run, bag


def test_a_tampered_carrier_is_refused_and_nobody_is_asked(
    tampered: tuple[Run, Path], z2: Site
) -> None:
    run, _bag = tampered
    assert run.state == "failed"
    assert run.tasks["judge"] == "failed"
    assert run.tasks["approve_1"] == run.tasks["approve_2"] == run.tasks["checkpoint"] == "skipped"
    assert 'docs/runbook.md, section "A carrier is refused"' in run.log
    assert "NOTICE of zone z2, veen_import: carriers were refused" in run.log
    assert held(z2) == "1..25"
    assert len(list((z2.home.root / "import" / "quarantine").iterdir())) == 1


@pytest.fixture(scope="module")
def rejected(
    tampered: tuple[Run, Path], dag_zone_pair: tuple[Site, Site], z2: Site, people: People
) -> list[Run]:
    _run, bag = tampered
    shutil.rmtree(bag)
    shutil.copytree(dag_zone_pair[0].home.zone().dags.medium / "agb0" / bag.name, bag)
    running = z2.begin({"dag_id": "veen_import"}, {"dag_id": "veen_reconcile", "kill": 2})
    assert people.says("operator", REJECT, people.asked("approve_1", running)) == 200
    return running.ended()


def test_one_rejection_is_enough_and_the_carrier_says_by_whom(
    rejected: list[Run], z2: Site
) -> None:
    run = rejected[0]
    assert run.state == "success"
    assert run.tasks["approve_2"] == run.tasks["checkpoint"] == "skipped"
    assert held(z2) == "1..25"
    artefacts = [item for item in z2.artefacts("import") if item.state == "rejected"]
    assert [item.summary["decided_by"] for item in artefacts] == [["operator: Reject"]]
    reason = z2.home.root / "import" / "quarantine" / artefacts[0].id / "reason.json"
    document = json.loads(reason.read_text())
    assert document["code"] == "REJECTED"
    assert document["detail"] == f"rejected by operator: Airflow's run {run.run_id}"
    assert artefacts[0].id not in [
        item.id for item in z2.artefacts("import") if item.state == "imported"
    ]


def test_gaps_are_an_alarm_and_the_report_is_kept_though_the_command_was_killed(
    rejected: list[Run], z2: Site
) -> None:
    run = rejected[1]
    assert (run.state, len(run.killed)) == ("failed", 1)
    artefact = z2.artefacts("reconcile")[0]
    assert (artefact.state, artefact.summary["imported"]) == ("gaps", 25)
    assert sum(artefact.summary.values()) == 30
    assert "NOTICE of zone z2, veen_reconcile: the bridge has gaps" in run.log
    assert 'docs/runbook.md, section "The bridge has gaps"' in run.log
    alarms = {item.id: item.state for item in z2.artefacts("alarm")}
    assert alarms["veen_reconcile-gaps"] == "raised"


@pytest.mark.long
def test_two_reconciliations_at_once_and_one_on_spark_leave_the_same_files(
    rejected: list[Run], z2: Site
) -> None:
    before = reports(z2)
    assert sorted(before) == ["report.json", "report.svg"]
    both = [z2.begin({"dag_id": "veen_reconcile"}) for _ in range(2)]
    assert [run.state for item in both for run in item.ended()] == ["failed", "failed"]
    (z2.home.root / "reports" / "reconcile").rename(z2.home.root / "reports" / "in-process")
    z2.configure("[dags]", '[dags]\nreconcile_on = "spark"')
    (run,) = z2.run({"dag_id": "veen_reconcile", "kill": 3})
    assert run.tasks == {"facts": "success", "reconcile": "success", "judge": "failed"}
    assert len(run.killed) == 2
    assert reports(z2) == before
    assert len(z2.artefacts("reconcile")) == 1


@pytest.fixture(scope="module")
def forged(
    rejected: list[Run], dag_zone_pair: tuple[Site, Site], z2: Site, people: People
) -> list[Run]:
    """An account that may write to the DAG forges an approval; in a second run people answer."""
    dag_zone_pair[0].emit(5)
    carry(dag_zone_pair)
    running = z2.begin({"dag_id": "veen_import"}, {"dag_id": "veen_import"})
    question = people.asked("approve_1", running)
    insider = people.client("admin")
    assert forged_xcom(insider, question) == 201
    assert forged_state(insider, question) == 200
    second = people.asked("approve_2", running)
    assert forged_state(insider, second, "approve_2") == 200
    again = people.asked("approve_1", running)
    assert again["task_instance"]["dag_run_id"] != question["task_instance"]["dag_run_id"]
    assert people.says("operator", REJECT, again) == 200
    return running.ended()


def test_h05_an_approval_that_nobody_gave_lets_nothing_in_and_is_audited(
    forged: list[Run], z2: Site
) -> None:
    run = forged[0]
    assert (run.state, run.tasks["approve_1"], run.tasks["import"]) == (
        "failed",
        "success",
        "failed",
    )
    assert held(z2) == "1..25"
    refused = "Airflow has no answer of a person to task approve_1; its state was set by hand"
    assert f"NOTICE of zone z2, veen_import: nothing was imported: {refused}" in run.log
    alarms = {item.id: item.state for item in z2.artefacts("alarm")}
    assert alarms["veen_import-approval"] in ("raised", "over")
    result = [item for item in audit_log(z2) if isinstance(item, ApprovalRefused)]
    assert [item.detail for item in result] == [f"{refused} (Airflow's run {run.run_id})"]
    assert result[0].operator == "nobody"
    assert result[0].bundle_id.hex() in run.log


def test_h05_the_next_run_asks_again_about_what_nobody_approved(forged: list[Run]) -> None:
    assert forged[1].state == "success"
    assert "rejected by: operator" in forged[1].log


def query_run(people: People) -> tuple[str, int]:
    """What the query service is there for: to start a query, and to read how it stands."""
    service, runs = people.client("service"), "/api/v2/dags/veen_query/dagRuns"
    result = f"r-{os.urandom(16).hex()}"
    given = {"dag_run_id": result, "logical_date": None, "conf": {"result_id": result}}
    begun = service.post(runs, json=given)
    return begun.json().get("state"), service.get(f"{runs}/{result}").status_code


def audit_log(z2: Site) -> list[AuditEvent]:
    """The entries of the importing bridge's audit log."""
    settings = load(z2.file)
    assert settings.reader is not None
    around = Runtime(clock=lambda: int(time.time()), random=os.urandom, sleep=time.sleep)
    with open_bridge_client(
        settings.hub, settings.reader, runtime=around, keys=settings.reader_keys
    ) as reader:
        return [recorded_entry.event for recorded_entry in read_log(reader, OFFLINE_LOG)]


def carried_bundle(z2: Site) -> str:
    """The one that lies on the medium; it can go in."""
    medium = str(z2.home.zone().dags.medium)
    (row,) = veen("bridge", "verify", medium, "--config", str(z2.file))["carriers"]
    assert (row["reason"], row["obstacle"], row["code"]) == (None, None, None)
    return str(row["bundle_id"])


def reports(z2: Site) -> dict[str, bytes]:
    """The files of the one report that there is, by name."""
    (folder,) = (z2.home.root / "reports" / "reconcile").iterdir()
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def reconciled(z2: Site) -> dict[str, Any]:
    return veen("bridge", "reconcile", "--config", str(z2.file))
