"""A start that goes wrong: whatever ends it, nothing of the zone is left running."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import pytest

from hub import settings as hub_settings
from support.long_form import LONG
from veen.system.child_process import Born, born, of_run, of_session
from zone import state as states
from zone.directory import ZoneHome
from zone.run import stop
from zone.services import HUB, RECORDER, answers
from zone.state import ZoneStage

pytestmark = pytest.mark.e2e

MakeZone = Callable[..., ZoneHome]
WAIT_SEC = 270.0
# Each costs a start; the third ends like the second.
SIGNALS = [signal.SIGKILL, signal.SIGINT]
if LONG:
    SIGNALS += [signal.SIGTERM]


def veen(*words: str | Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-P", "-m", "cli.main", *map(str, words)]
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=WAIT_SEC)


@pytest.fixture
def home(a_zone: MakeZone, tmp_path: Path) -> Iterator[ZoneHome]:
    """A zone of the test's own, of which nothing runs afterwards."""
    zone = a_zone(tmp_path / "z1")
    yield zone
    stop(zone)


def wait_until(there: Callable[[], object]) -> None:
    deadline = time.monotonic() + WAIT_SEC
    while not there():
        assert time.monotonic() < deadline
        time.sleep(0.1)


def starting(home: ZoneHome) -> subprocess.Popen[bytes]:
    """``veen zone up`` at the moment at which the hub runs and Airflow does not yet."""
    up = subprocess.Popen(
        [sys.executable, "-P", "-m", "cli.main", "zone", "up", "--directory", str(home.root)],
        stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
    )  # fmt: skip
    try:
        wait_until(lambda: any("hub: ready" in line for line in states.read(home).detail))
    except BaseException:
        up.terminate()
        up.wait()
        raise
    return up


def started(home: ZoneHome) -> list[Born]:
    state = states.read(home)
    assert state.supervisor is not None
    return [state.supervisor, *(running.process for running in state.running)]


def left(those: list[Born], run: str | None) -> list[Born]:
    assert run is not None
    result = {item for leader in those for item in (leader, *of_session(leader))} | {*of_run(run)}
    return [item for item in result if item.is_alive()]


def port_is_free(home: ZoneHome) -> bool:
    host, _, port = hub_settings.load(home.file).listen.rpartition(":")
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        with suppress(OSError):
            probe.bind((host, int(port)))
            return True
    return False


def test_a_taken_port_is_refused_and_named(home: ZoneHome) -> None:
    host, _, port = hub_settings.load(home.file).listen.rpartition(":")
    with socket.socket() as taken:
        taken.bind((host, int(port)))
        taken.listen()
        done = veen("zone", "up", "--directory", home.root)
    assert done.returncode == 4
    assert f"cannot listen at {host}:{port}" in done.stderr
    assert "[hub] listen" in done.stderr
    assert states.read(home).stage is ZoneStage.DOWN


@pytest.mark.parametrize("number", SIGNALS)
def test_a_start_that_is_ended_leaves_nothing(home: ZoneHome, number: signal.Signals) -> None:
    up = starting(home)
    those, run = started(home), states.read(home).run
    assert len(left(those, run)) > 3
    up.send_signal(number)
    up.wait(WAIT_SEC)
    wait_until(lambda: not left(those, run))
    assert not states.is_held(home)
    assert port_is_free(home)
    assert states.read(home).stage is ZoneStage.DOWN


def test_what_a_killed_supervisor_leaves_is_stopped_by_down(home: ZoneHome) -> None:
    up = starting(home)
    those, run = started(home), states.read(home).run
    os.kill(those[0].pid, signal.SIGKILL)
    assert up.wait(WAIT_SEC) != 0
    result = veen("zone", "status", "--directory", home.root)
    assert "crashed" in result.stdout or "down" in result.stdout
    assert veen("zone", "down", "--directory", home.root).returncode == 0
    assert left(those, run) == []
    assert port_is_free(home)


def test_a_second_start_is_refused_while_the_first_goes_on(home: ZoneHome) -> None:
    up = starting(home)
    done = veen("zone", "up", "--directory", home.root)
    assert done.returncode == 4
    assert "is up already" in done.stderr
    assert up.poll() is None
    up.terminate()
    up.wait(WAIT_SEC)


def test_a_process_that_cannot_run_is_named_with_its_last_words(home: ZoneHome) -> None:
    """The rest of the zone is stopped, and the status tells why."""
    (home.hub / "hub-identity.sig").write_bytes(bytes(64))
    done = veen("zone", "up", "--directory", home.root)
    assert done.returncode == 4
    assert "hub ended with" in done.stderr
    assert states.read(home).running == ()
    result = veen("zone", "status", "--directory", home.root)
    assert result.returncode == 4
    assert "z1 is failed: hub ended with" in result.stdout


def test_h23_a_zone_that_is_up_in_part_is_reported_with_4_and_records(home: ZoneHome) -> None:
    """Without its database no part of Airflow starts; the hub and the query service do."""
    home.postgres.write_bytes(b"no folder")
    done = veen("zone", "up", "--directory", home.root)
    assert done.returncode == 4, done.stderr
    first, wrong, *_ = done.stdout.splitlines()
    assert first == "z1 is up in part"
    assert wrong.startswith("  WRONG: postgres is failing: postgres cannot be started")
    assert {item.name for item in states.read(home).running if item.process.is_alive()} == {
        HUB, RECORDER,
    }  # fmt: skip
    assert answers(f"{hub_settings.load(home.file).url}/readyz")
    status = veen("zone", "status", "--directory", home.root)
    assert (status.returncode, wrong in status.stdout.splitlines()) == (4, True)
    down = veen("zone", "down", "--directory", home.root)
    assert (down.returncode, down.stdout) == (0, "z1: stopped\n")


def test_down_says_when_nothing_ran(home: ZoneHome) -> None:
    for _ in range(2):
        done = veen("zone", "down", "--directory", home.root)
        assert (done.returncode, done.stdout) == (0, "z1: nothing ran\n")


def test_a_number_that_is_somebody_elses_by_now_is_let_be() -> None:
    """Down goes by number and birth: a process of the same number, born later, is a stranger."""
    stranger = subprocess.Popen(["sleep", "60"], start_new_session=True)
    try:
        result = born(stranger.pid)
        assert result is not None
        earlier = replace(result, born=result.born - 1)
        assert not earlier.is_alive()
        assert of_session(earlier) == []
        earlier.send(signal.SIGKILL)
        assert result.is_alive()
        assert of_session(result) == [result]
    finally:
        stranger.kill()
        stranger.wait()
