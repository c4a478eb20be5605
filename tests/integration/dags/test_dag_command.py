"""The runner of commands: what it tells of a failure, and that nothing outlives a task."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import threading
import time
from pathlib import Path

import psutil  # type: ignore[import-untyped]
import pytest
from veen_airflow.commands import Command, CommandFailed, environment

from support.dags.dag_zones import veen
from support.paths import ROOT
from zone.directory import ZoneHome
from zone.directory import environment as zone_environment

SECTION = "Restart the hub"


def a_command(*words: str, **times: float) -> Command:
    return Command(words, environment=environment(), **times)


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def a_hub(folder: Path) -> tuple[str, ...]:
    """A command that runs until it is told to end, with processes of its own."""
    where = ("--data-dir", str(folder / "hub"), "--listen", f"127.0.0.1:{free_port()}")
    return ("hub", "start", "--foreground", "--workers", "1", *where)


def until(happened: object, what: str) -> None:
    deadline = time.monotonic() + 60
    while not happened():  # type: ignore[operator]
        assert time.monotonic() < deadline, what
        time.sleep(0.05)


def processes_of(folder: Path) -> list[psutil.Process]:
    result = []
    for item in psutil.process_iter():
        try:
            if str(folder) in " ".join(item.cmdline()) and item.status() != psutil.STATUS_ZOMBIE:
                result.append(item)
        except psutil.Error:
            continue
    return result


def test_a_failure_names_the_command_the_reason_and_the_section_of_the_runbook(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO")
    words = ("hub", "retention", "--data-dir", str(tmp_path))
    with pytest.raises(CommandFailed) as failed:
        a_command(*words).answer(SECTION)
    message = str(failed.value)
    assert message.startswith(f"veen hub retention --data-dir {tmp_path} ended with 4: ")
    assert "has no log" in message
    assert message.endswith(f'What to do: docs/runbook.md, section "{SECTION}"')
    assert not failed.value.is_final
    assert f"$ veen {' '.join(words)}" in caplog.text


@pytest.mark.parametrize(("words", "code"), [(("hub", "no-such"), 1), (("fold", "x"), 1)])
def test_a_wrong_call_is_final(words: tuple[str, ...], code: int) -> None:
    with pytest.raises(CommandFailed) as failed:
        a_command(*words).answer(SECTION)
    assert f"ended with {code}" in str(failed.value)
    assert failed.value.is_final


def test_an_accepted_code_is_an_answer(tmp_path: Path) -> None:
    words = ("hub", "retention", "--data-dir", str(tmp_path))
    answer = a_command(*words).answer(SECTION, accept=(0, 4))
    assert answer.code == 4
    assert answer.document["code"] == "REFUSED"


def test_only_the_refusal_that_was_named_is_an_answer(tmp_path: Path) -> None:
    refused = a_command("hub", "retention", "--data-dir", str(tmp_path))
    assert refused.answer(SECTION, refusals=("REFUSED",)).code == 4
    with pytest.raises(CommandFailed, match="ended with 4"):
        refused.answer(SECTION, refusals=("NOTHING_ARCHIVED",))


def test_what_a_command_says_beside_its_answer_is_in_the_log(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO")
    out = tmp_path / "me"
    answer = a_command("keygen", "--insecure-plain", "--out", str(out)).answer(SECTION)
    assert len(answer.document["client_id"]) == 64
    assert answer.last_line in caplog.text


def test_a_command_waits_for_another_that_holds_what_it_needs(tmp_path: Path) -> None:
    import fcntl  # noqa: PLC0415 - only this test holds a lock

    where = ("--data-dir", str(tmp_path / "hub"))
    a_hub_once = a_command("hub", "rotate-key", *where, look_sec=0.05)
    (tmp_path / "hub").mkdir()
    with (tmp_path / "hub" / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        timer = threading.Timer(1.5, lambda: fcntl.flock(lock, fcntl.LOCK_UN))
        timer.start()
        with pytest.raises(CommandFailed) as failed:
            a_hub_once.answer(SECTION)
        timer.join()
    assert "held by another hub" not in str(failed.value)


def test_a_command_gives_up_waiting_in_the_end(tmp_path: Path) -> None:
    import fcntl  # noqa: PLC0415 - only this test holds a lock

    hub = tmp_path / "hub"
    hub.mkdir()
    with (hub / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        command = a_command("hub", "rotate-key", "--data-dir", str(hub), lock_timeout_sec=0.0)
        with pytest.raises(CommandFailed, match="held by another hub"):
            command.answer(SECTION)


def test_a_killed_task_ends_the_whole_group_of_its_command(tmp_path: Path) -> None:
    command = a_command(*a_hub(tmp_path))
    ended: list[CommandFailed] = []

    def run() -> None:
        try:
            command.answer(SECTION)
        except CommandFailed as failed:
            ended.append(failed)

    thread = threading.Thread(target=run)
    thread.start()
    until(lambda: len(processes_of(tmp_path)) > 2, "the command has no processes of its own")
    command.end()
    thread.join(60)
    assert not thread.is_alive()
    until(lambda: not processes_of(tmp_path), "something outlives the command")


def test_a_command_ends_when_its_task_is_killed_outright(tmp_path: Path) -> None:
    script = (
        "import sys; sys.path.append(sys.argv[1])\n"
        "from veen_airflow.commands import Command, environment\n"
        "Command(sys.argv[2:], environment=environment()).answer('x')\n"
    )
    task = subprocess.Popen(
        [sys.executable, "-c", script, str(ROOT / "dags"), *a_hub(tmp_path)], cwd=ROOT
    )
    mine = {task.pid}
    until(
        lambda: len({process.pid for process in processes_of(tmp_path)} - mine) > 2,
        "nothing started",
    )
    os.kill(task.pid, signal.SIGKILL)
    task.wait(10)
    until(lambda: not processes_of(tmp_path), "something outlives the task")


SPARK_TASK = """
import sys; sys.path.append(sys.argv[1])
from veen_airflow.operators import SparkOperator
task = SparkOperator(task_id="job", job="fold", arguments=lambda _: (), runbook="x")
task.env_vars = {"PATH": sys.argv[2]}
task._get_hook().submit("job.py")
"""


def test_a_spark_job_ends_when_its_task_is_killed_outright(tmp_path: Path) -> None:
    home = ZoneHome(tmp_path / "z1")
    veen("zone", "init", "--directory", str(home.root), "--name", "z1", "--role", "alone")
    spark = tmp_path / "bin" / "spark-submit"
    spark.parent.mkdir()
    spark.write_text(
        f"#!/bin/sh\nexec /bin/sh -c 'while :; do /bin/sleep 1; done' {tmp_path}/job\n"
    )
    spark.chmod(0o755)
    ours = os.environ | {"AIRFLOW__DATABASE__SQL_ALCHEMY_CONN": "sqlite://"}
    task = subprocess.Popen(
        [sys.executable, "-P", "-c", SPARK_TASK, str(ROOT / "dags"), str(spark.parent)],
        env=zone_environment(home, home.zone(), ours),
    )
    until(lambda: processes_of(tmp_path / "job"), "nothing started")
    os.kill(task.pid, signal.SIGKILL)
    task.wait(10)
    until(lambda: not processes_of(tmp_path / "job"), "Spark outlives the task")
