"""The first process of a query service: it keeps the runner and the HTTP workers running."""

from __future__ import annotations

import logging
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from typing import Final

from recorder.service.home import ServiceHome
from recorder.service.process import Launch, begin, clear_metrics, parse_launch
from recorder.settings_query import refuse_unmapped
from veen import durable
from veen.child_process import REFUSED, SIGNALS, end, start_ready

_log = logging.getLogger(__name__)
_STEADY_SEC: Final = 10.0
MAX_RESTARTS: Final = 8
"""So often may a runner end without having run steadily; then something is wrong with more."""
_FIRST_PAUSE_SEC: Final = 0.5
_MOST_PAUSE_SEC: Final = 30.0


def run(launch: Launch, when_ready: Callable[[], None] = lambda: None) -> int:
    """Serve until told to stop, or until a process cannot be kept running; the exit code.

    ``when_ready`` is called once the runner holds its client and connections are accepted.
    """
    settings = launch.settings()
    refuse_unmapped(settings.query.principals)
    home = ServiceHome(settings.query.results)
    home.create()
    signal.pthread_sigmask(signal.SIG_BLOCK, SIGNALS)
    clear_metrics(home)
    os.environ["PROMETHEUS_MULTIPROC_DIR"] = str(home.metrics)
    runner = _start_runner(launch)
    if runner is None:
        return REFUSED
    web = start_ready(launch.command("recorder.api"))
    if web is None:
        end(runner)
        return REFUSED
    when_ready()
    durable.write(home.run / "service.pid", f"{os.getpid()}\n".encode())
    watch = _Watch(launch, runner, web)
    try:
        return watch.untilend()
    finally:
        end(web)
        end(watch.runner)
        (home.run / "service.pid").unlink(missing_ok=True)


class _Watch:
    def __init__(
        self, launch: Launch, runner: subprocess.Popen[bytes], web: subprocess.Popen[bytes]
    ) -> None:
        self.runner = runner
        self._launch = launch
        self._web = web
        self._started = time.monotonic()
        self._restarts = 0

    def untilend(self) -> int:
        """0 when it was asked for, 1 when the service cannot go on."""
        while True:
            received = signal.sigwait(SIGNALS)
            if received != signal.SIGCHLD:
                return 0
            if self._web.poll() is not None:
                _log.critical("the HTTP workers ended with code %s", self._web.returncode)
                return 1
            code = self._restart() if self.runner.poll() is not None else None
            if code is not None:
                return code

    def _restart(self) -> int | None:
        """A runner that died is started again, and takes up what the other has begun.

        The first time at once, then after pauses that grow: a disk that is full for a moment is no
        reason to end. None when one runs; else the exit code.
        """
        _log.error("the runner ended with code %s; starting another", self.runner.returncode)
        if time.monotonic() - self._started > _STEADY_SEC:
            self._restarts = 0
        while self._restarts < MAX_RESTARTS:
            self._restarts += 1
            if self._restarts > 1 and self._is_asked_to_stop(_pause_before(self._restarts)):
                return 0
            found = _start_runner(self._launch)
            self._started = time.monotonic()
            if found is not None:
                self.runner = found
                return None
        _log.critical("the runner was started again %d times; stopping", self._restarts)
        return 1

    def _is_asked_to_stop(self, pause_sec: float) -> bool:
        _log.error("the runner is started again in %g s", pause_sec)
        return signal.sigtimedwait(SIGNALS - {signal.SIGCHLD}, pause_sec) is not None


def _pause_before(restart: int) -> float:
    """Before the second restart and those after it."""
    return float(min(_FIRST_PAUSE_SEC * 2 ** (restart - 2), _MOST_PAUSE_SEC))


def _start_runner(launch: Launch) -> subprocess.Popen[bytes] | None:
    """The runner once it holds the client."""
    return start_ready(launch.command("recorder.service"))


if __name__ == "__main__":
    launched = parse_launch(sys.argv[1:])
    begin(launched)
    sys.exit(run(launched))
