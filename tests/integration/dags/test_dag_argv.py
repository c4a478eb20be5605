"""What tasks make of the state of a zone before they run anything: anchors, and the medium."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pytest
from veen_airflow import results, tasks
from veen_airflow.alerts import Alarm
from veen_airflow.artefacts import DagRefusal, NothingToDo
from veen_airflow.commands import CommandAnswer

from cli.checkpoint import moment
from support.dags.dag_steps import context
from support.dags.dag_zones import veen

OLDEST = "c0" * 32


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    result = tmp_path_factory.mktemp("zones") / "z1"
    veen("zone", "init", "--directory", str(result), "--name", "z1", "--role", "online")
    return result / "veen.toml"


@pytest.fixture(autouse=True)
def zone(home: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The defaults: an anchor is due within 15 minutes, and an alarm 60 minutes after that."""
    monkeypatch.setenv("VEEN_ZONE", str(home))
    return home


@pytest.fixture
def change(zone: Path) -> Any:
    before = zone.read_text()
    yield lambda old, new: zone.write_text(before.replace(old, new, 1))
    zone.write_text(before)


def listed(minutes: float | None) -> CommandAnswer:
    """What ``veen anchor list`` says of a checkpoint that waits for so long."""
    since = None if minutes is None else moment(int(time.time() - 60 * minutes))
    status = {
        "waiting": int(since is not None), "oldest_waiting": OLDEST if since else None,
        "waiting_since": since, "last_error": "no answer", "late_seconds": 0,
    }  # fmt: skip
    return CommandAnswer(0, {"anchors": [], "status": status})


@pytest.mark.parametrize("minutes", [None, 0, 14, 74])
def test_an_anchor_that_is_not_too_late_is_no_alarm(minutes: float | None) -> None:
    assert results.verify_lateness(listed(minutes), {}) == ()


def test_where_nothing_is_anchored_nothing_is_late() -> None:
    assert results.verify_lateness(CommandAnswer(0, {"anchors": [], "status": {}}), {}) == ()


def test_a_late_anchor_is_an_alarm_though_the_recorder_has_no_cadence_in_minutes() -> None:
    with pytest.raises(Alarm, match=r"anchors are 36\d\d s late: 1 checkpoints wait") as raised:
        results.verify_lateness(listed(76), {})
    assert raised.value.key == f"late-{OLDEST[:16]}"
    assert "last error: no answer" in str(raised.value)


def test_a_zone_that_anchors_once_a_day_is_not_late_within_it(change: Any) -> None:
    change("[recorder.index]", "[recorder.anchor]\nevery_minutes = 1440\n[recorder.index]")
    assert results.verify_lateness(listed(1440 + 59), {}) == ()
    with pytest.raises(Alarm):
        results.verify_lateness(listed(1440 + 61), {})


def test_what_waits_is_reported_with_its_time(zone: Path) -> None:
    status = veen("anchor", "list", "--config", str(zone))["status"]
    assert (status["oldest_waiting"], status["waiting_since"]) == (None, None)


@pytest.mark.parametrize(("run_type", "end"), [("scheduled", NothingToDo), ("manual", DagRefusal)])
def test_without_its_medium_nothing_is_exported_and_no_folder_is_made(
    run_type: str, end: type[Exception], tmp_path: Path
) -> None:
    medium = tmp_path / "usb"
    with pytest.raises(end, match="is no directory; nothing was exported"):
        tasks.export_argv(context(run_type=run_type, medium=str(medium)))
    assert not medium.exists()


def test_where_a_mount_is_asked_for_a_bare_folder_is_no_medium(change: Any, tmp_path: Path) -> None:
    asked = context(medium=str(tmp_path))
    assert "--medium" in tasks.export_argv(asked)
    change("[dags]\n", "[dags]\nmedium_is_mount = true\n")
    with pytest.raises(DagRefusal, match=f"nothing is mounted at {tmp_path}"):
        tasks.export_argv(asked)
    assert "/" in tasks.export_argv(context(medium="/"))


def test_an_export_learns_what_to_bring_again(tmp_path: Path) -> None:
    ranges = ["record/app/http=1..5", "record/app/http=9..9"]
    asked = context(medium=str(tmp_path), ranges=ranges, gap_file="/gap.json", heartbeat=False)
    words = list(tasks.export_argv(asked))
    assert words[words.index("--range") :] == [
        "--range", ranges[0], "--range", ranges[1], "--from-gap-file", "/gap.json"
    ]  # fmt: skip
