"""The first process of a zone: it starts all others in order, and stops them when it is told to."""

from __future__ import annotations

import logging
import os
import select
import signal
import subprocess
import sys
import time
from argparse import ArgumentParser
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Final

from cli import zone_services as services
from cli import zone_state as states
from cli.failure import Refused
from cli.zone_child import Child, start, stop
from cli.zone_environment import environment, has_own_database
from cli.zone_home import ZoneHome
from cli.zone_postgres import Postgres
from cli.zone_process import Born, adopt_orphans, below, born, bury, end
from cli.zone_services import Service
from cli.zone_setup import authorize, is_migrated, mark_migrated, migration
from cli.zone_state import Running, Stage, State
from veen import durable
from veen.errors import VeenError

CONFIRMED: Final = b"+"
_READY_SEC: Final = 300.0
_LEFT_SEC: Final = 10.0
_LOOK_SEC: Final = 0.2
_SIGNALS: Final = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
_log = logging.getLogger(__name__)


class Stopped(Exception):
    """Somebody has told us to stop, or whoever started us has gone before we were up."""


class Supervisor:
    """``watch_fd`` is a pipe from whoever starts the zone. Until it has said that it is content,
    the zone goes when it goes.
    """

    def __init__(self, home: ZoneHome, watch_fd: int | None) -> None:
        self._home = home
        self._zone = home.zone()
        self._environment = environment(home, self._zone, os.environ)
        self._embedded = has_own_database(os.environ)
        self._watch = watch_fd
        self._asked = False
        self._groups: list[list[Child]] = []
        self._state = State(Stage.STARTING, born(os.getpid()))

    def run(self) -> int:
        for one in _SIGNALS:
            signal.signal(one, self._ask)
        # Whoever started us has held them back until we are known.
        signal.pthread_sigmask(signal.SIG_UNBLOCK, _SIGNALS)
        adopt_orphans()
        self._tell()
        try:
            self._start()
            self._tell(Stage.UP)
            self._serve()
        except Stopped:
            return 0
        except (VeenError, OSError) as error:
            _log.critical("%s", error)
            self._tell(Stage.FAILED, str(error))
            return 1
        finally:
            self._stop()
        return 1

    def _ask(self, *_: object) -> None:
        self._asked = True

    def _start(self) -> None:
        """Airflow's database is made ready while the hub and the query service start."""
        home, zone = self._home, self._zone
        for folder in (home.logs, home.airflow):
            durable.make_directory(folder)
        for file in (home.rest, home.resting):
            file.unlink(missing_ok=True)
        if self._embedded:
            postgres = Postgres(home.postgres)
            postgres.prepare()
            self._launch(services.postgres(home))
            postgres.create_database()
        migrating = None if self._embedded and is_migrated(home) else self._popen(migration())
        self._launch(services.hub(home, zone))
        self._step("capabilities", lambda: authorize(home))
        self._launch(services.query(home))
        if migrating is not None:
            self._step("database of Airflow", lambda: self._finish(migrating))
            mark_migrated(home)
        server, *others = services.airflow(zone)
        # The server stops last: what ends before still has something to tell it.
        self._begin(server)
        self._begin(*others)
        self._await(server, *others)

    def _launch(self, one: Service) -> None:
        self._begin(one)
        self._await(one)

    def _begin(self, *those: Service) -> None:
        """Start them; they will be stopped together."""
        group: list[Child] = []
        self._groups.append(group)
        for one in those:
            process = self._popen(one)
            group.append(Child(one, process))
            found = born(process.pid) or Born(process.pid, 0)
            running = Running(one.name, found, str(self._log_of(one.name)))
            self._state = replace(self._state, running=(*self._state.running, running))
            self._tell()

    def _await(self, *those: Service) -> None:
        names = ", ".join(one.name for one in those)
        began = time.monotonic()
        while not all(one.is_ready() for one in those):
            self._check()
            if time.monotonic() > began + _READY_SEC:
                raise Refused(f"not ready within {_READY_SEC:.0f} s: {names}; see the logs")
            time.sleep(_LOOK_SEC)
        self._tell(None, f"{names}: ready after {time.monotonic() - began:.1f} s")

    def _popen(self, one: Service) -> subprocess.Popen[bytes]:
        return start(one, self._home, self._environment, self._log_of(one.name))

    def _step(self, name: str, work: Callable[[], None]) -> None:
        began = time.monotonic()
        work()
        self._check()
        self._tell(None, f"{name}: done after {time.monotonic() - began:.1f} s")

    def _finish(self, process: subprocess.Popen[bytes]) -> None:
        while process.poll() is None:
            self._check()
            time.sleep(_LOOK_SEC)
        if process.returncode != 0:
            raise Refused(f"airflow db migrate ended with {process.returncode}; see its log")

    def _serve(self) -> None:
        """Until somebody tells us to stop, or one of the processes ends."""
        while True:
            self._check()
            self._heed_rest()
            bury(but={one.process.pid for group in self._groups for one in group})
            time.sleep(_LOOK_SEC)

    def _heed_rest(self) -> None:
        """Stop the hub alone where somebody asks for that, and start it again afterwards."""
        is_asked, is_resting = self._home.rest.exists(), self._home.resting.exists()
        if is_asked and not is_resting:
            place = [[one.service.name for one in group] for group in self._groups].index(["hub"])
            stop(self._groups[place])
            self._groups[place] = []
            running = tuple(one for one in self._state.running if one.name != "hub")
            self._state = replace(self._state, running=running)
            self._tell(None, "hub: rests, as it was asked to")
            durable.write(self._home.resting, b"")
        elif is_resting and not is_asked:
            self._launch(services.hub(self._home, self._zone))
            # It keeps its place in the order in which all are stopped.
            self._groups[self._groups.index([])] = self._groups.pop()
            self._home.resting.unlink()

    def _check(self) -> None:
        if self._watch is not None and select.select([self._watch], [], [], 0)[0]:
            said = os.read(self._watch, 1)
            os.close(self._watch)
            self._watch = None
            self._asked |= said != CONFIRMED
        if self._asked:
            raise Stopped
        for group in self._groups:
            for one, process in group:
                if process.poll() is not None:
                    raise Refused(f"{one.name} ended with {process.returncode}: {self._last(one)}")

    def _stop(self) -> None:
        """The last first; then whatever is left of what they have started."""
        for one in _SIGNALS:
            signal.signal(one, signal.SIG_IGN)
        if self._state.stage is not Stage.FAILED:
            self._tell(Stage.STOPPING)
        while self._groups:
            stop(self._groups.pop())
        end(below(os.getpid()), _LEFT_SEC)
        bury()
        Postgres(self._home.postgres).remove_socket_folder()
        self._state = replace(self._state, running=())
        self._tell(Stage.FAILED if self._state.stage is Stage.FAILED else Stage.DOWN)

    def _tell(self, stage: Stage | None = None, line: str | None = None) -> None:
        if stage is not None:
            self._state = replace(self._state, stage=stage)
        if line is not None:
            _log.info("%s", line)
            self._state = self._state.and_told(line)
        states.write(self._home, self._state)

    def _log_of(self, name: str) -> Path:
        return self._home.logs / f"{name}.log"

    def _last(self, one: Service) -> str:
        lines = self._log_of(one.name).read_text(errors="replace").splitlines()
        return " | ".join(lines[-3:]) or "it said nothing"


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
