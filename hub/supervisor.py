"""The supervisor of a hub: starts the sequencer and the HTTP workers, and ends with them.

``HubLaunch`` carries what every process of a hub is started with; none outlives the supervisor.
"""

from __future__ import annotations

import json
import logging
import os
import shutil
import signal
import subprocess
import sys
from argparse import ArgumentParser
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hub.settings import HubSettings, load, parse_key, with_options
from hub.storage.datadir import DataDir
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


@dataclass(frozen=True, slots=True)
class HubLaunch:
    """The data directory and configuration of a hub, as its processes get them.

    ``options`` are JSON values, because each process passes them on to the next.
    """

    datadir: DataDir
    config: Path | None
    options: dict[str, Any]
    ready_fd: int | None = None
    parent: int | None = None

    def settings(self) -> HubSettings:
        given = self.options.get("issuers")
        issuers = frozenset(parse_key("issuer", key) for key in given) if given else None
        return with_options(load(self.config), {**self.options, "issuers": issuers})

    def say_ready(self) -> None:
        say_ready(self.ready_fd)

    def command(self, module: str) -> list[str]:
        arguments = ["--data-dir", str(self.datadir.root), "--options", json.dumps(self.options)]
        if self.config is not None:
            arguments += ["--config", str(self.config)]
        # -P: a package of this name in the working directory must not shadow ours.
        return [sys.executable, "-P", "-m", module, *arguments]


def parse_launch(arguments: list[str]) -> HubLaunch:
    parser = ArgumentParser(description="A process of a hub; `veen hub start` runs it.")
    parser.add_argument("--data-dir", type=Path, required=True)
    parser.add_argument("--config", type=Path)
    parser.add_argument("--options", type=json.loads, default={})
    parser.add_argument("--ready-fd", type=int)
    parser.add_argument("--parent", type=int)
    args = parser.parse_args(arguments)
    root = DataDir(args.data_dir.resolve())
    return HubLaunch(root, args.config, args.options, args.ready_fd, args.parent)


def begin(launch: HubLaunch) -> None:
    """Set up a process: private files, logs to standard error, rotated by size."""
    os.umask(0o077)
    begin_logging(*log_size(launch.settings), bare=("hub.submit",))  # one JSON document a line


def begin_as_child(launch: HubLaunch) -> None:
    """Set up a process that ends when its parent does, or at once when it has ended already."""
    begin(launch)
    end_with(launch.parent)


def metrics_directory(datadir: DataDir) -> Path:
    """The directory of Prometheus's multiprocess mode, which the environment names."""
    return datadir.run / "metrics"


def clear_metrics(datadir: DataDir) -> None:
    """Remove the counters of an earlier run, which must not be added up."""
    shutil.rmtree(metrics_directory(datadir), ignore_errors=True)
    durable.make_directory(metrics_directory(datadir))


def run(launch: HubLaunch) -> int:
    """Run a hub until it is stopped or one of its processes ends; the exit code."""
    launch.datadir.create()
    signal.pthread_sigmask(signal.SIG_BLOCK, SIGNALS)
    os.environ["PROMETHEUS_MULTIPROC_DIR"] = str(metrics_directory(launch.datadir))
    parent = ["--parent", str(os.getpid())]
    sequencer = start_ready([*launch.command("hub.sequencer"), *parent])
    if sequencer is None:
        return EXIT_REFUSED
    web = subprocess.Popen([*launch.command("hub.web"), *parent])  # noqa: S603
    durable.write(launch.datadir.address_file, f"{launch.settings().url}\n".encode())
    durable.write(launch.datadir.pid_file, f"{os.getpid()}\n".encode())
    try:
        return _watch(sequencer, web)
    finally:
        end_process(web)
        end_process(sequencer)
        launch.datadir.pid_file.unlink(missing_ok=True)
        launch.datadir.address_file.unlink(missing_ok=True)


def _watch(sequencer: subprocess.Popen[bytes], web: subprocess.Popen[bytes]) -> int:
    """Wait for the end: 0 after a signal, 1 when a process of the hub failed."""
    while True:
        received = signal.sigwait(SIGNALS)
        if received != signal.SIGCHLD:
            return 0
        for name, process in (("sequencer", sequencer), ("HTTP workers", web)):
            if process.poll() is not None:
                _log.critical("the %s ended with code %s; stopping", name, process.returncode)
                return 1
