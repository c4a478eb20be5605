"""``veen hub start`` and ``veen hub stop``."""

from __future__ import annotations

import os
import shlex
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path
from typing import Annotated, Any, Final

import httpx
import typer

from cli.console import notice, show
from cli.errors import OK, REFUSED
from cli.options import DEFAULT_DATA_DIR, ConfigOption, DataDirOption
from hub import supervisor
from hub.settings import HubSettings
from hub.storage.datadir import DataDir, Holder, is_held
from hub.storage.identity import read_identity
from hub.supervisor import HubLaunch, begin
from veen.errors import Refused
from veen.system.child_process import born, of_session, stat_of
from veen.system.listening import is_served_by, refuse_taken
from veen.system.log_file import last_lines
from zone.directory import ZoneHome
from zone.run import rest, supervised, wake

_START_SEC: Final = 60.0
_END_SEC: Final = 30.0


def start(
    data_dir: DataDirOption = DEFAULT_DATA_DIR,
    listen: Annotated[
        str | None, typer.Option(metavar="HOST:PORT", help="Address and port to listen on.")
    ] = None,
    config: ConfigOption = None,
    admission: Annotated[
        str | None, typer.Option(metavar="MODE", help="gated (default) or open.")
    ] = None,
    reads: Annotated[
        str | None, typer.Option(metavar="MODE", help="policy (default) or open.")
    ] = None,
    workers: Annotated[int | None, typer.Option(metavar="N", help="HTTP worker processes.")] = None,
    issuer: Annotated[
        list[str] | None,
        typer.Option(metavar="HEX", help="Trusted issuer of capabilities; repeatable."),
    ] = None,
    tls_cert: Annotated[
        str | None, typer.Option(metavar="FILE", help="Certificate chain (PEM).")
    ] = None,
    tls_key: Annotated[
        str | None, typer.Option(metavar="FILE", help="Its private key (PEM).")
    ] = None,
    foreground: Annotated[
        bool, typer.Option("--foreground", help="Run in the foreground.")
    ] = False,
) -> None:
    """Start a hub; a new directory gets a hub key and a hub_id.

    Example: veen hub start --data-dir ./hub --listen 127.0.0.1:8080
    """
    options = _given(
        listen=listen, admission=admission, reads=reads, workers=workers,
        tls_cert=tls_cert, tls_key=tls_key, issuers=sorted(issuer) if issuer else None,
    )  # fmt: skip
    launch = HubLaunch(DataDir(data_dir.resolve()), config.resolve() if config else None, options)
    settings = launch.settings()
    _refuse_held(launch.datadir)
    refuse_taken(settings.listen, "give another address with --listen")
    if foreground:
        _warn(settings)
        begin(launch)
        sys.exit(REFUSED if supervisor.run(launch) else OK)
    zone = supervised(launch.datadir.root)
    if zone is not None and zone.rest.exists():
        _start_in_zone(zone, launch, settings)
        return
    pid, log = _start_in_background(launch, settings)
    _warn(settings)
    _warn_unready(settings)
    show(
        {"pid": pid, "url": settings.url, "data_dir": str(launch.datadir.root), "log": str(log)},
        f"hub {pid} answers on {settings.url}; log: {log}",
    )


def stop(data_dir: DataDirOption = DEFAULT_DATA_DIR) -> None:
    """Stop the hub of a data directory; every acknowledged message is on disk.

    Exits with 0 if no hub runs. In a running zone the supervisor stops the hub, and does not
    restart it until veen hub start; all other services continue.

    Example: veen hub stop --data-dir ./hub
    """
    datadir = DataDir(data_dir.resolve())
    if not datadir.root.is_dir():
        raise Refused(
            f"no hub runs on {datadir.root}, which does not exist: expected the data directory of "
            "a hub; give it with --data-dir"
        )
    pid, zone = _running_pid(datadir), supervised(datadir.root)
    if zone is not None:
        rest(zone)
        text = f"the zone in {zone.root} has stopped its hub; veen hub start starts it again"
        show({"pid": pid}, text)
        return
    if pid is None and is_held(datadir):
        raise Refused(
            f"{datadir.root} is held by another process ({_holder(datadir)}), which is no running "
            "hub: a hub that starts or stops, or a command on its directory; try again"
        )
    if pid is None:
        show({"pid": None}, f"no hub runs on {datadir.root}: nothing to stop")
        return
    os.kill(pid, signal.SIGTERM)
    while _is_alive(pid):
        time.sleep(0.05)
    show({"pid": pid}, f"stopped hub {pid}")


