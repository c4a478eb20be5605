"""The supervisor of a zone: starts its parts in order, restarts what ends, and stops them."""

from __future__ import annotations

import logging
import os
import secrets
import select
import signal
import subprocess
import sys
import time
from argparse import ArgumentParser
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Final

from veen.errors import Refused, VeenError
from veen.system import durable
from veen.system.child_process import (
    RUN_VARIABLE,
    Born,
    adopt_orphans,
    below,
    born,
    bury,
    end_processes,
    of_run,
)
from zone import services
from zone import state as states
from zone.directory import ZoneHome, environment, has_own_database
from zone.logs import bound, last_words, rotate
from zone.postgres import Postgres
from zone.services import Instance, ZoneService, authorize, is_migrated, mark_migrated, migration
from zone.state import Child, Running, Unstarted, ZoneStage, ZoneState, start, stop

FIRST_DELAY_SEC: Final = 1.0
LONGEST_DELAY_SEC: Final = 300.0
LIMIT: Final = 5
"""Consecutive failures after which a part counts as failing; it is still retried."""

STABLE_SEC: Final = 300.0
"""How long a part must be ready to count as recovered, which resets its failures."""

_LEFT_SEC: Final = 10.0
_ASK_SEC: Final = 0.5

Launch = Callable[[ZoneService], "subprocess.Popen[bytes]"]
CONFIRMED: Final = b"+"
_READY_SEC: Final = 300.0
_LOOK_SEC: Final = 0.2
_ROTATE_SEC: Final = 10.0
_BOUND_SEC: Final = 3_600.0
_SIGNALS: Final = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
_log = logging.getLogger(__name__)


def delay_sec(failures: int, first_sec: float = FIRST_DELAY_SEC) -> float:
    """The backoff before the next start, after so many consecutive failures."""
    if failures >= LIMIT:
        return LONGEST_DELAY_SEC
    return min(first_sec * 2.0 ** (failures - 1), LONGEST_DELAY_SEC)


