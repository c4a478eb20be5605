"""Bring a zone up, and down: the supervisor of it started, watched and stopped."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import Final

from cli import interrupt
from cli import zone_state as states
from cli.failure import Refused
from cli.selftest.interruption import held_back
from cli.zone_environment import refuse_place
from cli.zone_home import ZoneHome
from cli.zone_postgres import Postgres
from cli.zone_process import end, of_run, of_session, wait_for
from cli.zone_state import Stage, State
from cli.zone_supervisor import CONFIRMED
from hub import settings as hub_settings
from recorder import settings as recorder_settings
from veen import durable

_STOP_SEC: Final = 120.0
_LOOK_SEC: Final = 0.2
_GRACE_SEC: Final = 20.0
_NEWS_SEC: Final = 10.0


class Lead:
    """Whoever brings a zone up. If it goes before ``confirm``, the zone goes too."""

    def __init__(self, home: ZoneHome) -> None:
        refuse_place(home)
        _refuse_taken_ports(home)
        _sweep(home)
        self.home = home
        durable.make_directory(home.run)
        durable.make_directory(home.logs)
        states.write(home, State(Stage.STARTING))
        reading, self._writing = os.pipe()
        words = ["--directory", str(home.root), "--watch-fd", str(reading)]
        with (home.logs / "supervisor.log").open("ab") as log:
            self._process = subprocess.Popen(  # noqa: S603 - our own program
                [sys.executable, "-P", "-m", "cli.zone_supervisor", *words],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                pass_fds=[reading],
                start_new_session=True,
            )
        os.close(reading)

    def await_up(self, tell: Callable[[str], None]) -> None:
        """Tell what happens until all runs, and that it goes on when nothing else happens."""
        told, said = 0, time.monotonic()
        while True:
            state = states.read(self.home)
            news = list(state.told[told:])
            if not news and time.monotonic() - said > _NEWS_SEC:
                waiting = [one.name for one in state.running if not one.is_ready]
                news = [f"waiting for {', '.join(waiting) or 'the start'}"]
            for line in news:
                tell(f"{self.home.root.name}: {line}")
                said = time.monotonic()
            told = len(state.told)
            if state.stage is Stage.UP:
                return
            if self._process.poll() is not None:
                why = state.told[-1] if state.told else f"see {self.home.logs / 'supervisor.log'}"
                raise Refused(f"{self.home.root} did not come up: {why}")
            interrupt.sleep(_LOOK_SEC)

    def confirm(self) -> None:
        """Let it stay."""
        os.write(self._writing, CONFIRMED)
        os.close(self._writing)

    def ask_to_stop(self) -> None:
        if self._process.poll() is None:
            self._process.send_signal(signal.SIGTERM)

    def await_stop(self) -> None:
        """On return nothing of it runs."""
        self._process.wait()
        os.close(self._writing)


@contextmanager
def leading(homes: Sequence[ZoneHome], tell: Callable[[str], None]) -> Iterator[None]:
    """Zones that are up in the block, and go at its end, however that comes."""
    with ExitStack() as stack:
        _brought_up(homes, tell, stack)
        for home in homes:
            if trouble := states.read(home).trouble():
                raise Refused(f"{home.root} did not come up whole: {'; '.join(trouble)}")
        yield


def start(homes: Sequence[ZoneHome], tell: Callable[[str], None]) -> None:
    """Bring zones up together, and let them stay; all of them or none.

    A zone is up once its hub is, and stays so while other parts are still failing: what is recorded
    must not wait for Airflow. ``State.trouble`` names them.
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
        # One by one and undisturbed, so that those which began are known when one does not.
        with held_back():
            leads += [Lead(home)]
    for lead in leads:
        lead.await_up(tell)
    return leads


def _stop_all(leads: Sequence[Lead], tell: Callable[[str], None]) -> None:
    """Together: each takes a while."""
    for lead in leads:
        lead.ask_to_stop()
    for lead in leads:
        tell(f"{lead.home.root.name}: stops")
        lead.await_stop()


def stop(home: ZoneHome) -> bool:
    """Stop whatever of the zone runs, also what a crash has left; whether there was any."""
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
    """End what a killed supervisor has left behind; whether there was any.

    Nothing is signalled but what is known by boot, number and start time, or by its run's mark.
    """
    if states.is_held(home):
        raise Refused(f"{home.root} is up already; see veen zone status")
    state = states.read(home)
    left = {one for running in state.running for one in of_session(running.process)}
    if state.run is not None:
        left.update(of_run(state.run))
    end(left, _GRACE_SEC)
    Postgres(home.postgres).remove_socket_folder()
    if state.stage is not Stage.DOWN and home.run.is_dir():
        states.write(home, states.DOWN)
    return bool(left)


def _refuse_taken_ports(home: ZoneHome) -> None:
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
                    f"{listen} is not to be had ({error.strerror}): stop what listens there, or "
                    f"give another port as {key} in {home.file}"
                ) from error
