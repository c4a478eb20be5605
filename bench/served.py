"""A hub as its users run it: ``veen hub start`` with two workers, on a free port of this host."""

from __future__ import annotations

import subprocess
import sys
import time
from collections import Counter, defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import feed
import inside
import psutil
from line import Line

from hub.storage.datadir import DataDir
from hub.storage.identity import read_identity
from veen.hub_identity import HubIdentity
from zone.services import free_port

WORKERS = 2
_START_SEC, _STOP_SEC = 60, 60
_NOT_FOUND = 404
_VEEN = Path(sys.executable).with_name("veen")


@dataclass(frozen=True, slots=True)
class Served:
    port: int
    process: psutil.Process
    identity: HubIdentity

    def line(self) -> Line:
        """A connection that a worker has taken."""
        line = Line(self.port)
        line.ask(line.get("/"), _NOT_FOUND)
        return line

    def even_lines(self, count: int) -> list[Line]:
        """Connections of which each worker has equally many, however many that takes."""
        stored: dict[int, list[Line]] = defaultdict(list)
        spare: list[Line] = []
        while sum(len(lines) for lines in stored.values()) < count:
            line = self.line()
            own = stored[self._holder(line)]
            (own if len(own) < count // WORKERS else spare).append(line)
        for line in spare:
            line.close()
        return [line for some in zip(*stored.values(), strict=True) for line in some]

    def busiest(self, count: int) -> int:
        """How many of ``count`` connections, opened as they come, the busiest worker has."""
        lines = [Line(self.port) for _ in range(count)]
        for line in lines:
            line.ask(line.get("/"), _NOT_FOUND)
        holders = Counter(self._holder(line) for line in lines)
        for line in lines:
            line.close()
        return max(holders.values())

    def _holder(self, line: Line) -> int:
        """The worker at the other end of a line."""
        return next(
            worker.pid
            for worker in self.process.children(recursive=True)
            for net_connection in worker.net_connections("tcp")
            if net_connection.raddr and net_connection.raddr.port == line.port
        )

    def writers(self, count: int) -> list[feed.Writer]:
        """Clients whose capabilities the hub knows."""
        result = [feed.Writer.named(number, self.identity.hub_id) for number in range(count)]
        with Line(self.port) as line:
            for writer in result:
                line.ask(line.post("/tooling/authorize", writer.token.encode()))
        return result

    def cpu_seconds(self) -> float:
        """CPU time of the supervisor, the sequencer and the workers so far."""
        times = [
            child.cpu_times() for child in (self.process, *self.process.children(recursive=True))
        ]
        return sum(time.user + time.system for time in times)


@contextmanager
def hub(*options: str) -> Iterator[Served]:
    """A gated hub in a directory of its own; it is stopped whatever happens."""
    with inside.directory() as datadir:
        port = free_port()
        with (datadir.run / "hub.log").open("ab") as log:
            process = subprocess.Popen([*_command(datadir, port), *options], stdout=log, stderr=log)
        try:
            _await(port, process)
            yield Served(port, psutil.Process(process.pid), read_identity(datadir))
        finally:
            _stop(process)


def _stop(process: subprocess.Popen[bytes]) -> None:
    """End the supervisor; its processes end with it."""
    process.terminate()
    try:
        process.wait(_STOP_SEC)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def _command(datadir: DataDir, port: int) -> list[str]:
    return [
        str(_VEEN), "hub", "start", "--foreground", "--data-dir", str(datadir.root),
        "--listen", f"127.0.0.1:{port}", "--workers", str(WORKERS),
        "--issuer", feed.ISSUER.public.hex(),
    ]  # fmt: skip


def _await(port: int, process: subprocess.Popen[bytes]) -> None:
    deadline = time.monotonic() + _START_SEC
    while time.monotonic() < deadline and process.poll() is None:
        try:
            with Line(port) as line:
                line.ask(line.get("/readyz"))
        except OSError:
            time.sleep(0.05)
        else:
            return
    raise AssertionError("the hub did not start")