class SupervisedPart:
    """A part of a zone, started when its ``needs`` are up, and restarted when it ends.

    When one of its needs ends later, it keeps running. ``prepare`` is called before each start. A
    part that runs ``once`` is up when it has ended successfully. Times are those of a monotonic
    clock that the caller reads.
    """

    def __init__(
        self,
        service: ZoneService,
        log: Path,
        *,
        needs: Sequence[SupervisedPart] = (),
        prepare: Callable[[], None] = lambda: None,
        once: bool = False,
        first_delay_sec: float = FIRST_DELAY_SEC,
    ) -> None:
        self.service = service
        self._first_delay_sec = first_delay_sec
        self.log = log
        self.needs = tuple(needs)
        self.process: subprocess.Popen[bytes] | None = None
        self.is_up = False
        self.was_up = False
        self.is_resting = False
        self.restarts = 0
        self.failures = 0
        self.trouble = ""
        self._prepare = prepare
        self._once = once
        self._identity: Born | None = None
        self._due = 0.0
        self._began = 0.0
        self._asked = 0.0
        self._instance: Instance | None = None

    @property
    def name(self) -> str:
        return self.service.name

    @property
    def is_failing(self) -> bool:
        return self.failures >= LIMIT

    @property
    def is_settled(self) -> bool:
        """Whether there is no reason to wait for it: it is up, failing or blocked."""
        return self.is_up or self.is_failing or any(need.is_blocked for need in self.needs)

    @property
    def is_waiting(self) -> bool:
        """Whether it has not been started yet because what it needs is not up."""
        return self._identity is None and not self.failures

    @property
    def is_blocked(self) -> bool:
        return not self.is_up and self.is_settled

    def state(self) -> Running | None:
        """Its state for the state file; None if it never ran, or runs once and did not fail."""
        is_quiet = self._once and not self.failures
        if self._identity is None or is_quiet or self.is_resting:
            return None
        status = (self.is_up, self.restarts, self.is_failing, self.trouble)
        return Running(self.name, self._identity, str(self.log), *status)

    def unstarted(self) -> Unstarted | None:
        """Its failure, if it was tried to start and never had a process."""
        if self._identity is not None or not self.failures:
            return None
        return Unstarted(self.name, self.is_failing, self.trouble)

    def look(self, now: float, launch: Launch) -> str | None:
        """Do what is due; return a line about what changed, if anything did."""
        if self.process is None:
            is_due = not (self.is_resting or (self._once and self.is_up)) and now >= self._due
            return self._start(now, launch) if is_due and self._may_start() else None
        code = self.process.poll()
        if code is not None:
            return self._ended(self.process.pid, code, now)
        if not self.is_up:
            return self._ask(now)
        if self.failures and now > self._began + STABLE_SEC:
            self.failures, self.trouble = 0, ""
            return f"{self.name}: has run for {STABLE_SEC:.0f} s and counts as recovered"
        return None

    def rest(self) -> None:
        """Stop it until ``wake``."""
        self.is_resting, self.is_up = True, False
        self.release()

    def wake(self) -> None:
        self.is_resting, self._due = False, 0.0

    def child(self) -> Child | None:
        return None if self.process is None else Child(self.service, self.process)

    def release(self) -> None:
        """Forget the process, which the caller has stopped."""
        self.process = None

    def _may_start(self) -> bool:
        return all(need.is_up for need in self.needs)

    def _start(self, now: float, launch: Launch) -> str | None:
        try:
            self._prepare()
            self.process = launch(self.service)
        except (VeenError, OSError) as error:
            return self._failed(f"{self.name} cannot be started: {error}", now)
        self._began, self._asked = now, now - _ASK_SEC
        self._identity = born(self.process.pid) or Born(self.process.pid, 0)
        self._instance = Instance(self._identity, time.time())
        if not self.failures:
            return f"{self.name}: started"
        self.restarts += 1
        return f"{self.name}: started again, restart {self.restarts}"

    def _ask(self, now: float) -> str | None:
        if self._once or now < self._asked + _ASK_SEC:
            return None
        self._asked = now
        if not self.service.is_ready(self._instance):
            return None
        self.is_up = self.was_up = True
        took, self._began = now - self._began, now
        return f"{self.name}: ready after {took:.1f} s"

    def _ended(self, pid: int, code: int, now: float) -> str:
        self.process = None
        # Its child processes hold its ports and files, and would run beside the next process.
        end_processes(below(os.getpid(), session=pid), _LEFT_SEC)
        if self._once and code == 0:
            self.is_up, self.failures, self.trouble = True, 0, ""
            return f"{self.name}: done after {now - self._began:.1f} s"
        self.is_up = False
        return self._failed(f"{self.name} ended with {code}: {last_words(self.log)}", now)

    def _failed(self, trouble: str, now: float) -> str:
        self.failures += 1
        self.trouble = trouble
        delay = delay_sec(self.failures, self._first_delay_sec)
        self._due = now + delay
        if self.failures == LIMIT:
            again = f"it ended {LIMIT} times in a row; only every {delay:.0f} s from now on"
        else:
            again = f"started again in {delay:.0f} s"
        return f"{trouble}; {again}"


class SupervisorStopped(Exception):
    """The supervisor was asked to stop, or its starter ended before the zone was up."""


def _no_preparation() -> None:
    """The default ``prepare`` of a part."""


