"""The supervisor of a query service: keeps the runner and the HTTP workers running.

Also holds the layout of the service's directory, the metrics its processes share, and the start of
child processes, none of which outlives the supervisor.
"""

from __future__ import annotations

import logging
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from argparse import ArgumentParser
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from prometheus_client import CollectorRegistry, Counter, Histogram

from recorder.settings import RecorderSettings, load, refuse_unmapped
from veen.system import durable
from veen.system.child_process import (
    EXIT_REFUSED,
    SIGNALS,
    end_process,
    end_with,
    say_ready,
    start_ready,
)
from veen.system.log_file import begin_logging, log_size

_log = logging.getLogger(__name__)


SECONDS: Final = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 60, 600)
_STEADY_SEC: Final = 10.0
MAX_RESTARTS: Final = 8
"""How often a runner is restarted without having run steadily."""
_FIRST_PAUSE_SEC: Final = 0.5
_MAX_PAUSE_SEC: Final = 30.0


@dataclass(frozen=True, slots=True)
class ServiceHome:
    """The directory of the query service: its database, the rows of results, and runtime files."""

    root: Path

    @property
    def database(self) -> Path:
        return self.root / "service.sqlite"

    @property
    def rows(self) -> Path:
        return self.root / "rows"

    @property
    def run(self) -> Path:
        return self.root / "run"

    @property
    def metrics(self) -> Path:
        """Where the processes aggregate their metrics; named by their environment."""
        return self.run / "metrics"

    @property
    def wake_socket(self) -> Path:
        return self.run / "wake.sock"

    @property
    def follower(self) -> Path:
        """The last report of the index follower."""
        return self.run / "index-follower.json"

    @property
    def hub_identity(self) -> Path:
        return self.root / "signed-hub-identity.cbor"

    @property
    def spark(self) -> Path:
        """The work directories and logs of queries on Spark."""
        return self.root / "spark"

    def create(self) -> None:
        for folder in (self.rows, self.metrics, self.spark):
            durable.make_directory(folder)


@contextmanager
def _address(home: ServiceHome) -> Iterator[str]:
    """A Unix socket's address is limited to 107 bytes.

    Through a file descriptor it is always short.
    """
    handle = os.open(home.run, os.O_RDONLY | os.O_DIRECTORY)
    try:
        yield f"/proc/self/fd/{handle}/{home.wake_socket.name}"
    finally:
        os.close(handle)


class WakeSocket:
    """Notifies the runner of work. The runner polls too, so a lost notification only costs time."""

    def __init__(self, home: ServiceHome) -> None:
        self._home = home

    def notify(self) -> None:
        with (
            suppress(OSError),
            _address(self._home) as address,
            socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sender,
        ):
            sender.setblocking(False)
            sender.sendto(b"!", address)


class WakeListener:
    """The runner's end of the wake socket."""

    def __init__(self, home: ServiceHome) -> None:
        home.wake_socket.unlink(missing_ok=True)
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        with _address(home) as address:
            self._socket.bind(address)

    def wait(self, seconds: float) -> None:
        """Wait for a notification or the timeout; pending notifications count as one."""
        self._socket.settimeout(seconds)
        with suppress(TimeoutError):
            self._socket.recv(1)
        self._socket.setblocking(False)
        with suppress(BlockingIOError):
            while self._socket.recv(1):
                pass

    def close(self) -> None:
        self._socket.close()


@dataclass(frozen=True, slots=True)
class QueryHttpMetrics:
    requests: Counter
    audit_failures: Counter


@dataclass(frozen=True, slots=True)
class RunnerMetrics:
    ended: Counter
    duration: Histogram


def http_metrics(registry: CollectorRegistry) -> QueryHttpMetrics:
    return QueryHttpMetrics(
        requests=Counter(
            "veen_query_requests", "Requests, by route and status", ("route", "status"),
            registry=registry,
        ),
        audit_failures=Counter(
            "veen_query_audit_failures", "Requests refused because no audit entry could be stored",
            registry=registry,
        ),
    )  # fmt: skip


def runner_metrics(registry: CollectorRegistry) -> RunnerMetrics:
    return RunnerMetrics(
        ended=Counter(
            "veen_query_ended", "Queries that ended, by engine and state", ("engine", "state"),
            registry=registry,
        ),
        duration=Histogram(
            "veen_query_duration_seconds", "From the start of a query to its recorded digest",
            ("engine",), registry=registry, buckets=SECONDS,
        ),
    )  # fmt: skip


