"""The hub that a self-test starts for itself: a process of its own on a free port (OS13.1)."""

from __future__ import annotations

import ctypes
import os
import secrets
import signal
import socket
import subprocess
import time
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Final

import httpx

from cli.selftest.interruption import held_back, let_go
from cli.selftest.step import Unexpected
from hub.process import Launch
from hub.settings import Settings, load
from hub.storage.datadir import DataDir

_PR_SET_PDEATHSIG: Final = 1
_START_SEC: Final = 60.0
_STOP_SEC: Final = 60.0
_PAUSE_SEC: Final = 0.02
_PORTS: Final = range(15_000, 32_000)


class HubUnderTest:
    """One data directory with its settings; a hub runs on it from ``start`` to ``stop``."""

    def __init__(self, root: Path, settings: str, environment: Mapping[str, str]) -> None:
        self.datadir = DataDir(root / "hub")
        self.log = root / "hub.log"
        self._config = root / "hub.toml"
        self._config.write_text(settings)
        # A folder named hub in the working directory must not be taken for our package.
        self._environment = {**environment, "PYTHONSAFEPATH": "1"}
        self._port = _free_port()
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._port}"

    @property
    def settings(self) -> Settings:
        return load(self._config)

    def is_running(self) -> bool:
        return self._process is not None and not _has_ended(self._process)

    def start(self) -> None:
        """Start it; on return it takes messages."""
        self.end()
        options = {"listen": f"127.0.0.1:{self._port}"}
        command = Launch(self.datadir, self._config, options).command("hub")
        with self.log.open("ab") as log, held_back():
            self._process = subprocess.Popen(  # noqa: S603
                command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, env=self._environment,
                start_new_session=True, preexec_fn=_end_with_parent,  # noqa: PLW1509 - one thread
            )  # fmt: skip
        self._wait_until_ready(self._process)

    def stop(self) -> None:
        """Have it end by itself, as an operator would."""
        if self._process is None:
            return
        self._process.terminate()
        deadline = time.monotonic() + _STOP_SEC
        while not _has_ended(self._process):
            if time.monotonic() > deadline:
                raise Unexpected(f"the hub did not stop within {_STOP_SEC:.0f} s")
            time.sleep(_PAUSE_SEC)
        code = self._process.wait()
        self._process = None
        if code != 0:
            raise Unexpected(f"the hub stopped with code {code}; its log: {self.last_line()}")

    def end(self) -> None:
        """Kill all of it at once; nothing that it may be doing keeps it."""
        if self._process is None:
            return
        with suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()
        self._process = None

    def _wait_until_ready(self, process: subprocess.Popen[bytes]) -> None:
        deadline = time.monotonic() + _START_SEC
        with httpx.Client(timeout=5, trust_env=False, verify=False) as http:  # noqa: S501 - no TLS
            while not _is_ready(http, self.url):
                if _has_ended(process) or time.monotonic() > deadline:
                    self.end()
                    raise Unexpected(f"the hub does not start; its log: {self.last_line()}")
                time.sleep(_PAUSE_SEC)

    def last_line(self) -> str:
        return self.log.read_text(errors="replace").rstrip().rpartition("\n")[2]


def _is_ready(http: httpx.Client, url: str) -> bool:
    try:
        return http.get(f"{url}/readyz").status_code == httpx.codes.OK
    except httpx.HTTPError:
        return False


def _has_ended(process: subprocess.Popen[bytes]) -> bool:
    """Without burying it: as long as it is not waited for, its number is nobody else's."""
    waiting = os.WEXITED | os.WNOHANG | os.WNOWAIT
    return os.waitid(os.P_PID, process.pid, waiting) is not None


def _end_with_parent() -> None:
    """Even where the self-test itself is killed, its hub does not stay."""
    let_go()
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)


def _free_port() -> int:
    """A port that nobody has, below those that the kernel gives out: it may be used again."""
    while True:
        port = secrets.choice(_PORTS)
        with socket.socket() as probe, suppress(OSError):
            probe.bind(("127.0.0.1", port))
            return port
