"""The first process of a hub: it starts the sequencer and the HTTP workers, and ends with them."""

from __future__ import annotations

import logging
import os
import signal
import subprocess
from typing import Final

from hub.process import READY, REFUSED, Launch, metrics_directory
from veen import durable

_log = logging.getLogger(__name__)
_SIGNALS: Final = {signal.SIGCHLD, signal.SIGTERM, signal.SIGINT}
STOP_SEC: Final = 60.0


def run(launch: Launch) -> int:
    """Run a hub until it is told to stop or one of its processes ends; the exit code."""
    launch.datadir.create()
    signal.pthread_sigmask(signal.SIG_BLOCK, _SIGNALS)
    os.environ["PROMETHEUS_MULTIPROC_DIR"] = str(metrics_directory(launch.datadir))
    sequencer = _start_sequencer(launch)
    if sequencer is None:
        return REFUSED
    web = subprocess.Popen([*launch.command("hub.web"), "--parent", str(os.getpid())])  # noqa: S603
    durable.write(launch.datadir.address_file, f"{launch.settings().url}\n".encode())
    durable.write(launch.datadir.pid_file, f"{os.getpid()}\n".encode())
    try:
        return _watch(sequencer, web)
    finally:
        _end(web)
        _end(sequencer)
        launch.datadir.pid_file.unlink(missing_ok=True)
        launch.datadir.address_file.unlink(missing_ok=True)


def _watch(sequencer: subprocess.Popen[bytes], web: subprocess.Popen[bytes]) -> int:
    """Wait for the end: 0 when it was asked for, 1 when a process of the hub failed."""
    while True:
        received = signal.sigwait(_SIGNALS)
        if received != signal.SIGCHLD:
            return 0
        for name, process in (("sequencer", sequencer), ("HTTP workers", web)):
            if process.poll() is not None:
                _log.critical("the %s ended with code %s; stopping", name, process.returncode)
                return 1


def _start_sequencer(launch: Launch) -> subprocess.Popen[bytes] | None:
    """The sequencer once it holds the directory and listens; None when it ended, saying why."""
    reading, writing = os.pipe()
    parent = ["--parent", str(os.getpid())]
    command = [*launch.command("hub.sequencer"), *parent, "--ready-fd", str(writing)]
    process = subprocess.Popen(command, pass_fds=[writing])  # noqa: S603
    os.close(writing)
    is_ready = os.read(reading, 1) == READY
    os.close(reading)
    if is_ready:
        return process
    process.wait()
    return None


def _end(process: subprocess.Popen[bytes]) -> None:
    if process.poll() is not None:
        return
    process.terminate()
    try:
        process.wait(STOP_SEC)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
