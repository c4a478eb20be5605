"""The first process of a hub: it starts the sequencer and the HTTP workers, and ends with them."""

from __future__ import annotations

import logging
import os
import signal
import subprocess

from hub.process import Launch, metrics_directory
from veen import durable
from veen.child_process import REFUSED, SIGNALS, end, start_ready

_log = logging.getLogger(__name__)


def run(launch: Launch) -> int:
    """Run a hub until it is told to stop or one of its processes ends; the exit code."""
    launch.datadir.create()
    signal.pthread_sigmask(signal.SIG_BLOCK, SIGNALS)
    os.environ["PROMETHEUS_MULTIPROC_DIR"] = str(metrics_directory(launch.datadir))
    parent = ["--parent", str(os.getpid())]
    sequencer = start_ready([*launch.command("hub.sequencer"), *parent])
    if sequencer is None:
        return REFUSED
    web = subprocess.Popen([*launch.command("hub.web"), *parent])  # noqa: S603
    durable.write(launch.datadir.address_file, f"{launch.settings().url}\n".encode())
    durable.write(launch.datadir.pid_file, f"{os.getpid()}\n".encode())
    try:
        return _watch(sequencer, web)
    finally:
        end(web)
        end(sequencer)
        launch.datadir.pid_file.unlink(missing_ok=True)
        launch.datadir.address_file.unlink(missing_ok=True)


def _watch(sequencer: subprocess.Popen[bytes], web: subprocess.Popen[bytes]) -> int:
    """Wait for the end: 0 when it was asked for, 1 when a process of the hub failed."""
    while True:
        received = signal.sigwait(SIGNALS)
        if received != signal.SIGCHLD:
            return 0
        for name, process in (("sequencer", sequencer), ("HTTP workers", web)):
            if process.poll() is not None:
                _log.critical("the %s ended with code %s; stopping", name, process.returncode)
                return 1
