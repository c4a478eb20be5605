"""``veen zone``: a hub, a recorder, a bridge and an Airflow in one folder, run together."""

from __future__ import annotations

import json
import os
import re
import shlex
import time
from collections.abc import Iterator
from enum import Enum
from pathlib import Path
from typing import Annotated, Any

import typer

from cli import zone_state as states
from cli.console import notice, show
from cli.failure import REFUSED, Refused, UsageError
from cli.zone_environment import PROGRAMS, USERS
from cli.zone_home import ZoneHome
from cli.zone_init import Wanted
from cli.zone_init import init as make
from cli.zone_options import (
    ApproverOption,
    DirectoryOption,
    ListenOption,
    MediumOption,
    PortsOption,
    TrustOption,
)
from cli.zone_part import probe, run
from cli.zone_run import start, stop
from cli.zone_services import Readiness, answers, readiness, unhealthy
from cli.zone_state import Stage, State
from cli.zone_toml import Ports
from hub import settings as hub_settings
from recorder import settings as recorder_settings
from recorder import zone as zones
from recorder.zone import StorageSettings
from veen.keystore import card_file

app = typer.Typer(help="A whole zone in one folder: make it, run it.", no_args_is_help=True)


class RoleOption(Enum):
    ONLINE = zones.ONLINE
    OFFLINE = zones.OFFLINE
    ALONE = zones.ALONE


@app.command()
def init(
    directory: Annotated[
        Path, typer.Option("--directory", metavar="DIR", help="The folder to make; it is private.")
    ],
    name: Annotated[str, typer.Option("--name", metavar="NAME", help="What the zone is called.")],
    role: Annotated[
        RoleOption, typer.Option("--role", help="Does it export, import, or neither?")
    ] = RoleOption.ALONE,
    trust: TrustOption = None,
    medium: MediumOption = None,
    store: Annotated[
        str | None,
        typer.Option("--store", metavar="URL", help="Object storage; else a folder of the zone."),
    ] = None,
    endpoint: Annotated[
        str | None, typer.Option("--endpoint", metavar="URL", help="Of a store like S3.")
    ] = None,
    listen: ListenOption = "127.0.0.1",
    ports: PortsOption = None,
    approver: ApproverOption = None,
) -> None:
    """Make a zone: identities, capabilities, the name of its hub, and veen.toml.

    An online zone leaves in handover/ what the offline one has to trust: carry that folder there by
    a way you trust, and compare hub_id by voice or on paper. No secret is in it. Keys lie in the
    folder unprotected but for its permissions; identities/issuer and identities/keeper are best
    kept elsewhere once the zone is up.

    An import into an offline zone is approved by people in its Airflow. With --approver every
    bundle also needs the signature of each of them, made by veen bridge approve with a key that
    this host never holds; without it, whoever controls this host's Airflow controls imports.

    Example: veen zone init --directory ./z1 --name z1 --role online
    """
    home = ZoneHome(directory.absolute())
    wanted = Wanted(
        name=name,
        role=role.value,
        storage=None if store is None else storage_of(store, endpoint),
        trust=None if trust is None else trust.absolute(),
        medium=None if medium is None else medium.absolute(),
        listen=listen,
        ports=None if ports is None else _ports(ports),
        approvers=tuple(card_file.read(one.absolute()).client_id for one in approver or ()),
    )
    hub = make(home, wanted, now=int(time.time()), random=os.urandom)
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
    """Start everything of a zone on this host's loopback, and leave it running.

    PostgreSQL (embedded, unless AIRFLOW__DATABASE__SQL_ALCHEMY_CONN names another), the hub, the
    query service, and Airflow's server, scheduler, DAG processor and triggerer. Passwords are
    printed the first time. Ctrl-C before it is up stops all of it again. Exit code 4 and a zone
    that runs: its hub is up, and a part that is named is not; it is tried again meanwhile.

    Example: veen zone up --directory ./var
    """
    homes = _homes(directory)
    start(homes, notice)
    started = [_told(home) for home in homes]
    show({"zones": started}, "\n".join(line for one in started for line in _lines(one)))
    if any(one["wrong"] for one in started):
        raise typer.Exit(REFUSED)


@app.command()
def down(directory: DirectoryOption = Path("var")) -> None:
    """Stop everything of a zone, also what a crash has left; all state stays.

    Example: veen zone down --directory ./var
    """
    stopped = {home.root.name: stop(home) for home in reversed(_homes(directory))}
    lines = [f"{name}: {'stopped' if had else 'nothing ran'}" for name, had in stopped.items()]
    show({"stopped": stopped}, "\n".join(lines))


