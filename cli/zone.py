"""``veen zone``: a hub, a recorder, a bridge and an Airflow in one directory, run together.

``veen zone run`` and ``probe`` are for a single process of a zone, as in a container.
"""

from __future__ import annotations

import json
import os
import re
import shlex
import subprocess
import time
from collections.abc import Iterator
from enum import Enum
from pathlib import Path
from typing import Annotated, Any

import typer

from cli.console import notice, show
from cli.errors import REFUSED, UsageError
from cli.extras import require
from hub import settings as hub_settings
from recorder import settings as recorder_settings
from veen.errors import Refused
from veen.keystore.card import read_card
from veen.objects.port import Addressing, StoreLocation
from veen.system import durable
from zone import config as zones
from zone import services
from zone import state as states
from zone.directory import PROGRAMS, USERS, ZoneHome, environment
from zone.init import Ports, ZoneRequest
from zone.init import init as make
from zone.run import start, stop
from zone.services import (
    Readiness,
    ZoneService,
    answers,
    authorize,
    migration,
    readiness,
    unhealthy,
)
from zone.state import ZoneStage, ZoneState

DirectoryOption = Annotated[
    Path,
    typer.Option("--directory", metavar="DIR", help="Directory of a zone, or of several zones."),
]
OneDirectoryOption = Annotated[
    Path, typer.Option("--directory", metavar="DIR", help="Directory of the zone.")
]
ListenOption = Annotated[
    str,
    typer.Option(
        "--listen", metavar="IP", help="Address that Airflow and the query service listen on."
    ),
]
PortsOption = Annotated[
    str | None,
    typer.Option("--ports", metavar="N,N,N", help="Ports of hub, query service and Airflow."),
]
ApproverOption = Annotated[
    list[Path] | None,
    typer.Option(
        "--approver",
        metavar="CARD",
        help="Offline: card of who must sign each import; repeatable.",
    ),
]
TrustOption = Annotated[
    Path | None,
    typer.Option("--trust", metavar="DIR", help="Offline: handover/ of the online zone."),
]
MediumOption = Annotated[
    Path | None,
    typer.Option("--medium", metavar="DIR", help="Mount point of media; default: medium/."),
]


SETUP = "setup"
"""The part that runs once, before Airflow starts."""

_COMMANDS = (services.HUB, services.RECORDER)
"""Parts that run a ``veen`` command, which prepares itself."""

PartArgument = Annotated[
    str,
    typer.Argument(
        metavar="PART",
        help="hub, recorder, api-server, scheduler, dag-processor or triggerer; or setup.",
    ),
]


def run(part: PartArgument, directory: OneDirectoryOption) -> None:
    """Run one service of a zone in the foreground until stopped.

    For containers and service managers, with one process each; set the database with
    AIRFLOW__DATABASE__SQL_ALCHEMY_CONN. ``setup`` prepares the database, registers streams and
    capabilities with the hub, and exits.

    Example: veen zone run hub --directory /zone
    """
    home = ZoneHome(directory.absolute())
    detail = environment(home, home.zone(), os.environ)
    durable.make_directory(home.airflow)
    if part == SETUP:
        require(f"veen zone run {part}", "airflow")
        authorize(home)
        raise typer.Exit(subprocess.run(migration().command, env=detail, check=False).returncode)  # noqa: S603
    service = _part(home, part)
    if part not in _COMMANDS:
        require(f"veen zone run {part}", "airflow")
    os.chdir(home.root)
    os.execve(service.command[0], service.command, detail | dict(service.more))  # noqa: S606


def probe(part: PartArgument, directory: OneDirectoryOption) -> None:
    """Check the health of one service of a zone; exit with 4 if it is unhealthy.

    Example: veen zone probe hub --directory /zone
    """
    is_ready = _part(ZoneHome(directory.absolute()), part).is_ready()
    show({"part": part, "ready": is_ready}, f"{part} is {'ready' if is_ready else 'not ready'}")
    if not is_ready:
        raise typer.Exit(REFUSED)


def _part(home: ZoneHome, name: str) -> ZoneService:
    parts = {part.name: part for part in _parts(home)}
    if name not in parts:
        raise Refused(f"unknown part {name}: expected one of {', '.join(parts)}")
    return parts[name]


def _parts(home: ZoneHome) -> Iterator[ZoneService]:
    zone = home.zone()
    yield services.hub(home, zone)
    yield services.query(home)
    yield from services.airflow(zone)


app = typer.Typer(help="Create and run a whole zone in one directory.", no_args_is_help=True)


