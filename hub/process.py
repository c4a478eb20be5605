"""What the processes of one hub share: how they start, and that none outlives the first."""

from __future__ import annotations

import json
import os
import shutil
import sys
from argparse import ArgumentParser
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hub.settings import Settings, load, parse_key, with_options
from hub.storage.datadir import DataDir
from veen import durable
from veen.child_process import end_with, say_ready
from veen.errors import VeenError
from veen.log_file import DEFAULT_BACKUPS, DEFAULT_MAX_BYTES, begin_logging


@dataclass(frozen=True, slots=True)
class Launch:
    """Where a hub lives and how it is configured: all that its processes are told.

    ``options`` are as JSON has them, for each process hands them on to the next.
    """

    datadir: DataDir
    config: Path | None
    options: dict[str, Any]
    ready_fd: int | None = None
    parent: int | None = None

    def settings(self) -> Settings:
        given = self.options.get("issuers")
        issuers = frozenset(parse_key("issuer", one) for one in given) if given else None
        return with_options(load(self.config), {**self.options, "issuers": issuers})

    def say_ready(self) -> None:
        say_ready(self.ready_fd)

    def command(self, module: str) -> list[str]:
        arguments = ["--data-dir", str(self.datadir.root), "--options", json.dumps(self.options)]
        if self.config is not None:
            arguments += ["--config", str(self.config)]
        # -P: a folder of this name where the hub is started is not our package.
        return [sys.executable, "-P", "-m", module, *arguments]


def parse_launch(arguments: list[str]) -> Launch:
    parser = ArgumentParser(description="A process of a hub; `veen hub start` runs it.")
    parser.add_argument("--data-dir", type=Path, required=True)
    parser.add_argument("--config", type=Path)
    parser.add_argument("--options", type=json.loads, default={})
    parser.add_argument("--ready-fd", type=int)
    parser.add_argument("--parent", type=int)
    found = parser.parse_args(arguments)
    root = DataDir(found.data_dir.resolve())
    return Launch(root, found.config, found.options, found.ready_fd, found.parent)


def begin(launch: Launch) -> None:
    """Set up a process: private files, logs to standard error within the size that is set."""
    os.umask(0o077)
    begin_logging(*_log_size(launch), bare=("hub.submit",))  # one JSON document a line


def _log_size(launch: Launch) -> tuple[int, int]:
    """What the settings say; bad ones are refused later, with a log to say so in."""
    try:
        settings = launch.settings()
    except VeenError:
        return DEFAULT_MAX_BYTES, DEFAULT_BACKUPS
    return settings.log_max_bytes, settings.log_backups


def begin_as_child(launch: Launch) -> None:
    """Set up a process that ends when its parent does, or at once when it has ended already."""
    begin(launch)
    end_with(launch.parent)


def metrics_directory(datadir: DataDir) -> Path:
    """Where the processes of a hub add up their metrics; their environment names it."""
    return datadir.run / "metrics"


def clear_metrics(datadir: DataDir) -> None:
    """Counters of an earlier run, or of workers long gone, must not be added up."""
    shutil.rmtree(metrics_directory(datadir), ignore_errors=True)
    durable.make_directory(metrics_directory(datadir))
