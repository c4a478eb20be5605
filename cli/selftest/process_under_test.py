"""A process that a self-test starts for itself on a free port, and ends in any case (OS13.1)."""

from __future__ import annotations

import ctypes
import os
import signal
import subprocess
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final

import httpx

from cli.free_port import free_port
from cli.selftest.interruption import held_back, let_go
from cli.selftest.step import Unexpected

_PR_SET_PDEATHSIG: Final = 1
_START_SEC: Final = 60.0
_STOP_SEC: Final = 60.0
_PAUSE_SEC: Final = 0.02


class ProcessUnderTest:
    """``name`` is what it is called where something is wrong; it serves when ``ready`` answers."""

    def __init__(self, name: str, log: Path, environment: Mapping[str, str], ready: str) -> None:
        self.log = log
        self.port = free_port()
        self._name = name
        self._ready = ready
        # A folder named like one of our packages in the working directory is not that package.
        self._environment = {**environment, "PYTHONSAFEPATH": "1"}
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def is_running(self) -> bool:
        return self._process is not None and not _has_ended(self._process)

    def launch(self, command: Sequence[str]) -> None:
        """Start it; on return it answers."""
        self.end()
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
                raise Unexpected(f"the {self._name} did not stop within {_STOP_SEC:.0f} s")
            time.sleep(_PAUSE_SEC)
        code = self._process.wait()
        self._process = None
        if code != 0:
            raise Unexpected(
                f"the {self._name} stopped with code {code}; its log: {self.last_line()}"
            )

    def end(self) -> None:
        """Kill all of it at once; nothing that it may be doing keeps it."""
        if self._process is None:
            return
        with suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()
        self._process = None

    def last_line(self) -> str:
        return self.log.read_text(errors="replace").rstrip().rpartition("\n")[2]

    def _wait_until_ready(self, process: subprocess.Popen[bytes]) -> None:
        deadline = time.monotonic() + _START_SEC
        with httpx.Client(timeout=5, trust_env=False, verify=False) as http:  # noqa: S501 - no TLS
            while not _is_ready(http, self.url + self._ready):
                if _has_ended(process) or time.monotonic() > deadline:
                    self.end()
                    raise Unexpected(
                        f"the {self._name} does not start; its log: {self.last_line()}"
                    )
                time.sleep(_PAUSE_SEC)


def _is_ready(http: httpx.Client, url: str) -> bool:
    try:
        return http.get(url).status_code == httpx.codes.OK
    except httpx.HTTPError:
        return False


def _has_ended(process: subprocess.Popen[bytes]) -> bool:
    """Without burying it: as long as it is not waited for, its number is nobody else's."""
    waiting = os.WEXITED | os.WNOHANG | os.WNOWAIT
    return os.waitid(os.P_PID, process.pid, waiting) is not None


def _end_with_parent() -> None:
    """Even where the self-test itself is killed, what it has started does not stay."""
    let_go()
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)
