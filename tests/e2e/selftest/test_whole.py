"""The whole self-test passes, and leaves nothing behind, however it ends."""

from __future__ import annotations

import json
import signal
import subprocess
import time
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

import psutil  # type: ignore[import-untyped]
import pytest

from cli.selftest.suite import SUITES
from support.long_form import LONG
from support.selftest import selftest_run

ENDLESS = ("fuzz", "--only", "hub-messages", "--count", 100_000)
HUB_PROCESSES = 4  # supervisor, sequencer, gunicorn and its worker
LARGE = ("--count", 3_000, "--seed", 2) if LONG else ()


@pytest.mark.timeout(3_000)
def test_all_is_green_and_leaves_nothing(tmp_path: Path) -> None:
    done = selftest_run.finish(selftest_run.begin(tmp_path, "all", "--json", *LARGE), timeout=2_900)
    assert done.failed() == {}
    assert (done.code, done.err) == (0, "")
    document = done.document
    assert (document["ok"], document["suite"]) == (True, "all")
    names = [(item["suite"], item["name"]) for item in document["steps"]]
    assert names == [(suite.name, step.name) for suite in SUITES for step in suite.steps]
    assert list(tmp_path.iterdir()) == []
    assert selftest_run.processes_of(tmp_path) == []


@pytest.mark.parametrize(
    ("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143), (signal.SIGHUP, 129)]
)
def test_an_interrupted_run_leaves_nothing(
    number: signal.Signals, code: int, tmp_path: Path
) -> None:
    with selftest_run.running(tmp_path, *ENDLESS) as process:
        _wait_for_work(tmp_path)
        process.send_signal(number)
        done = selftest_run.finish(process, timeout=60)
    assert done.code == code, done
    assert list(tmp_path.iterdir()) == []
    assert selftest_run.processes_of(tmp_path) == []


def test_a_run_interrupted_while_the_hub_starts_leaves_nothing(tmp_path: Path) -> None:
    with selftest_run.running(tmp_path, "core", "--only", "hub-start") as process:
        _wait_until(lambda: selftest_run.hub_of(tmp_path) or process.poll() is not None)
        process.send_signal(signal.SIGTERM)
        done = selftest_run.finish(process, timeout=60)
    assert done.code == 143, done
    assert list(tmp_path.iterdir()) == []
    assert selftest_run.processes_of(tmp_path) == []


@pytest.mark.parametrize("is_killed", [False, True])
def test_a_run_that_ends_while_its_service_runs_leaves_no_process(
    is_killed: bool, tmp_path: Path
) -> None:
    with selftest_run.running(tmp_path, "query", "--only", "pages", "--only", "audit") as process:
        _wait_until(lambda: _runners(tmp_path) or process.poll() is not None)
        process.send_signal(signal.SIGKILL if is_killed else signal.SIGTERM)
        done = selftest_run.finish(process, timeout=60)
    assert done.code == (-signal.SIGKILL if is_killed else 143), done
    _wait_until(lambda: not selftest_run.processes_of(tmp_path))
    assert is_killed or list(tmp_path.iterdir()) == []


def test_a_killed_run_leaves_no_process(tmp_path: Path) -> None:
    with selftest_run.running(tmp_path, *ENDLESS):
        _wait_for_work(tmp_path)
    _wait_until(lambda: not selftest_run.processes_of(tmp_path))


def test_a_hub_that_is_killed_fails_its_step_and_the_next_one_has_another(tmp_path: Path) -> None:
    only = ("--only", "hub-messages", "--only", "hub-queries", "--count", 1_500)
    with selftest_run.running(tmp_path, "fuzz", "--json", *only) as process:
        _wait_for_work(tmp_path)
        # The first process first, and wholly: while it lives, the hub counts as running.
        for item in sorted(selftest_run.hub_of(tmp_path), key=psutil.Process.create_time):
            _kill(item)
            _wait_until(partial(_is_dead, item))
        done = selftest_run.finish(process)
    assert done.code == 5, done
    assert list(done.failed()) == ["hub-messages"], done.failed()
    assert list(tmp_path.iterdir()) == []
    assert selftest_run.processes_of(tmp_path) == []


def test_other_hubs_are_left_alone(tmp_path: Path) -> None:
    """Neither a hub in the working directory nor VEEN_HUB is looked at."""
    folder = tmp_path / "hub"
    folder.mkdir()
    (folder / "here").write_text("mine")
    done = subprocess.run(
        [selftest_run.VEEN, "selftest", "core", "--json", "--only", "hub-start"],
        cwd=tmp_path,
        env=selftest_run.environment(tmp_path) | {"VEEN_HUB": "http://127.0.0.1:1"},
        capture_output=True,
        check=False,
    )
    assert (done.returncode, json.loads(done.stdout)["ok"]) == (0, True)
    assert [path.name for path in tmp_path.iterdir()] == ["hub"]
    assert [path.name for path in folder.iterdir()] == ["here"]


def _wait_for_work(folder: Path) -> None:
    """Until the hub of the run has committed something of a step."""
    _wait_until(lambda: any(folder.glob("veen-selftest-*/hub/log/*.open")))
    _wait_until(lambda: len(selftest_run.hub_of(folder)) >= HUB_PROCESSES)


def _wait_until(happened: Callable[[], Any], seconds: float = 60) -> None:
    deadline = time.monotonic() + seconds
    while not happened():
        assert time.monotonic() < deadline
        time.sleep(0.02)


def _runners(folder: Path) -> list[psutil.Process]:
    """Of a query service: the process that has its client."""
    result = []
    for item in selftest_run.hub_of(folder):
        with suppress(psutil.NoSuchProcess):
            result += [item] if "recorder.service" in item.cmdline() else []
    return result


def _is_dead(process: psutil.Process) -> bool:
    try:
        return bool(process.status() == psutil.STATUS_ZOMBIE)
    except psutil.NoSuchProcess:
        return True


def _kill(process: psutil.Process) -> None:
    try:
        process.kill()
    except psutil.NoSuchProcess:
        return