class Supervisor:
    """The first process of a zone: it starts all others, restarts what ends, and stops them.

    ``watch_fd`` is a pipe from the process that starts the zone. Until that has confirmed, the zone
    is stopped when it ends. Without its hub a zone does not come up. Any other part that cannot be
    started is retried while the others run, and whatever ends later is restarted: the end of a
    part stops no other part.
    """

    def __init__(
        self, home: ZoneHome, watch_fd: int | None, rotate_sec: float = _ROTATE_SEC
    ) -> None:
        self._home = home
        self._rotate_sec = rotate_sec
        self._zone = home.zone()
        self._run = secrets.token_hex(16)
        self._environment = environment(home, self._zone, os.environ) | {RUN_VARIABLE: self._run}
        self._watch = watch_fd
        self._asked = False
        self._is_written = True
        self._hindrance = ""
        self._rotated = self._bounded = time.monotonic()
        self._state = ZoneState(ZoneStage.STARTING, born(os.getpid()), run=self._run)
        self.hub = self._part(services.hub(home, self._zone))
        self.parts = self._parts()

    def run(self) -> int:
        for signal_number in _SIGNALS:
            signal.signal(signal_number, self._ask)
        # The starter blocked them until this process was known.
        signal.pthread_sigmask(signal.SIG_UNBLOCK, _SIGNALS)
        adopt_orphans()
        self._write_state()
        try:
            self._start()
            while True:
                self._look_safely()
                time.sleep(_LOOK_SEC)
        except SupervisorStopped:
            return 0
        except (VeenError, OSError) as error:
            _log.critical("%s", error)
            self._write_state(ZoneStage.FAILED, str(error))
            return 1
        finally:
            self._stop()

    def look(self) -> None:
        """A round of supervision: handle requests, restart what has ended, rotate logs."""
        self._check()
        self._handle_rest()
        self._look_at_parts()
        self._rotate_logs()
        if not self._is_written:
            self._write_state()
        bury(but={part.process.pid for part in self.parts if part.process is not None})

    def _look_safely(self) -> None:
        """A round in which an error of the supervisor itself, as a full disk, does not stop the
        hub.
        """
        try:
            self.look()
        except (VeenError, OSError) as error:
            if str(error) != self._hindrance:
                _log.error("the supervisor continues after: %s", error)
            self._hindrance = str(error)
        else:
            self._hindrance = ""

    def stop_parts(self) -> None:
        """Stop parts in reverse order of their start; Airflow's parts except its server
        together.
        """
        names = (services.AIRFLOW_PARTS, (services.SERVER,), (services.RECORDER,))
        for group in (*names, (services.HUB,), (services.POSTGRES, migration().name)):
            self._stop_group(*(part for part in self.parts if part.name in group))

    def _ask(self, *_: object) -> None:
        self._asked = True

    def _parts(self) -> tuple[SupervisedPart, ...]:
        """All parts, the hub first, which needs no other. Airflow's database is migrated while the
        hub and the query service start.
        """
        home, postgres = self._home, Postgres(self._home.postgres)
        embedded = has_own_database(os.environ)
        before: list[SupervisedPart] = []
        if embedded:
            before += [self._part(services.postgres(home), prepare=postgres.prepare)]
        if not (embedded and postgres.exists() and is_migrated(home)):
            create = postgres.create_database if embedded else _no_preparation
            before += [self._part(migration(), needs=before, prepare=create, once=True)]
        recorder = self._part(
            services.query(home), needs=[self.hub], prepare=lambda: authorize(home)
        )
        airflow = [self._part(service, needs=before) for service in services.airflow(self._zone)]
        return (self.hub, recorder, *before, *airflow)

    def _part(
        self,
        service: ZoneService,
        *,
        needs: Sequence[SupervisedPart] = (),
        prepare: Callable[[], None] = _no_preparation,
        once: bool = False,
    ) -> SupervisedPart:
        log = self._log_of(service.name)
        return SupervisedPart(service, log, needs=needs, prepare=prepare, once=once)

    def _start(self) -> None:
        """Start all parts, until each is up or settled."""
        for folder in (self._home.logs, self._home.airflow):
            durable.make_directory(folder)
        for file in (self._home.rest, self._home.resting):
            file.unlink(missing_ok=True)
        deadline = time.monotonic() + _READY_SEC
        while not all(part.is_settled for part in self.parts):
            self.look()
            self._verify_hub(deadline)
            if time.monotonic() > deadline:
                break
            time.sleep(_LOOK_SEC)
        missing = ", ".join(part.name for part in self.parts if not part.is_up)
        self._write_state(ZoneStage.UP, f"up without {missing}; see the logs" if missing else None)

    def _verify_hub(self, deadline: float) -> None:
        if self.hub.failures and not self.hub.was_up:
            raise Refused(self.hub.trouble)
        if not self.hub.was_up and time.monotonic() > deadline:
            raise Refused(f"the hub was not ready within {_READY_SEC:.0f} s; see {self.hub.log}")

    def _look_at_parts(self) -> None:
        for part in self.parts:
            line = part.look(time.monotonic(), self._launch)
            if line is not None:
                if part.name == migration().name and part.is_up:
                    mark_migrated(self._home)
                self._write_state(None, line)

    def _launch(self, service: ZoneService) -> subprocess.Popen[bytes]:
        return start(service, self._home, self._environment, self._log_of(service.name))

    def _handle_rest(self) -> None:
        """Stop only the hub while that is requested, and start it again afterwards."""
        is_asked, is_reported = self._home.rest.exists(), self._home.resting.exists()
        if is_asked and not is_reported:
            if not self.hub.is_resting:
                self._stop_group(self.hub)
                self.hub.rest()
                self._write_state(None, "hub: rests, as it was asked to")
            durable.write(self._home.resting, b"")
        elif not is_asked and self.hub.is_resting:
            self.hub.wake()
        elif is_reported and not is_asked and self.hub.is_up:
            self._home.resting.unlink()

    def _check(self) -> None:
        if self._watch is not None and select.select([self._watch], [], [], 0)[0]:
            said = os.read(self._watch, 1)
            os.close(self._watch)
            self._watch = None
            self._asked |= said != CONFIRMED
        if self._asked:
            raise SupervisorStopped

    def _stop(self) -> None:
        """Stop all parts, then whatever is left of their child processes."""
        for signal_number in _SIGNALS:
            signal.signal(signal_number, signal.SIG_IGN)
        if self._state.stage is not ZoneStage.FAILED:
            self._write_state(ZoneStage.STOPPING)
        self.stop_parts()
        end_processes([*below(os.getpid()), *of_run(self._run)], _LEFT_SEC)
        bury()
        Postgres(self._home.postgres).remove_socket_folder()
        self._write_state(
            ZoneStage.FAILED if self._state.stage is ZoneStage.FAILED else ZoneStage.DOWN
        )

    def _stop_group(self, *parts: SupervisedPart) -> None:
        children = [part.child() for part in parts]
        stop([child for child in children if child is not None])
        for part in parts:
            part.release()

    def _write_state(self, stage: ZoneStage | None = None, line: str | None = None) -> None:
        """Write the state file; if that fails, it is retried later."""
        if stage is not None:
            self._state = replace(self._state, stage=stage)
        if line is not None:
            _log.info("%s", line)
            self._state = self._state.with_line(line)
        is_over = self._state.stage in (ZoneStage.DOWN, ZoneStage.FAILED)
        parts = () if is_over else self.parts
        self._state = replace(
            self._state,
            running=tuple(state for part in parts if (state := part.state()) is not None),
            waiting=tuple(part.name for part in parts if part.is_waiting),
            unstarted=tuple(failed for part in parts if (failed := part.unstarted()) is not None),
        )
        was_written, self._is_written = self._is_written, True
        try:
            states.write(self._home, self._state)
        except (OSError, VeenError) as error:
            self._is_written = False
            if was_written:
                _log.warning("the state of the zone cannot be written: %s", error)

    def _rotate_logs(self) -> None:
        if time.monotonic() < self._rotated + self._rotate_sec:
            return
        self._rotated = time.monotonic()
        for path in self._home.logs.glob("*.log"):
            if rotate(path):
                _log.info("%s is rotated", path)
        if time.monotonic() > self._bounded + _BOUND_SEC:
            self._bounded = time.monotonic()
            if removed := bound(self._home.airflow / "logs"):
                _log.info("%d of the oldest logs of task runs are removed", removed)

    def _log_of(self, name: str) -> Path:
        return self._home.logs / f"{name}.log"


def main(arguments: list[str]) -> int:
    parser = ArgumentParser(description="The supervisor of a zone; `veen zone up` runs it.")
    parser.add_argument("--directory", type=Path, required=True)
    parser.add_argument("--watch-fd", type=int)
    args = parser.parse_args(arguments)
    os.umask(0o077)
    logging.basicConfig(level="INFO", format="%(asctime)s %(levelname)s %(message)s")
    logging.getLogger("httpx").setLevel("WARNING")
    home = ZoneHome(args.directory.absolute())
    try:
        with states.held(home):
            return Supervisor(home, args.watch_fd).run()
    except VeenError as error:
        _log.critical("%s", error)
        return 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
