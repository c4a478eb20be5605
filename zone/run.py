"""Starting and stopping of a zone through its supervisor, and of the hub of a running zone.

A supervisor restarts its hub, so that ``veen hub stop`` alone would not last. While the file
``hub.rest`` exists the hub stays stopped, which the supervisor confirms with ``hub.resting``.
"""

from __future__ import annotations

import os
import shlex
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Final

from hub import settings as hub_settings
from recorder import settings as recorder_settings
from veen.errors import Refused, VeenError
from veen.system import durable
from veen.system.child_process import end_processes, of_run, of_session, wait_for
from veen.system.signals import interruptible_sleep, signals_blocked
from zone import state as states
from zone.config import FILE
from zone.config import load as load_zone
from zone.directory import ZoneHome, verify_zone_path
from zone.postgres import Postgres
from zone.state import ZoneStage, ZoneState
from zone.supervisor import CONFIRMED

_STOP_SEC: Final = 120.0
_LOOK_SEC: Final = 0.2
_GRACE_SEC: Final = 20.0
_NEWS_SEC: Final = 10.0
_WAIT_SEC: Final = 60.0
_REST_POLL_SEC: Final = 0.1


class Lead:
    """The process that starts a zone. If it ends before ``confirm``, the zone is stopped."""

    def __init__(self, home: ZoneHome) -> None:
        verify_zone_path(home)
        _verify_ports_free(home)
        _sweep(home)
        self.home = home
        durable.make_directory(home.run)
        durable.make_directory(home.logs)
        states.write(home, ZoneState(ZoneStage.STARTING))
        reading, self._writing = os.pipe()
        argv = ["--directory", str(home.root), "--watch-fd", str(reading)]
        with (home.logs / "supervisor.log").open("ab") as log:
            self._process = subprocess.Popen(  # noqa: S603 - our own program
                [sys.executable, "-P", "-m", "zone.supervisor", *argv],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                pass_fds=[reading],
                start_new_session=True,
            )
        os.close(reading)

    def await_up(self, tell: Callable[[str], None]) -> None:
        """Wait until the zone is up, reporting each step, and regularly if there is none."""
        detail, said = 0, time.monotonic()
        begun = said
        while True:
            state = states.read(self.home)
            news = list(state.detail[detail:])
            if not news and time.monotonic() - said > _NEWS_SEC:
                news = [f"{state.awaited()}; {time.monotonic() - begun:.0f} s so far"]
            for line in news:
                tell(f"{self.home.root.name}: {line}")
                said = time.monotonic()
            detail = len(state.detail)
            if state.stage is ZoneStage.UP:
                return
            if self._process.poll() is not None:
                why = (
                    state.detail[-1] if state.detail else f"see {self.home.logs / 'supervisor.log'}"
                )
                raise Refused(f"{self.home.root} did not start: {why}")
            interruptible_sleep(_LOOK_SEC)

    def confirm(self) -> None:
        """Let the zone outlive this process."""
        os.write(self._writing, CONFIRMED)
        os.close(self._writing)

    def ask_to_stop(self) -> None:
        if self._process.poll() is None:
            self._process.send_signal(signal.SIGTERM)

    def await_stop(self) -> None:
        """Wait until the zone is stopped."""
        self._process.wait()
        os.close(self._writing)


@contextmanager
def leading(homes: Sequence[ZoneHome], tell: Callable[[str], None]) -> Iterator[None]:
    """Zones that are up within the block, and are stopped at its end in any case."""
    with ExitStack() as stack:
        _brought_up(homes, tell, stack)
        for home in homes:
            if trouble := states.read(home).trouble():
                raise Refused(f"{home.root} did not start completely: {'; '.join(trouble)}")
        yield


def start(homes: Sequence[ZoneHome], tell: Callable[[str], None]) -> None:
    """Start zones together, and leave them running; all of them or none.

    A zone is up once its hub is, even while other parts are failing: recording must not wait for
    Airflow. ``ZoneState.trouble`` lists the failing parts.
    """
    with ExitStack() as stack:
        leads = _brought_up(homes, tell, stack)
        stack.pop_all()
    for lead in leads:
        lead.confirm()