@app.command()
def status(directory: DirectoryOption = Path("var")) -> None:
    """Tell what of a zone runs, and whether it does its work.

    Exit code 4 says that something is not as it should be; all down is as it should be.

    Example: veen zone status --directory ./var
    """
    found = [_status(home) for home in _homes(directory)]
    lines = [line for one in found for line in _status_lines(one)]
    show({"zones": found}, "\n".join(lines))
    if any(one["stage"] not in ("up", "down") or one["wrong"] for one in found):
        raise typer.Exit(REFUSED)


def _homes(directory: Path) -> list[ZoneHome]:
    """The zone of a folder, or those of the folders in it; online ones first."""
    root = directory.absolute()
    if (root / zones.FILE).exists():
        return [ZoneHome(root)]
    inner = sorted(one.parent for one in root.glob(f"*/{zones.FILE}"))
    if not inner:
        raise Refused(f"{directory} holds no zone: make one with veen zone init")
    return sorted((ZoneHome(one) for one in inner), key=lambda one: one.zone().imports)


def _ports(given: str) -> Ports:
    found = re.fullmatch(r"(\d{1,5}),(\d{1,5}),(\d{1,5})", given)
    if found is None or len(set(found.groups())) < 3:
        raise UsageError(f"--ports {given}: three different numbers are due, as in 8080,8090,8081")
    return Ports(*map(int, found.groups()))


def storage_of(url: str, endpoint: str | None) -> StorageSettings:
    """A server of one's own has its buckets in the path."""
    return StorageSettings(
        url=url,
        endpoint=endpoint,
        region="us-east-1",
        addressing="auto" if endpoint is None else "path",
        accept_overwriting_store=False,
    )


def _told(home: ZoneHome) -> dict[str, Any]:
    """Where it is; passwords the first time only."""
    zone, shown = home.zone(), home.secrets / "shown"
    found: dict[str, Any] = {
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
        found["passwords"] = {name: passwords[name] for name, _ in USERS if name not in PROGRAMS}
        shown.touch(mode=0o600)
    return found


def _lines(found: dict[str, Any]) -> Iterator[str]:
    yield f"{found['zone']} is up" + (" in part" if found["wrong"] else "")
    yield from (f"  WRONG: {one}" for one in found["wrong"])
    yield f"  Airflow    {found['airflow']}"
    yield f"  Query API  {found['query']}"
    yield f"  hub        {found['hub']}"
    for name, password in found.get("passwords", {}).items():
        yield f"  {name:<10} {password}"
    yield f"  passwords are in {found['passwords_file']}"


def _status(home: ZoneHome) -> dict[str, Any]:
    zone, state = home.zone(), states.read(home)
    is_led = state.supervisor is not None and state.supervisor.is_alive()
    stage = state.stage if is_led or state.stage in (Stage.DOWN, Stage.FAILED) else None
    processes = [
        {
            "name": one.name,
            "pid": one.process.pid,
            "runs": one.process.is_alive(),
            "log": one.log,
            "restarts": one.restarts,
            "failing": one.is_failing,
        }
        for one in state.running
    ]
    hub = readiness(hub_settings.load(home.file).url) if stage is Stage.UP else Readiness(None)
    return {
        "zone": zone.name,
        "stage": "crashed" if stage is None else stage.value,
        "processes": processes,
        "wrong": list(_wrong(home, state, hub)) if stage is Stage.UP else [],
        "warnings": list(hub.warnings),
        "told": state.told[-1] if state.told and stage is Stage.FAILED else None,
    }


def _wrong(home: ZoneHome, state: State, hub: Readiness) -> Iterator[str]:
    """What the supervisor has seen, and what the services answer now."""
    yield from state.trouble()
    yield from (
        f"{one.name} has ended"
        for one in state.running
        if one.is_ready and not one.process.is_alive()
    )
    if hub.refusal is not None:
        yield f"the hub is not ready: {hub.refusal}"
    if not answers(f"http://{recorder_settings.load(home.file).query.listen}/healthz"):
        yield "the query service does not answer"
    yield from (f"Airflow's {one} is not healthy" for one in unhealthy(home.zone().airflow.url))


def _status_lines(found: dict[str, Any]) -> Iterator[str]:
    yield f"{found['zone']} is {found['stage']}" + (f": {found['told']}" if found["told"] else "")
    for one in found["processes"]:
        restarts = f", restarted {one['restarts']} times" if one["restarts"] else ""
        runs = "runs" if one["runs"] else "has ended"
        yield f"  {one['name']:<14} {runs}, pid {one['pid']}{restarts}"
    yield from (f"  WRONG: {one}" for one in found["wrong"])
    yield from (f"  WARNING: {one}" for one in found["warnings"])


app.command()(run)
app.command()(probe)
