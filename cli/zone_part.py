"""``veen zone run`` and ``veen zone probe``: one process of a zone, as in a container."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from typing import Annotated

import typer

from cli import zone_services as services
from cli.console import show
from cli.extras import require
from cli.failure import REFUSED, Refused
from cli.zone_environment import environment
from cli.zone_home import ZoneHome
from cli.zone_options import OneDirectoryOption
from cli.zone_services import Service
from cli.zone_setup import authorize, migration
from veen import durable

SETUP = "setup"
"""Not a process that stays: what has to be done once before Airflow starts."""

_COMMANDS = (services.HUB, services.RECORDER)
"""These run a command of ours, which knows what it needs."""

PartArgument = Annotated[
    str,
    typer.Argument(
        metavar="PART",
        help="hub, recorder, api-server, scheduler, dag-processor or triggerer; or setup.",
    ),
]


def run(part: PartArgument, directory: OneDirectoryOption) -> None:
    """Be one process of a zone, until told to stop.

    For containers and service managers, where each process has its own; a database is then named
    by AIRFLOW__DATABASE__SQL_ALCHEMY_CONN. ``setup`` makes it ready and tells the hub who may
    write what, and ends.

    Example: veen zone run hub --directory /zone
    """
    home = ZoneHome(directory.absolute())
    told = environment(home, home.zone(), os.environ)
    durable.make_directory(home.airflow)
    if part == SETUP:
        require(f"veen zone run {part}", "airflow")
        authorize(home)
        raise typer.Exit(subprocess.run(migration().command, env=told, check=False).returncode)  # noqa: S603
    found = _part(home, part)
    if part not in _COMMANDS:
        require(f"veen zone run {part}", "airflow")
    os.chdir(home.root)
    os.execve(found.command[0], found.command, told | dict(found.more))  # noqa: S606


def probe(part: PartArgument, directory: OneDirectoryOption) -> None:
    """Tell whether one process of a zone does its work; exit code 4 says that it does not.

    Example: veen zone probe hub --directory /zone
    """
    is_ready = _part(ZoneHome(directory.absolute()), part).is_ready()
    show({"part": part, "ready": is_ready}, f"{part} is {'ready' if is_ready else 'not ready'}")
    if not is_ready:
        raise typer.Exit(REFUSED)


def _part(home: ZoneHome, name: str) -> Service:
    found = {one.name: one for one in _parts(home)}
    if name not in found:
        raise Refused(f"a zone has no {name}: it has {', '.join(found)}")
    return found[name]


def _parts(home: ZoneHome) -> Iterator[Service]:
    zone = home.zone()
    yield services.hub(home, zone)
    yield services.query(home)
    yield from services.airflow(zone)