@dataclass(frozen=True, slots=True)
class ServiceLaunch:
    """``spark_job`` is the file of the Spark job; without it no query runs on Spark.

    ``caps`` are files with the capabilities that the runner writes with, where the hub requires
    them.
    """

    config: Path
    spark_job: Path | None = None
    caps: tuple[Path, ...] = ()
    ready_fd: int | None = None
    parent: int | None = None

    def settings(self) -> RecorderSettings:
        return load(self.config)

    def say_ready(self) -> None:
        say_ready(self.ready_fd)

    def command(self, module: str) -> list[str]:
        arguments = ["--config", str(self.config), "--parent", str(os.getpid())]
        if self.spark_job is not None:
            arguments += ["--spark-job", str(self.spark_job)]
        for cap in self.caps:
            arguments += ["--cap", str(cap)]
        # -P: a directory of this name in the working directory is not our package.
        return [sys.executable, "-P", "-m", module, *arguments]


def parse_launch(arguments: list[str]) -> ServiceLaunch:
    parser = ArgumentParser(description="A process of the query service; see veen recorder serve.")
    parser.add_argument("--config", type=Path, required=True)
    parser.add_argument("--spark-job", type=Path)
    parser.add_argument("--cap", type=Path, action="append", default=[])
    parser.add_argument("--ready-fd", type=int)
    parser.add_argument("--parent", type=int)
    args = parser.parse_args(arguments)
    return ServiceLaunch(
        args.config.absolute(), args.spark_job, tuple(args.cap), args.ready_fd, args.parent
    )


def begin(launch: ServiceLaunch) -> None:
    """Set up a process: private files, and logs to standard error with limited size."""
    os.umask(0o077)
    begin_logging(*log_size(lambda: launch.settings().query))
    logging.getLogger("httpx").setLevel("WARNING")


def begin_as_child(launch: ServiceLaunch) -> None:
    """Set up a process that ends with its parent, or at once if the parent has ended."""
    begin(launch)
    end_with(launch.parent)


def clear_metrics(home: ServiceHome) -> None:
    """Remove the counters of an earlier run, which must not be aggregated."""
    shutil.rmtree(home.metrics, ignore_errors=True)
    durable.make_directory(home.metrics)


def run(launch: ServiceLaunch, when_ready: Callable[[], None] = lambda: None) -> int:
    """Serve until stopped, or until a process cannot be kept running; return the exit code.

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
        return EXIT_REFUSED
    web = start_ready(launch.command("recorder.api"))
    if web is None:
        end_process(runner)
        return EXIT_REFUSED
    when_ready()
    durable.write(home.run / "service.pid", f"{os.getpid()}\n".encode())
    watch = _Watch(launch, runner, web)
    try:
        return watch.until_end()
    finally:
        end_process(web)
        end_process(watch.runner)
        (home.run / "service.pid").unlink(missing_ok=True)


class _Watch:
    """Restarts the runner until the service ends."""

    def __init__(
        self, launch: ServiceLaunch, runner: subprocess.Popen[bytes], web: subprocess.Popen[bytes]
    ) -> None:
        self.runner = runner
        self._launch = launch
        self._web = web
        self._started = time.monotonic()
        self._restarts = 0

    def until_end(self) -> int:
        """Return 0 after a signal to stop, 1 when the service cannot continue."""
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
        """Restart a runner that died; it continues what the other has begun.

        The first time at once, then with growing pauses, since a full disk may be temporary.
        Returns None when a runner runs, else the exit code.
        """
        _log.error("the runner ended with code %s; starting another", self.runner.returncode)
        if time.monotonic() - self._started > _STEADY_SEC:
            self._restarts = 0
        while self._restarts < MAX_RESTARTS:
            self._restarts += 1
            if self._restarts > 1 and self._is_asked_to_stop(_pause_before(self._restarts)):
                return 0
            runner = _start_runner(self._launch)
            self._started = time.monotonic()
            if runner is not None:
                self.runner = runner
                return None
        _log.critical("the runner was started again %d times; stopping", self._restarts)
        return 1

    def _is_asked_to_stop(self, pause_sec: float) -> bool:
        _log.error("the runner is started again in %g s", pause_sec)
        return signal.sigtimedwait(SIGNALS - {signal.SIGCHLD}, pause_sec) is not None


def _pause_before(restart: int) -> float:
    """The pause before the second restart and later ones."""
    return float(min(_FIRST_PAUSE_SEC * 2 ** (restart - 2), _MAX_PAUSE_SEC))


def _start_runner(launch: ServiceLaunch) -> subprocess.Popen[bytes] | None:
    """Start the runner and wait until it holds the client."""
    return start_ready(launch.command("recorder.service"))


if __name__ == "__main__":
    launched = parse_launch(sys.argv[1:])
    begin(launched)
    sys.exit(run(launched))