def _start_in_zone(zone: ZoneHome, launch: HubLaunch, settings: HubSettings) -> None:
    """Have the supervisor of the zone start its hub."""
    wake(zone)
    deadline = time.monotonic() + _START_SEC
    while _running_pid(launch.datadir) is None or not _answers_as_own(launch.datadir, settings):
        if time.monotonic() > deadline:
            raise Refused(f"the hub did not answer within {_START_SEC:.0f} s; see {zone.logs}")
        time.sleep(0.05)
    pid, log = _running_pid(launch.datadir), zone.logs / "hub.log"
    show(
        {"pid": pid, "url": settings.url, "data_dir": str(launch.datadir.root), "log": str(log)},
        f"the zone in {zone.root} runs its hub again: {pid} answers on {settings.url}",
    )


def _warn(settings: HubSettings) -> None:
    for mode, danger in (
        (settings.admission, "ANYONE MAY WRITE"),
        (settings.reads, "ANYONE MAY READ"),
    ):
        if mode == "open":
            notice(f"WARNING: {danger} on {settings.listen}")


def _start_in_background(launch: HubLaunch, settings: HubSettings) -> tuple[int, Path]:
    launch.datadir.create()
    log_path = launch.datadir.run / "hub.log"
    with log_path.open("ab") as log:
        process = subprocess.Popen(  # noqa: S603
            launch.command("hub"),
            stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True,
        )  # fmt: skip
    try:
        _wait_until_started(process, launch, settings, log_path)
    except BaseException:
        # However the wait ends, including Ctrl-C: no unreported hub is left running.
        process.terminate()
        with suppress(subprocess.TimeoutExpired):
            process.wait(_END_SEC)
        raise
    return process.pid, log_path


def _wait_until_started(
    process: subprocess.Popen[bytes], launch: HubLaunch, settings: HubSettings, log_path: Path
) -> None:
    deadline = time.monotonic() + _START_SEC
    while not _is_started(launch.datadir, settings, process.pid):
        if process.poll() is not None:
            raise Refused(f"the hub did not start; {log_path} says: {_last_lines(log_path)}")
        if time.monotonic() > deadline:
            raise Refused(f"the hub did not answer within {_START_SEC:.0f} s; see {log_path}")
        time.sleep(0.05)


def _refuse_held(datadir: DataDir) -> None:
    if is_held(datadir):
        raise Refused(
            f"{datadir.root} is held by another hub ({_holder(datadir)}): stop it first, with "
            f"veen hub stop --data-dir {shlex.quote(str(datadir.root))}"
        )


def _is_started(datadir: DataDir, settings: HubSettings, pid: int) -> bool:
    """Whether the hub that answers is the process we started, by its sockets and by its name.

    A hub that asks for a client's certificate cannot be asked for its name here.
    """
    # The supervisor writes it once the sequencer runs; until then /proc need not be searched.
    if not datadir.pid_file.exists():
        return False
    leader = born(pid)
    family = [] if leader is None else [born.pid for born in of_session(leader)]
    return is_served_by(settings.listen, family) and _answers_as_own(datadir, settings)


def _answers_as_own(datadir: DataDir, settings: HubSettings) -> bool:
    if settings.tls_client_ca is not None:
        return True
    reply = _get(settings, "/tooling/status")
    if reply is None or reply.status_code != httpx.codes.OK:
        return False
    expected, got = read_identity(datadir).hub_id.hex(), reply.json()["hub_id"]
    if got != expected:
        raise Refused(f"{settings.url} answers as hub {got}, expected {expected} of this directory")
    return True


def _warn_unready(settings: HubSettings) -> None:
    """Warn if the hub runs and serves reads but accepts no messages."""
    reply = None if settings.tls_client_ca is not None else _get(settings, "/readyz")
    if reply is not None and reply.status_code != httpx.codes.OK:
        notice(f"WARNING: the hub takes no messages: {reply.json()['message']}")


def _get(settings: HubSettings, path: str) -> httpx.Response | None:
    headers = {"Accept": "application/json"}
    try:
        return httpx.get(
            f"{settings.url}{path}",
            headers=headers,
            verify=False,  # noqa: S501 - our own
            timeout=5,
            trust_env=False,
        )
    except (httpx.HTTPError, OSError):
        return None


def _holder(datadir: DataDir) -> str:
    return Holder.describe((datadir.root / "lock").read_text(errors="replace"))


def _running_pid(datadir: DataDir) -> int | None:
    """The hub's process, identified by its lock, since a pid may be reused."""
    try:
        pid = int(datadir.pid_file.read_text())
    except (FileNotFoundError, ValueError):
        return None
    return pid if is_held(datadir) and _is_alive(pid) else None


def _is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    stat = stat_of(pid)
    return stat is not None and stat.state not in "ZX"


def _last_lines(path: Path) -> str:
    return " | ".join(last_lines(path, 5))


def _given(**options: Any) -> dict[str, Any]:
    return {name: value for name, value in options.items() if value is not None}