class RoleOption(Enum):
    ONLINE = zones.ONLINE
    OFFLINE = zones.OFFLINE
    ALONE = zones.ALONE


@app.command()
def init(
    directory: Annotated[
        Path, typer.Option("--directory", metavar="DIR", help="Directory to create; it is private.")
    ],
    name: Annotated[str, typer.Option("--name", metavar="NAME", help="Name of the zone.")],
    role: Annotated[
        RoleOption, typer.Option("--role", help="Whether the zone exports, imports, or neither.")
    ] = RoleOption.ALONE,
    trust: TrustOption = None,
    medium: MediumOption = None,
    store: Annotated[
        str | None,
        typer.Option(
            "--store", metavar="URL", help="Object store; default: a directory of the zone."
        ),
    ] = None,
    endpoint: Annotated[
        str | None,
        typer.Option("--endpoint", metavar="URL", help="Endpoint of an S3-compatible store."),
    ] = None,
    listen: ListenOption = "127.0.0.1",
    ports: PortsOption = None,
    approver: ApproverOption = None,
) -> None:
    """Create a zone: identities, capabilities, the hub_id, and veen.toml.

    An online zone writes handover/, which the offline zone must trust: transfer it over a trusted
    channel, and compare hub_id by voice or on paper. It contains no secret. Keys in the directory
    are protected by its permissions only; move identities/issuer and identities/keeper elsewhere
    once the zone runs.

    People approve imports into an offline zone in its Airflow. With --approver every bundle also
    needs the signature of each approver, made by veen bridge approve with a key that this host
    never holds; without it, whoever controls the Airflow of this host controls imports.

    Example: veen zone init --directory ./z1 --name z1 --role online
    """
    home = ZoneHome(directory.absolute())
    request = ZoneRequest(
        name=name,
        role=role.value,
        storage=None if store is None else storage_of(store, endpoint),
        trust=None if trust is None else trust.absolute(),
        medium=None if medium is None else medium.absolute(),
        listen=listen,
        ports=None if ports is None else _ports(ports),
        approvers=tuple(read_card(item.absolute()).client_id for item in approver or ()),
    )
    hub = make(home, request, now=int(time.time()), random=os.urandom)
    show(
        {
            "zone": name,
            "role": role.value,
            "hub_id": hub.hub_id.hex(),
            "file": str(home.file),
            "handover": str(home.handover) if home.handover.is_dir() else None,
            "next": f"veen zone up --directory {shlex.quote(str(directory))}",
        }
    )


@app.command()
def up(directory: DirectoryOption = Path("var")) -> None:
    """Start all services of a zone on the loopback interface, in the background.

    Starts PostgreSQL (embedded, unless AIRFLOW__DATABASE__SQL_ALCHEMY_CONN is set), the hub, the
    query service, and the server, scheduler, DAG processor and triggerer of Airflow. Prints the
    passwords the first time. Ctrl-C during the start stops all again. Exits with 4 if the hub runs
    but a service, which is named, does not; it is retried in the background.

    Example: veen zone up --directory ./var
    """
    homes = _homes(directory)
    start(homes, notice)
    started = [_describe(home) for home in homes]
    show({"zones": started}, "\n".join(line for item in started for line in _lines(item)))
    if any(item["wrong"] for item in started):
        raise typer.Exit(REFUSED)


@app.command()
def down(directory: DirectoryOption = Path("var")) -> None:
    """Stop all services of a zone, also those left by a crash; all state stays.

    Example: veen zone down --directory ./var
    """
    stopped = {home.root.name: stop(home) for home in reversed(_homes(directory))}
    lines = [f"{name}: {'stopped' if had else 'nothing ran'}" for name, had in stopped.items()]
    show({"stopped": stopped}, "\n".join(lines))


@app.command()
def status(directory: DirectoryOption = Path("var")) -> None:
    """Show which services of a zone run, and whether they are healthy.

    Exits with 4 if a service is unhealthy; a zone that is stopped is healthy.

    Example: veen zone status --directory ./var
    """
    zones = [_status(home) for home in _homes(directory)]
    lines = [line for item in zones for line in _status_lines(item)]
    show({"zones": zones}, "\n".join(lines))
    if any(item["stage"] not in ("up", "down") or item["wrong"] for item in zones):
        raise typer.Exit(REFUSED)


