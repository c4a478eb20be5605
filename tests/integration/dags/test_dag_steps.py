"""How a step ends: done, skipped, or failed in words that people can act on; and its alarms."""

from __future__ import annotations

import json
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from veen_airflow.alerts import notify_failure
from veen_airflow.artefacts import DagArtefact, NothingToDo, artefact_state

from support.dags.dag_steps import SECTION, context, loaded
from support.dags.dag_zones import veen
from veen.system.config import BadSettings
from zone.artefacts import Artefact, newest
from zone.config import load

SAYS = f'What to do: docs/runbook.md, section "{SECTION}"'


@pytest.fixture(scope="module")
def operators(tmp_path_factory: pytest.TempPathFactory) -> ModuleType:
    return loaded("veen_airflow.operators", tmp_path_factory.mktemp("airflow"))


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    result = tmp_path_factory.mktemp("zones") / "z1"
    veen("zone", "init", "--directory", str(result), "--name", "z1", "--role", "alone")
    return result / "veen.toml"


@pytest.fixture(autouse=True)
def zone(home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A file of its own for each test, in an empty folder."""
    file = tmp_path / "veen.toml"
    file.write_text(home.read_text())
    monkeypatch.setenv("VEEN_ZONE", str(file))
    return file


def alarms(zone: Path) -> list[Artefact]:
    return list(newest(zone.parent, "alarm", 100))


def a_command(operators: ModuleType, *argv: str) -> Any:
    return operators.VeenOperator(task_id="step", argv=argv, runbook=SECTION)


def a_judge(operators: ModuleType, judge: Any) -> Any:
    return operators.JudgeOperator(task_id="step", judge=judge, runbook=SECTION)


def contradicted(operators: ModuleType, zone: Path) -> Any:
    """A command that ends with 3: what it is given was signed by nobody."""
    file = zone.parent / "checkpoint.cbor"
    file.write_bytes(b"no checkpoint")
    return a_command(operators, "anchor", "verify", "--checkpoint", str(file))


def test_evidence_that_does_not_hold_is_an_alarm(operators: ModuleType, zone: Path) -> None:
    with pytest.raises(operators.AirflowFailException, match="ended with 3") as failed:
        contradicted(operators, zone).execute(context())
    assert str(failed.value).endswith(SAYS)
    (alarm,) = alarms(zone)
    assert (alarm.state, alarm.id, alarm.run_id) == ("raised", "veen_any-step-evidence", "run-1")
    assert "ended with 3" in alarm.summary["what"]


@pytest.mark.parametrize(
    ("code", "is_final", "alarmed"), [(3, True, ["raised"]), (2, True, []), (1, False, [])]
)
def test_a_spark_job_that_finds_what_does_not_hold_is_an_alarm(
    operators: ModuleType, zone: Path, monkeypatch: pytest.MonkeyPatch,
    code: int, is_final: bool, alarmed: list[str],
) -> None:  # fmt: skip
    program = zone.parent / "spark-submit"
    program.write_text(f"#!/bin/sh\nexit {code}\n")
    program.chmod(0o755)
    monkeypatch.setenv("AIRFLOW_CONN_SPARK_DEFAULT", '{"conn_type": "spark", "host": "local"}')
    job = operators.SparkOperator(
        task_id="step", job="fold", arguments=lambda _: (), runbook=SECTION
    )
    job.env_vars = {"PATH": str(zone.parent)}
    with pytest.raises(operators.AirflowException) as failed:
        job.execute(context())
    job._hook._submit_sp.stdout.close()
    assert isinstance(failed.value, operators.AirflowFailException) is is_final
    assert str(failed.value).endswith(SAYS)
    assert [alarm.state for alarm in alarms(zone)] == alarmed


def test_h35_a_failed_run_is_kept_for_the_page_with_its_text_and_runbook_section(
    operators: ModuleType, zone: Path
) -> None:
    step = a_command(operators, "anchor", "verify", "--checkpoint", "/nowhere")
    for run in ("run-1", "run-2"):
        now = context(run_id=run)
        with pytest.raises(operators.AirflowException) as failed:
            step.execute(now)
        notify_failure(now | {"exception": failed.value})
    (alarm,) = alarms(zone)
    assert (alarm.state, alarm.id, alarm.run_id) == ("raised", "veen_any-step-failed", "run-1")
    assert alarm.summary["runbook"] == SECTION
    assert str(failed.value).startswith(alarm.summary["what"])
    a_judge(operators, lambda _: ()).execute(context(run_id="run-3"))
    assert [alarm.state for alarm in alarms(zone)] == ["over"]
    notify_failure(context(run_id="run-4"))
    assert alarms(zone)[0].summary["runbook"] == "A run of a DAG has failed"


def test_h35_a_failure_that_raised_an_alarm_is_reported_once(
    operators: ModuleType, zone: Path
) -> None:
    for run in ("run-1", "run-2"):
        now = context(run_id=run)
        with pytest.raises(operators.AirflowFailException) as failed:
            contradicted(operators, zone).execute(now)
        notify_failure(now | {"exception": failed.value})
    (alarm,) = alarms(zone)
    assert (alarm.id, alarm.summary["runbook"]) == ("veen_any-step-evidence", SECTION)


def test_an_alarm_is_over_when_its_task_has_succeeded_and_another_one_when_it_comes_back(
    operators: ModuleType, zone: Path
) -> None:
    def judge(_context: Any) -> Any:
        raise operators.evidence(context("step"), "it does not hold.")

    for run in ("run-1", "run-2"):
        with pytest.raises(operators.AirflowFailException):
            a_judge(operators, judge).execute(context(run_id=run))
    assert [(alarm.state, alarm.run_id) for alarm in alarms(zone)] == [("raised", "run-1")]
    a_judge(operators, lambda _: ()).execute(context("other"))
    assert [alarm.state for alarm in alarms(zone)] == ["raised"]
    a_judge(operators, lambda _: ()).execute(context(run_id="run-3"))
    assert [(alarm.state, alarm.run_id) for alarm in alarms(zone)] == [("over", "run-1")]
    with pytest.raises(operators.AirflowFailException):
        a_judge(operators, judge).execute(context(run_id="run-4"))
    assert {alarm.id: alarm.state for alarm in alarms(zone)} == {
        "veen_any-step-evidence": "over",
        "veen_any-step-evidence.2": "raised",
    }


@pytest.mark.parametrize(
    ("error", "text"),
    [
        pytest.param(
            BadSettings("veen.toml: notify = 7"), "veen.toml: notify = 7. ", id="settings"
        ),
        pytest.param(OSError(28, "No space left", "/runs"), "No space left: '/runs'. ", id="disk"),
        pytest.param(KeyError("carriers"), "KeyError: 'carriers'. ", id="a fault of ours"),
    ],
)
def test_whatever_fails_a_step_it_names_the_section_of_the_runbook(
    operators: ModuleType, error: Exception, text: str
) -> None:
    def fails(_context: Any) -> Any:
        raise error

    with pytest.raises(operators.AirflowException) as failed:
        operators.VeenOperator(task_id="step", argv=fails, runbook=SECTION).execute(context())
    assert str(failed.value).endswith(text + SAYS)
    assert not isinstance(failed.value, operators.AirflowFailException)
    job = operators.SparkOperator(task_id="job", job="fold", arguments=fails, runbook=SECTION)
    with pytest.raises(operators.AirflowException) as failed:
        job.execute(context())
    assert str(failed.value).endswith(text + SAYS)


def test_where_there_is_no_storage_a_run_says_so(operators: ModuleType, zone: Path) -> None:
    from veen_airflow import commands, results  # noqa: PLC0415
    from veen_airflow import zone as veen_zone  # noqa: PLC0415

    head, _, rest = zone.read_text().partition("[storage]\n")
    zone.write_text(head + rest[rest.index("\n[") :])
    argv = veen_zone.at_run(commands.archive_push)
    asked = operators.VeenOperator(task_id="push", argv=argv, runbook=SECTION)
    with pytest.raises(
        operators.AirflowFailException, match=r"expected \[storage\], got none"
    ) as failed:
        asked.execute(context())
    assert str(failed.value).endswith(SAYS)
    with pytest.raises(NothingToDo, match=r"has no \[storage\]"):
        results.push_argv(context())


def test_a_state_does_not_go_back(operators: ModuleType, zone: Path) -> None:
    def in_state(state: str, is_news: bool = True) -> DagArtefact:
        return DagArtefact(
            kind="checkpoint", id="c", state=state, final="verified", is_news=is_news
        )

    def after(artefact: DagArtefact) -> str | None:
        a_judge(operators, lambda _: [artefact]).execute(context())
        return artefact_state(load(zone), "checkpoint", "c")

    assert after(in_state("signed")) == "signed"
    assert after(in_state("verified")) == "verified"
    assert after(in_state("signed")) == "verified"
    with pytest.raises(Exception, match="nothing is new"):
        after(in_state("signed", is_news=False))


@pytest.mark.parametrize(
    ("whole", "never", "state", "key"),
    [(False, [], "gaps", "gaps"), (False, [{"alarm": "fork"}], "faults", None)],
)
def test_a_reconciliation_with_gaps_is_kept_and_is_an_alarm(
    operators: ModuleType, zone: Path, whole: bool, never: list[Any], state: str, key: str | None
) -> None:
    from veen_airflow import tasks  # noqa: PLC0415 - it imports the zone

    counts = {"imported": 25, "missing": 5, "excluded": 0}
    report = {"events": counts, "alarms": never, "whole": whole}
    place = zone.parent / "runs" / "veen_any" / "run-1"
    place.mkdir(parents=True)
    (place / "report.svg").write_text("<svg/>")
    judge = a_judge(operators, lambda now: tasks.judge_reconciliation(report, now))
    with pytest.raises(operators.AirflowFailException):
        judge.execute(context())
    (stored,) = newest(zone.parent, "reconcile", 10)
    assert (stored.state, stored.summary) == (state, counts)
    assert Path(str(stored.path)).with_suffix(".svg").read_text() == "<svg/>"
    (alarm,) = alarms(zone)
    assert (alarm.state, alarm.id) == ("raised", f"veen_any-{key or stored.id[:16]}")


def test_a_reconciliation_has_the_same_id_by_the_command_and_on_spark(
    operators: ModuleType, zone: Path
) -> None:
    from veen_airflow import tasks  # noqa: PLC0415 - it imports the zone
    from veen_airflow.commands import CommandAnswer  # noqa: PLC0415

    report = {"events": {"imported": 5}, "alarms": [], "whole": True, "closed_before": 1763522400}
    place = zone.parent / "runs" / "veen_any" / "run-1"
    place.mkdir(parents=True)
    (place / "report.json").write_text(json.dumps({"report": report}))
    shown = {"ok": True, **report, "closed_before_iso": "2025-11-19T03:20:00Z"}
    (artefact,) = tasks.reconciled(CommandAnswer(0, shown), context())
    assert tasks.reconciled_on_spark(context()) == [artefact]


def test_an_earlier_report_is_not_judged_if_the_command_gave_none(
    operators: ModuleType, zone: Path
) -> None:
    from veen_airflow import tasks  # noqa: PLC0415 - it imports the zone
    from veen_airflow.alerts import Alarm  # noqa: PLC0415
    from veen_airflow.commands import CommandAnswer  # noqa: PLC0415

    report = {"events": {"imported": 5}, "alarms": [], "whole": True}
    place = zone.parent / "runs" / "veen_any" / "run-1"
    place.mkdir(parents=True)
    (place / "report.json").write_text(json.dumps({"report": report}))
    answer = CommandAnswer(3, {"ok": False, "code": "UNTRUSTED", "detail": "another root"})
    with pytest.raises(Alarm, match="another root"):
        tasks.reconciled(answer, context())
    assert newest(zone.parent, "reconcile", 10) == ()
