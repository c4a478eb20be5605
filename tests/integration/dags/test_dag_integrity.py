"""The DAGs as Airflow sees them: they load quickly, say what they are, and approve nothing."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from support.dags.dag_zones import veen
from support.paths import ROOT, SUPPORT
from zone.directory import ZoneHome, environment

BOTH = {
    "veen_anchor", "veen_archive", "veen_audit", "veen_checkpoint", "veen_fold", "veen_query",
    "veen_retention",
}  # fmt: skip
SPARK = {"veen_audit": "audit", "veen_fold": "events", "veen_query": "answer"}


SCHEDULES = {
    "veen_anchor": ["15 minutes", "veen://checkpoint"],
    "veen_archive": ["veen://checkpoint"],
    "veen_audit": ["17 3 * * *"],
    "veen_checkpoint": ["5 minutes", "veen://volume VolumeTrigger"],
    "veen_export": ["*/15 * * * *"],
    "veen_fold": ["veen://archive"],
    "veen_import": ["veen://medium MediumTrigger"],
    "veen_query": [],
    "veen_reconcile": ["47 4 * * *", "veen://import"],
    "veen_retention": ["23 5 * * 0"],
}


def facts(folder: Path, role: str, change: Callable[[str], str] = str) -> dict[str, Any]:
    """What Airflow makes of the DAGs in a zone of this role, whose file is changed before."""
    home = ZoneHome(folder / role)
    words = ["--directory", str(home.root), "--name", role, "--role", role]
    trust = ["--trust", str(folder / "online" / "handover")] if role == "offline" else []
    veen("zone", "init", *words, *trust)
    home.file.write_text(change(home.file.read_text()))
    ours = {"PATH": "/usr/bin:/bin", "AIRFLOW__DATABASE__SQL_ALCHEMY_CONN": "sqlite://"}
    done = subprocess.run(
        [sys.executable, "-P", str(SUPPORT / "dags" / "dag_facts.py")],
        env=environment(home, home.zone(), ours),
        capture_output=True, text=True, check=False, timeout=200,
    )  # fmt: skip
    lines = [line for line in done.stdout.splitlines() if line.startswith("FACTS ")]
    assert lines, done.stderr[-4000:]
    document: dict[str, Any] = json.loads(lines[0].removeprefix("FACTS "))
    return document


@pytest.fixture(scope="module")
def online(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    return facts(tmp_path_factory.getbasetemp(), "online")


@pytest.fixture(scope="module")
def offline(online: object, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    two = 'needed = 2\npeople = ["operator", "admin", "third"]'
    return facts(
        tmp_path_factory.getbasetemp(),
        "offline",
        lambda text: text.replace('people = ["operator"]', two),
    )


@pytest.fixture(scope="module")
def dags(online: dict[str, Any], offline: dict[str, Any]) -> dict[str, Any]:
    result: dict[str, Any] = online["dags"] | offline["dags"]
    return result


def test_each_zone_has_the_dags_of_its_side(
    online: dict[str, Any], offline: dict[str, Any]
) -> None:
    assert set(online["dags"]) == {*BOTH, "veen_export"}
    assert set(offline["dags"]) == {*BOTH, "veen_import", "veen_reconcile"}


@pytest.mark.parametrize("side", ["online", "offline"])
def test_all_load_without_an_error_quickly_and_without_what_only_tasks_need(
    side: str, request: pytest.FixtureRequest
) -> None:
    result = request.getfixturevalue(side)
    assert result["errors"] == {}
    assert result["heavy"] == []
    assert result["cpu_seconds"] < 3


def test_each_dag_runs_when_it_is_said_to(dags: dict[str, Any]) -> None:
    assert {name: dag["schedule"] for name, dag in dags.items()} == SCHEDULES


def test_a_zone_without_storage_has_every_dag(tmp_path: Path) -> None:
    result = facts(tmp_path, "alone", without_storage)
    assert result["errors"] == {}
    assert set(result["dags"]) == BOTH


def without_storage(text: str) -> str:
    head, _, rest = text.partition("[storage]\n")
    assert rest
    return head + rest[rest.index("\n[") :]


def test_nothing_follows_an_import_of_nothing(offline: dict[str, Any]) -> None:
    tasks = offline["dags"]["veen_import"]["tasks"]
    rules = {name: task["trigger_rule"] for name, task in tasks.items()}
    assert rules.pop("import") == "none_failed"
    assert set(rules.values()) == {"all_success"}


def test_each_dag_says_what_it_is_for_and_how_to_do_it_by_hand(dags: dict[str, Any]) -> None:
    for name, dag in dags.items():
        assert dag["doc"].startswith("### "), name
        assert "Manually: `veen " in dag["doc"], name
        assert not dag["catchup"]
        zone, product = sorted(dag["tags"], key=lambda item: ":" not in item)
        assert zone in ("zone:online", "zone:offline")
        assert product in ("recorder", "query", "bridge", "hub")


def test_one_run_at_a_time_but_for_queries(dags: dict[str, Any]) -> None:
    most = {name: dag["max_active_runs"] for name, dag in dags.items()}
    assert most.pop("veen_query") > 1
    assert set(most.values()) == {1}


def test_every_param_is_typed_and_described(dags: dict[str, Any]) -> None:
    params = {
        (name, key): item for name, dag in dags.items() for key, item in dag["params"].items()
    }
    assert {name for name, _ in params} == {
        "veen_audit", "veen_export", "veen_import", "veen_query"
    }  # fmt: skip
    for key, param in params.items():
        assert param["schema"]["type"], key
        assert param["description"], key
    pattern = params["veen_query", "result_id"]["schema"]["pattern"]
    assert re.fullmatch(pattern, "r-" + "0a" * 16)
    assert not re.fullmatch(pattern, "../../etc")


def test_every_task_that_can_fail_names_a_section_that_the_runbook_has(
    dags: dict[str, Any],
) -> None:
    sections = re.findall(r"^## (.+)$", (ROOT / "docs" / "runbook.md").read_text(), re.MULTILINE)
    for name, dag in dags.items():
        for task, item in dag["tasks"].items():
            if item["runbook"] is not None:
                assert item["runbook"] in sections, (name, task)
                assert item["links"] == ["What it made"], (name, task)
            else:
                assert item["kind"] in ("MediumSensor", "ApprovalOperator"), (name, task)
            assert item["tells"], (name, task)
    assert "Approve an import" in sections


def test_what_grows_with_the_log_goes_to_spark(dags: dict[str, Any]) -> None:
    for name, task in SPARK.items():
        assert "SparkSubmitOperator" in dags[name]["tasks"][task]["bases"]


def test_assets_lead_from_one_dag_to_the_next(dags: dict[str, Any]) -> None:
    outlets = {
        item: name for name, dag in dags.items() for task in dag["tasks"].values()
        for item in task["outlets"]
    }  # fmt: skip
    assert outlets == {
        "veen://checkpoint": "veen_checkpoint",
        "veen://archive": "veen_archive",
        "veen://import": "veen_import",
        "veen://medium": "veen_import",
    }


def test_an_import_asks_two_people_and_nobody_answers_for_them(offline: dict[str, Any]) -> None:
    tasks = offline["dags"]["veen_import"]["tasks"]
    people = [task for name, task in sorted(tasks.items()) if name.startswith("approve_")]
    assert len(people) == 2
    for person in people:
        assert "HITLOperator" in person["bases"]
        assert person["defaults"] is None
        assert person["response_timeout"] is None
    assert people[1]["upstream"] == ["approve_1"]
    assert tasks["import"]["upstream"] == ["approve_2"]
    assert tasks["approve_1"]["upstream"] == ["verify"]


def test_the_sensor_holds_no_slot_while_it_waits(offline: dict[str, Any]) -> None:
    assert offline["dags"]["veen_import"]["tasks"]["carriers"]["mode"] == "reschedule"


def test_a_dag_file_is_short_and_is_named_for_its_dag(dags: dict[str, Any]) -> None:
    for name in dags:
        assert len((ROOT / "dags" / f"{name}.py").read_text().splitlines()) < 50, name
    assert {path.name for path in (ROOT / "dags").glob("*.py")} == {f"{dag}.py" for dag in dags}
    ignored = (ROOT / "dags" / ".airflowignore").read_text().splitlines()[1:]
    assert ignored == ["veen_airflow/"]


def test_without_a_zone_the_dags_say_what_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    from veen_airflow import zone as veen_zone  # noqa: PLC0415 - the environment is read when it is called

    monkeypatch.delenv("VEEN_ZONE", raising=False)
    with pytest.raises(veen_zone.NoZone, match="VEEN_ZONE is not set"):
        veen_zone.zone()
