"""The first process of a zone: it starts all others, starts again what ends, and stops them."""

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

from cli import zone_services as services
from cli import zone_state as states
from cli.failure import Refused
from cli.zone_child import start, stop
from cli.zone_environment import environment, has_own_database
from cli.zone_home import ZoneHome
from cli.zone_logs import bound, rotate
from cli.zone_postgres import Postgres
from cli.zone_process import RUN_VARIABLE, adopt_orphans, below, born, bury, end, of_run
from cli.zone_services import Service
from cli.zone_setup import authorize, is_migrated, mark_migrated, migration
from cli.zone_state import Stage, State
from cli.zone_supervised import Part
from veen import durable
from veen.errors import VeenError

CONFIRMED: Final = b"+"
_READY_SEC: Final = 300.0
_LEFT_SEC: Final = 10.0
_LOOK_SEC: Final = 0.2
_ROTATE_SEC: Final = 10.0
_BOUND_SEC: Final = 3_600.0
_SIGNALS: Final = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
_log = logging.getLogger(__name__)


class Stopped(Exception):
    """Somebody has told us to stop, or whoever started us has gone before we were up."""


def _nothing() -> None:
    """What a part needs no preparation for."""


class Supervisor:
    """``watch_fd`` is a pipe from whoever starts the zone. Until it has said that it is content,
    the zone goes when it goes.

    Without its hub a zone does not come up. Any other part that cannot be started is tried again
    beside those that run, and whatever ends later is started again: the end of one part stops no
    other.
    """

    def __init__(self, home: ZoneHome, watch_fd: int | None) -> None:
        self._home = home
        self._zone = home.zone()
        self._run = secrets.token_hex(16)
        self._environment = environment(home, self._zone, os.environ) | {RUN_VARIABLE: self._run}
        self._watch = watch_fd
        self._asked = False
        self._is_written = True
        self._hindrance = ""
        self._rotated = self._bounded = time.monotonic()
        self._state = State(Stage.STARTING, born(os.getpid()), run=self._run)
        self.hub = self._part(services.hub(home, self._zone))
        self.parts = self._parts()

    def run(self) -> int:
        for one in _SIGNALS:
            signal.signal(one, self._ask)
        # Whoever started us has held them back until we are known.
        signal.pthread_sigmask(signal.SIG_UNBLOCK, _SIGNALS)
        adopt_orphans()
        self._tell()
        try:
            self._start()
            while True:
                self._look_on()
                time.sleep(_LOOK_SEC)
        except Stopped:
            return 0
        except (VeenError, OSError) as error:
            _log.critical("%s", error)
            self._tell(Stage.FAILED, str(error))
            return 1
        finally:
            self._stop()

    def look(self) -> None:
        """One round: what has ended is started again, whoever asks is heeded."""
        self._check()
        self._heed_rest()
        self._look_at_parts()
        self._rotate_logs()
        if not self._is_written:
            self._tell()
        bury(but={one.process.pid for one in self.parts if one.process is not None})

    def _look_on(self) -> None:
        """A full disk, or what else hinders the supervisor itself, is no reason to stop a hub."""
        try:
            self.look()
        except (VeenError, OSError) as error:
            if str(error) != self._hindrance:
                _log.error("the supervisor goes on after: %s", error)
            self._hindrance = str(error)
        else:
            self._hindrance = ""

    def stop_parts(self) -> None:
        """Those that were started last first; parts of Airflow but its server together."""
        names = (services.AIRFLOW_PARTS, (services.SERVER,), (services.RECORDER,))
        for group in (*names, (services.HUB,), (services.POSTGRES, migration().name)):
            self._stop_group(*(one for one in self.parts if one.name in group))

    def _ask(self, *_: object) -> None:
        self._asked = True

    def _parts(self) -> tuple[Part, ...]:
        """The hub first: it needs nothing of the others. Airflow's database is made ready while
        the hub and the query service start.
        """
        home, postgres = self._home, Postgres(self._home.postgres)
        embedded = has_own_database(os.environ)
        before: list[Part] = []
        if embedded:
            before += [self._part(services.postgres(home), prepare=postgres.prepare)]
        if not (embedded and postgres.exists() and is_migrated(home)):
            create = postgres.create_database if embedded else _nothing
            before += [self._part(migration(), needs=before, prepare=create, once=True)]
        recorder = self._part(
            services.query(home), needs=[self.hub], prepare=lambda: authorize(home)
        )
        airflow = [self._part(one, needs=before) for one in services.airflow(self._zone)]
        return (self.hub, recorder, *before, *airflow)

    def _part(
        self,
        service: Service,
        *,
        needs: Sequence[Part] = (),
        prepare: Callable[[], None] = _nothing,
        once: bool = False,
    ) -> Part:
        log = self._log_of(service.name)
        return Part(service, log, needs=needs, prepare=prepare, once=once)

    def _start(self) -> None:
        """Until all of it is up, or what is not will not come up soon."""
        for folder in (self._home.logs, self._home.airflow):
            durable.make_directory(folder)
        for file in (self._home.rest, self._home.resting):
            file.unlink(missing_ok=True)
        deadline = time.monotonic() + _READY_SEC
        while not all(one.is_settled for one in self.parts):
            self.look()
            self._refuse_without_hub(deadline)
            if time.monotonic() > deadline:
                break
            time.sleep(_LOOK_SEC)
        missing = ", ".join(one.name for one in self.parts if not one.is_up)
        self._tell(Stage.UP, f"up without {missing}; see the logs" if missing else None)

    def _refuse_without_hub(self, deadline: float) -> None:
        if self.hub.failures and not self.hub.was_up:
            raise Refused(self.hub.trouble)
        if not self.hub.was_up and time.monotonic() > deadline:
            raise Refused(f"the hub is not ready within {_READY_SEC:.0f} s; see {self.hub.log}")

    def _look_at_parts(self) -> None:
        for one in self.parts:
            line = one.look(time.monotonic(), self._launch)
            if line is not None:
                if one.name == migration().name and one.is_up:
                    mark_migrated(self._home)
                self._tell(None, line)

    def _launch(self, one: Service) -> subprocess.Popen[bytes]:
        return start(one, self._home, self._environment, self._log_of(one.name))

    def _heed_rest(self) -> None:
        """Stop the hub alone where somebody asks for that, and start it again afterwards."""
        is_asked, is_told = self._home.rest.exists(), self._home.resting.exists()
        if is_asked and not is_told:
            if not self.hub.is_resting:
                self._stop_group(self.hub)
                self.hub.rest()
                self._tell(None, "hub: rests, as it was asked to")
            durable.write(self._home.resting, b"")
        elif not is_asked and self.hub.is_resting:
            self.hub.wake()
        elif is_told and not is_asked and self.hub.is_up:
            self._home.resting.unlink()

    def _check(self) -> None:
        if self._watch is not None and select.select([self._watch], [], [], 0)[0]:
            said = os.read(self._watch, 1)
            os.close(self._watch)
            self._watch = None
            self._asked |= said != CONFIRMED
        if self._asked:
            raise Stopped

    def _stop(self) -> None:
        """The last first; then whatever is left of what they have started."""
        for one in _SIGNALS:
            signal.signal(one, signal.SIG_IGN)
        if self._state.stage is not Stage.FAILED:
            self._tell(Stage.STOPPING)
        self.stop_parts()
        end([*below(os.getpid()), *of_run(self._run)], _LEFT_SEC)
        bury()
        Postgres(self._home.postgres).remove_socket_folder()
        self._tell(Stage.FAILED if self._state.stage is Stage.FAILED else Stage.DOWN)

    def _stop_group(self, *those: Part) -> None:
        children = [one.child() for one in those]
        stop([one for one in children if one is not None])
        for one in those:
            one.release()

    def _tell(self, stage: Stage | None = None, line: str | None = None) -> None:
        """Write down how things stand; without room for it that is tried again later."""
        if stage is not None:
            self._state = replace(self._state, stage=stage)
        if line is not None:
            _log.info("%s", line)
            self._state = self._state.and_told(line)
        is_over = self._state.stage in (Stage.DOWN, Stage.FAILED)
        parts = () if is_over else self.parts
        self._state = replace(
            self._state,
            running=tuple(found for one in parts if (found := one.state()) is not None),
            waiting=tuple(one.name for one in parts if one.is_waiting),
            unstarted=tuple(failed for one in parts if (failed := one.unstarted()) is not None),
        )
        was_written, self._is_written = self._is_written, True
        try:
            states.write(self._home, self._state)
        except (OSError, VeenError) as error:
            self._is_written = False
            if was_written:
                _log.warning("the state of the zone cannot be written: %s", error)

    def _rotate_logs(self) -> None:
        if time.monotonic() < self._rotated + _ROTATE_SEC:
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
    found = parser.parse_args(arguments)
    os.umask(0o077)
    logging.basicConfig(level="INFO", format="%(asctime)s %(levelname)s %(message)s")
    logging.getLogger("httpx").setLevel("WARNING")
    home = ZoneHome(found.directory.absolute())
    try:
        with states.held(home):
            return Supervisor(home, found.watch_fd).run()
    except VeenError as error:
        _log.critical("%s", error)
        return 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
