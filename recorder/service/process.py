"""What the processes of a query service share: how they start, and that none outlives the first."""

from __future__ import annotations

import logging
import os
import shutil
import sys
from argparse import ArgumentParser
from dataclasses import dataclass
from pathlib import Path

from recorder.service.home import ServiceHome
from recorder.settings import Settings, load
from veen import durable
from veen.child_process import end_with, say_ready
from veen.errors import VeenError
from veen.log_file import DEFAULT_BACKUPS, DEFAULT_MAX_BYTES, begin_logging


@dataclass(frozen=True, slots=True)
class Launch:
    """``spark_job`` is the file of the job that runs queries on Spark; without it none does.

    ``caps`` are files with the capabilities that the runner writes with, where the hub asks.
    """

    config: Path
    spark_job: Path | None = None
    caps: tuple[Path, ...] = ()
    ready_fd: int | None = None
    parent: int | None = None

    def settings(self) -> Settings:
        return load(self.config)

    def say_ready(self) -> None:
        say_ready(self.ready_fd)

    def command(self, module: str) -> list[str]:
        arguments = ["--config", str(self.config), "--parent", str(os.getpid())]
        if self.spark_job is not None:
            arguments += ["--spark-job", str(self.spark_job)]
        for one in self.caps:
            arguments += ["--cap", str(one)]
        # -P: a folder of this name where the service is started is not our package.
        return [sys.executable, "-P", "-m", module, *arguments]


def parse_launch(arguments: list[str]) -> Launch:
    parser = ArgumentParser(description="A process of the query service; see veen recorder serve.")
    parser.add_argument("--config", type=Path, required=True)
    parser.add_argument("--spark-job", type=Path)
    parser.add_argument("--cap", type=Path, action="append", default=[])
    parser.add_argument("--ready-fd", type=int)
    parser.add_argument("--parent", type=int)
    found = parser.parse_args(arguments)
    return Launch(
        found.config.absolute(), found.spark_job, tuple(found.cap), found.ready_fd, found.parent
    )


def begin(launch: Launch) -> None:
    """Set up a process: private files, logs to standard error within the size that is set."""
    os.umask(0o077)
    begin_logging(*_log_size(launch))
    logging.getLogger("httpx").setLevel("WARNING")


def _log_size(launch: Launch) -> tuple[int, int]:
    """What the settings say; bad ones are refused later, with a log to say so in."""
    try:
        settings = launch.settings().query
    except VeenError:
        return DEFAULT_MAX_BYTES, DEFAULT_BACKUPS
    return settings.log_max_bytes, settings.log_backups


def begin_as_child(launch: Launch) -> None:
    """Set up a process that ends when its parent does, or at once when it has ended already."""
    begin(launch)
    end_with(launch.parent)


def clear_metrics(home: ServiceHome) -> None:
    """Counters of an earlier run, or of workers long gone, must not be added up."""
    shutil.rmtree(home.metrics, ignore_errors=True)
    durable.make_directory(home.metrics)