def _homes(directory: Path) -> list[ZoneHome]:
    """The zone of a directory, or the zones in it; online zones first."""
    root = directory.absolute()
    if (root / zones.FILE).exists():
        return [ZoneHome(root)]
    inner = sorted(path.parent for path in root.glob(f"*/{zones.FILE}"))
    if not inner:
        raise Refused(f"{directory} holds no zone: make one with veen zone init")
    return sorted((ZoneHome(item) for item in inner), key=lambda item: item.zone().imports)


def _ports(given: str) -> Ports:
    match = re.fullmatch(r"(\d{1,5}),(\d{1,5}),(\d{1,5})", given)
    if match is None or len(set(match.groups())) < 3:
        raise UsageError(f"--ports {given}: expected three different ports, like 8080,8090,8081")
    return Ports(*map(int, match.groups()))


def storage_of(url: str, endpoint: str | None) -> StoreLocation:
    """Settings of a store; a private S3 server has its buckets in the path."""
    addressing = Addressing.AUTO if endpoint is None else Addressing.PATH
    return StoreLocation(url=url, endpoint=endpoint, addressing=addressing.value)


def _describe(home: ZoneHome) -> dict[str, Any]:
    """The addresses of a zone; passwords only the first time."""
    zone, shown = home.zone(), home.secrets / "shown"
    document: dict[str, Any] = {
        "zone": zone.name,
        "airflow": zone.airflow.url,
        "query": f"http://{recorder_settings.load(home.file).query.listen}",
        "hub": hub_settings.load(home.file).url,
        "passwords_file": str(home.passwords),
        "token_file": str(home.token),
        "wrong": list(states.read(home).trouble()),
    }
    if not shown.exists():
        passwords = json.loads(home.passwords.read_bytes())
        document["passwords"] = {name: passwords[name] for name, _ in USERS if name not in PROGRAMS}
        shown.touch(mode=0o600)
    return document


def _lines(document: dict[str, Any]) -> Iterator[str]:
    yield f"{document['zone']} is up" + (" in part" if document["wrong"] else "")
    yield from (f"  WRONG: {line}" for line in document["wrong"])
    yield f"  Airflow    {document['airflow']}"
    yield f"  Query API  {document['query']}"
    yield f"  hub        {document['hub']}"
    for name, password in document.get("passwords", {}).items():
        yield f"  {name:<10} {password}"
    yield f"  passwords are in {document['passwords_file']}"


def _status(home: ZoneHome) -> dict[str, Any]:
    zone, state = home.zone(), states.read(home)
    is_led = state.supervisor is not None and state.supervisor.is_alive()
    stage = state.stage if is_led or state.stage in (ZoneStage.DOWN, ZoneStage.FAILED) else None
    processes = [
        {
            "name": running.name,
            "pid": running.process.pid,
            "runs": running.process.is_alive(),
            "log": running.log,
            "restarts": running.restarts,
            "failing": running.is_failing,
        }
        for running in state.running
    ]
    hub = readiness(hub_settings.load(home.file).url) if stage is ZoneStage.UP else Readiness(None)
    return {
        "zone": zone.name,
        "stage": "crashed" if stage is None else stage.value,
        "processes": processes,
        "wrong": list(_wrong(home, state, hub)) if stage is ZoneStage.UP else [],
        "warnings": list(hub.warnings),
        "detail": state.detail[-1] if state.detail and stage is ZoneStage.FAILED else None,
    }


def _wrong(home: ZoneHome, state: ZoneState, hub: Readiness) -> Iterator[str]:
    """The problems seen by the supervisor, and those that the services report now."""
    yield from state.trouble()
    yield from (
        f"{running.name} has ended"
        for running in state.running
        if running.is_ready and not running.process.is_alive()
    )
    if hub.refusal is not None:
        yield f"the hub is not ready: {hub.refusal}"
    if not answers(f"http://{recorder_settings.load(home.file).query.listen}/healthz"):
        yield "the query service does not answer"
    yield from (f"Airflow's {item} is not healthy" for item in unhealthy(home.zone().airflow.url))


def _status_lines(document: dict[str, Any]) -> Iterator[str]:
    yield f"{document['zone']} is {document['stage']}" + (
        f": {document['detail']}" if document["detail"] else ""
    )
    for line in document["processes"]:
        restarts = f", restarted {line['restarts']} times" if line["restarts"] else ""
        runs = "runs" if line["runs"] else "has ended"
        yield f"  {line['name']:<14} {runs}, pid {line['pid']}{restarts}"
    yield from (f"  WRONG: {line}" for line in document["wrong"])
    yield from (f"  WARNING: {line}" for line in document["warnings"])


app.command()(run)
app.command()(probe)
