"""The directory of the query service: its file, the rows of results, and its processes."""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from veen import durable


@dataclass(frozen=True, slots=True)
class ServiceHome:
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
        """Where the processes add up their metrics; their environment names it."""
        return self.run / "metrics"

    @property
    def bell(self) -> Path:
        return self.run / "bell.sock"

    @property
    def follower(self) -> Path:
        """What the index follower last reported of itself."""
        return self.run / "index-follower.json"

    @property
    def papers(self) -> Path:
        return self.root / "hub-papers.cbor"

    @property
    def spark(self) -> Path:
        """Where queries on Spark leave what they found, and their logs."""
        return self.root / "spark"

    def create(self) -> None:
        for one in (self.rows, self.metrics, self.spark):
            durable.make_directory(one)


@contextmanager
def _address(home: ServiceHome) -> Iterator[str]:
    """A Unix socket's address may have 107 bytes; through a descriptor it is always short."""
    handle = os.open(home.run, os.O_RDONLY | os.O_DIRECTORY)
    try:
        yield f"/proc/self/fd/{handle}/{home.bell.name}"
    finally:
        os.close(handle)


class Bell:
    """Tells the runner that there is work. It looks by itself too: a lost call costs time only."""

    def __init__(self, home: ServiceHome) -> None:
        self._home = home

    def ring(self) -> None:
        with (
            suppress(OSError),
            _address(self._home) as address,
            socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as line,
        ):
            line.setblocking(False)
            line.sendto(b"!", address)


class BellListener:
    def __init__(self, home: ServiceHome) -> None:
        home.bell.unlink(missing_ok=True)
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        with _address(home) as address:
            self._socket.bind(address)

    def wait(self, seconds: float) -> None:
        """Until somebody rings, or so long; what rang meanwhile is one call."""
        self._socket.settimeout(seconds)
        with suppress(TimeoutError):
            self._socket.recv(1)
        self._socket.setblocking(False)
        with suppress(BlockingIOError):
            while self._socket.recv(1):
                pass

    def close(self) -> None:
        self._socket.close()
