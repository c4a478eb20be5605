"""H23: a part that ends is started again, with backoff and a limit; strangers are never hit."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import pytest

from cli.zone import _describe, _lines
from hub import settings as hub_settings
from veen.system.child_process import (
    RUN_VARIABLE,
    Born,
    boot_id,
    born,
    every_process,
    of_run,
    of_session,
    stat_of,
)
from veen.system.zone_parts import FILE, decode
from zone import state as states
from zone.directory import ZoneHome
from zone.run import stop
from zone.services import ZoneService, answers
from zone.state import Running, Unstarted, ZoneStage, ZoneState
from zone.supervisor import (
    LIMIT,
    LONGEST_DELAY_SEC,
    STABLE_SEC,
    SupervisedPart,
    Supervisor,
    delay_sec,
)

MakeZone = Callable[..., ZoneHome]
OTHER_BOOT = "00000000-0000-0000-0000-000000000000"
ENDS = [sys.executable, "-c", "print('no such table'); raise SystemExit(3)"]
STAYS = ["sleep", "300"]


@pytest.fixture
def stranger() -> Iterator[subprocess.Popen[bytes]]:
    popen = subprocess.Popen(STAYS, start_new_session=True)
    yield popen
    popen.kill()
    popen.wait()


@pytest.fixture
def orphan() -> Iterator[Born]:
    """A daemon as most are: the leader of its session has ended, the session lives on."""
    code = "import subprocess; print(subprocess.Popen(['sleep', '300'], stdout=-3).pid)"
    done = subprocess.run(
        [sys.executable, "-c", code], stdout=subprocess.PIPE, start_new_session=True, check=True
    )
    result = born(int(done.stdout))
    assert result is not None
    yield result
    result.send(signal.SIGKILL)


def session_of(process: Born) -> int:
    stat = stat_of(process.pid)
    assert stat is not None
    return stat.session


def left_behind(home: ZoneHome, process: Born, run: str | None = None) -> None:
    """The state that a supervisor leaves that had no time to say anything."""
    home.run.mkdir(parents=True, exist_ok=True)
    running = (Running("hub", process, str(home.logs / "hub.log")),)
    states.write(
        home, ZoneState(ZoneStage.UP, Born(process.pid, 1, process.boot), running, run=run)
    )


def test_h23_nothing_of_another_boot_is_signalled(
    tmp_path: Path, a_zone: MakeZone, stranger: subprocess.Popen[bytes]
) -> None:
    """After a reboot a process may have the number and even the start time of one of ours."""
    home, now = a_zone(tmp_path / "z1"), born(stranger.pid)
    assert now is not None
    left_behind(home, replace(now, boot=OTHER_BOOT))
    assert stop(home) is False
    assert stranger.poll() is None
    assert states.read(home).stage is ZoneStage.DOWN


def test_h23_a_state_without_a_boot_id_proves_nothing(
    tmp_path: Path, a_zone: MakeZone, stranger: subprocess.Popen[bytes]
) -> None:
    """As versions before this one wrote it."""
    home, now = a_zone(tmp_path / "z1"), born(stranger.pid)
    assert now is not None
    home.run.mkdir(parents=True, exist_ok=True)
    process = {"pid": now.pid, "born": now.born}
    old = {
        "stage": "up",
        "supervisor": process,
        "running": [{"name": "hub", "process": process, "log": "x"}],
        "detail": [],
    }
    (home.root / FILE).write_text(json.dumps(old))
    assert stop(home) is False
    assert stranger.poll() is None


def test_h23_a_session_is_not_matched_by_its_number_alone(
    tmp_path: Path, a_zone: MakeZone, orphan: Born
) -> None:
    """The leader has ended: whose session it is cannot be told from the number."""
    home = a_zone(tmp_path / "z1")
    left_behind(home, Born(session_of(orphan), 1, boot_id()))
    assert stop(home) is False
    assert orphan.is_alive()


def test_h23_what_a_killed_part_left_is_known_by_the_mark_of_its_run(
    tmp_path: Path, a_zone: MakeZone
) -> None:
    """Even when it has a session of its own and a title in place of its arguments."""
    home, ready = a_zone(tmp_path / "z1"), tmp_path / "ready"
    title = "import setproctitle, time; setproctitle.setproctitle('t' * 500)"
    code = f"{title}; open({str(ready)!r}, 'w').close(); time.sleep(300)"
    marked = subprocess.Popen(
        [sys.executable, "-c", code],
        env={**os.environ, RUN_VARIABLE: "ours", "SPT_NOENV": "1"},
        start_new_session=True,
    )
    try:
        while not ready.exists():
            assert marked.poll() is None
        left_behind(home, Born(1, 1, boot_id()), run="ours")
        assert [item.pid for item in of_run("ours")] == [marked.pid]
        assert of_run("other") == []
        assert stop(home) is True
        assert marked.wait(20) == -signal.SIGTERM
    finally:
        with suppress(ProcessLookupError):
            marked.kill()


def test_h23_a_session_is_that_of_its_living_leader(stranger: subprocess.Popen[bytes]) -> None:
    now = born(stranger.pid)
    assert now is not None
    assert of_session(now) == [now]
    assert of_session(replace(now, born=now.born - 1)) == []
    assert of_session(replace(now, boot=OTHER_BOOT)) == []


def test_h23_a_process_with_a_name_of_any_bytes_stops_no_supervisor() -> None:
    """Anybody on the host may start one; its name stands in /proc/PID/stat."""
    code = (
        "import ctypes, time; ctypes.CDLL(None).prctl(15, b'\\xff\\xfe) 1', 0, 0, 0); "
        "print(flush=True); time.sleep(300)"
    )
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE) as named:
        try:
            assert named.stdout is not None
            named.stdout.readline()
            result = stat_of(named.pid)
            assert result is not None
            assert result.parent == os.getpid()
            assert named.pid in {stat.pid for stat in every_process()}
        finally:
            named.kill()


class Watched:
    """A part with a clock that the test sets; each round ends when its process has."""

    def __init__(self, log: Path, command: list[str]) -> None:
        self.now = 0.0
        self.command = command
        self.log = log
        self.part = SupervisedPart(
            ZoneService(name="p", command=command, probe=lambda _: True), log
        )

    def launch(self, _service: ZoneService) -> subprocess.Popen[bytes]:
        with self.log.open("ab") as log:
            return subprocess.Popen(self.command, stdout=log, start_new_session=True)

    def look(self, after: float = 0.0) -> str | None:
        self.now += after
        return self.part.look(self.now, self.launch)

    def ended(self) -> str | None:
        assert self.part.process is not None
        # Leaves the exit status for the part to find.
        os.waitid(os.P_PID, self.part.process.pid, os.WEXITED | os.WNOWAIT)
        return self.look()


def test_h23_an_ended_part_is_started_again_with_backoff_up_to_a_limit(tmp_path: Path) -> None:
    at = Watched(tmp_path / "log", ENDS)
    assert at.look() == "p: started"
    delays = [delay_sec(number) for number in range(1, LIMIT + 3)]
    assert delays[:4] == [1, 2, 4, 8]
    assert delays[LIMIT - 1 :] == [LONGEST_DELAY_SEC] * 3
    for number, delay in enumerate(delays, start=1):
        messages = at.ended()
        assert messages is not None
        assert messages.startswith("p ended with 3: ")
        assert "no such table" in messages
        assert at.part.is_failing is (number >= LIMIT)
        assert ("5 times in a row" in messages) is (number == LIMIT)
        assert at.look(delay - 0.5) is None
        assert at.look(0.5) == f"p: started again, restart {number}"
    at.ended()
    state = at.part.state()
    assert state is not None
    assert (state.is_ready, state.restarts, state.is_failing) == (False, LIMIT + 2, True)
    assert next(state.wrong()).startswith(f"p is failing, restarted {LIMIT + 2} times: p ended")


def test_h23_a_part_that_stays_has_recovered(tmp_path: Path) -> None:
    at = Watched(tmp_path / "log", STAYS)
    at.look()
    try:
        assert at.look(2) == "p: ready after 2.0 s"
        assert at.part.process is not None
        at.part.process.kill()
        assert "p ended with -9" in (at.ended() or "")
        assert at.part.failures == 1
        at.look(1)
        assert at.look() == "p: ready after 0.0 s"
        assert at.look(STABLE_SEC) is None
        assert "counts as recovered" in (at.look(1) or "")
        assert (at.part.failures, at.part.restarts, at.part.trouble) == (0, 1, "")
    finally:
        assert at.part.process is not None
        at.part.process.kill()
        at.part.process.wait()


def test_h23_a_part_waits_for_what_it_needs_and_is_no_hindrance_to_others(tmp_path: Path) -> None:
    at = Watched(tmp_path / "log", ENDS)
    after = SupervisedPart(
        ZoneService(name="after", command=STAYS, probe=lambda _: True),
        tmp_path / "after.log",
        needs=[at.part],
    )
    at.look()
    for _ in range(LIMIT):
        at.ended()
        assert after.look(at.now, at.launch) is None
        at.look(LONGEST_DELAY_SEC)
    assert (after.is_waiting, after.is_settled, after.is_up) == (True, True, False)
    at.ended()


def test_h23_a_part_that_cannot_be_started_at_all_is_tried_again(tmp_path: Path) -> None:
    at = Watched(tmp_path / "log", [str(tmp_path / "missing")])
    assert "p cannot be started" in (at.look() or "")
    assert at.look(0.5) is None
    assert "p cannot be started" in (at.look(0.5) or "")
    unstarted = at.part.unstarted()
    assert unstarted is not None
    assert unstarted.wrong().startswith("p is not ready: p cannot be started: ")
    assert (at.part.is_waiting, at.part.state()) == (False, None)


def test_h23_a_part_that_runs_once_is_named_while_it_fails(tmp_path: Path) -> None:
    """What waits for the migration of a database is only the consequence."""
    at = Watched(tmp_path / "log", ENDS)
    at.part = SupervisedPart(at.part.service, at.log, once=True)
    at.look()
    assert at.part.state() is None
    at.ended()
    state = at.part.state()
    assert state is not None
    assert next(state.wrong()).startswith("p is not ready: p ended with 3: ")


def test_h23_parts_are_read_from_the_state_that_the_supervisor_writes(
    tmp_path: Path, a_zone: MakeZone
) -> None:
    home = a_zone(tmp_path / "z1")
    home.run.mkdir(parents=True, exist_ok=True)
    failing = Running("hub", Born(1, 1), "log", False, 7, True, "hub ended with 1: no")
    unstarted = Unstarted("postgres", True, "postgres cannot be started: no")
    state = ZoneState(
        ZoneStage.UP, None, (failing,), waiting=("triggerer",), unstarted=(unstarted,)
    )
    states.write(home, state)
    assert states.read(home) == state
    hub, postgres, triggerer = decode((home.root / FILE).read_bytes())
    assert (hub.name, hub.is_ready, hub.restarts, hub.is_failing) == ("hub", False, 7, True)
    assert (postgres.is_ready, postgres.is_failing) == (False, True)
    assert (triggerer.name, triggerer.is_ready) == ("triggerer", False)
    assert states.read(home).trouble() == (
        "hub is failing, restarted 7 times: hub ended with 1: no",
        "postgres is failing: postgres cannot be started: no",
        "triggerer waits for what it needs",
    )


def test_h23_a_failing_part_of_airflow_does_not_keep_the_hub_from_running(
    tmp_path: Path, a_zone: MakeZone
) -> None:
    """At the start too: the zone is up in part, and says which part is not."""
    home = a_zone(tmp_path / "z1", "alone")
    home.run.mkdir(parents=True, exist_ok=True)
    supervisor = Supervisor(home, None)
    broken = SupervisedPart(
        ZoneService(name="scheduler", command=ENDS, probe=lambda _: True),
        home.logs / "scheduler.log",
        first_delay_sec=0.05,
    )
    supervisor.parts = (supervisor.hub, broken)
    try:
        supervisor._start()
        result = states.read(home)
        assert result.stage is ZoneStage.UP
        assert result.detail[-1] == "up without scheduler; see the logs"
        (trouble,) = result.trouble()
        assert trouble.startswith("scheduler is failing, restarted 4 times: scheduler ended with 3")
        hub = next(running for running in result.running if running.name == "hub")
        assert hub.is_ready
        assert hub.process.is_alive()
        assert answers(f"{hub_settings.load(home.file).url}/readyz")
        first, second, *_ = _lines(_describe(home))
        assert (first, second) == ("z1 is up in part", f"  WRONG: {trouble}")
    finally:
        supervisor.stop_parts()


def test_h23_a_full_disk_stops_the_state_file_and_nothing_else(
    tmp_path: Path, a_zone: MakeZone
) -> None:
    home = a_zone(tmp_path / "z1", "alone")
    home.run.mkdir(parents=True, exist_ok=True)
    home.logs.mkdir(parents=True, exist_ok=True)
    supervisor = Supervisor(home, None)
    stays = SupervisedPart(
        ZoneService(name="hub", command=STAYS, probe=lambda _: True), home.logs / "hub.log"
    )
    supervisor.hub, supervisor.parts = stays, (stays,)
    # Renaming over a directory fails, as any write does without room.
    (home.root / FILE).mkdir()
    try:
        for _ in range(3):
            supervisor._look_safely()
        assert stays.process is not None
        assert stays.process.poll() is None
        (home.root / FILE).rmdir()
        supervisor._look_safely()
        assert states.read(home).running[0].is_ready
    finally:
        supervisor.stop_parts()