def _brought_up(
    homes: Sequence[ZoneHome], tell: Callable[[str], None], stack: ExitStack
) -> list[Lead]:
    leads: list[Lead] = []
    stack.callback(_stop_all, leads, tell)
    for home in homes:
        # With signals blocked, so that every lead that was started is known if the next fails.
        with signals_blocked():
            leads += [Lead(home)]
    for lead in leads:
        lead.await_up(tell)
    return leads


def _stop_all(leads: Sequence[Lead], tell: Callable[[str], None]) -> None:
    """Stop zones in parallel, since each takes a while."""
    for lead in leads:
        lead.ask_to_stop()
    for lead in leads:
        tell(f"{lead.home.root.name}: stops")
        lead.await_stop()


def stop(home: ZoneHome) -> bool:
    """Stop the zone, including what a crash has left; return whether anything was running."""
    state = states.read(home)
    supervisor = state.supervisor
    if supervisor is not None and supervisor.is_alive() and states.is_held(home):
        supervisor.send(signal.SIGTERM)
        if not wait_for([supervisor], _STOP_SEC):
            supervisor.send(signal.SIGKILL)
        _sweep(home)
        return True
    return _sweep(home)


def _sweep(home: ZoneHome) -> bool:
    """End processes that a killed supervisor has left behind; return whether there were any.

    Only processes identified by boot, pid and start time, or by the mark of their run, are
    signalled.
    """
    if states.is_held(home):
        raise Refused(f"{home.root} is up already; see veen zone status")
    state = states.read(home)
    left = {born for running in state.running for born in of_session(running.process)}
    if state.run is not None:
        left.update(of_run(state.run))
    end_processes(left, _GRACE_SEC)
    Postgres(home.postgres).remove_socket_folder()
    if state.stage is not ZoneStage.DOWN and home.run.is_dir():
        states.write(home, states.DOWN)
    return bool(left)


def _verify_ports_free(home: ZoneHome) -> None:
    if states.is_held(home):
        raise Refused(f"{home.root} is up already; see veen zone status")
    zone = home.zone()
    places = {
        "[hub] listen": hub_settings.load(home.file).listen,
        "[recorder.query] listen": recorder_settings.load(home.file).query.listen,
        "[airflow] listen": zone.airflow.listen,
    }
    for key, listen in places.items():
        host, _, port = listen.rpartition(":")
        with socket.socket() as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind((host, int(port)))
            except OSError as error:
                raise Refused(
                    f"cannot listen at {listen}: {error.strerror}; stop the process that listens "
                    "there, "
                    f"or set another port as {key} in {home.file}"
                ) from error


def supervised(data_dir: Path) -> ZoneHome | None:
    """The zone whose supervisor runs the hub of this directory, if there is one."""
    home = ZoneHome(data_dir.parent)
    if not (home.root / FILE).exists():
        return None
    try:
        zone = load_zone(home.file)
    except VeenError:
        return None
    is_its_hub = zone.hub_data.resolve() == data_dir
    return home if is_its_hub and states.is_held(home) else None


def rest(home: ZoneHome) -> None:
    """Ask the supervisor to stop the hub, and to leave it stopped until ``wake``."""
    durable.write(home.rest, b"")
    if not _wait_for_file(home.resting, is_there=True):
        home.rest.unlink(missing_ok=True)
        raise Refused(
            f"the supervisor of {home.root} did not stop its hub within {_WAIT_SEC:.0f} s; "
            f"see veen zone status --directory {shlex.quote(str(home.root))}"
        )


def wake(home: ZoneHome) -> None:
    """Ask the supervisor to start the hub again."""
    home.rest.unlink(missing_ok=True)
    if not _wait_for_file(home.resting, is_there=False):
        raise Refused(
            f"the supervisor of {home.root} did not start its hub within {_WAIT_SEC:.0f} s; "
            f"see veen zone status --directory {shlex.quote(str(home.root))}"
        )


def _wait_for_file(file: Path, *, is_there: bool) -> bool:
    deadline = time.monotonic() + _WAIT_SEC
    while file.exists() is not is_there:
        if time.monotonic() > deadline:
            return False
        time.sleep(_REST_POLL_SEC)
    return True
