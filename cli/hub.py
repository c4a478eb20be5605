"""``veen hub start`` and ``veen hub stop``: a hub as processes of this host."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path
from typing import Annotated, Any, Final

import httpx
import typer

from cli.console import notice, show
from cli.failure import Refused
from cli.options import DEFAULT_DATA_DIR, ConfigOption, DataDirOption
from hub import supervisor
from hub.process import Launch, begin
from hub.settings import Settings
from hub.storage.datadir import DataDir, is_held
from veen.log_file import last_lines

app = typer.Typer(help="Run a hub, look at it, check its directory.", no_args_is_help=True)

_START_SEC: Final = 60.0


@app.command()
def start(
    data_dir: DataDirOption = DEFAULT_DATA_DIR,
    listen: Annotated[
        str | None, typer.Option(metavar="HOST:PORT", help="Where to answer.")
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
        typer.Option(metavar="HEX", help="Key whose capabilities count; repeatable."),
    ] = None,
    tls_cert: Annotated[
        str | None, typer.Option(metavar="FILE", help="Certificate chain (PEM).")
    ] = None,
    tls_key: Annotated[
        str | None, typer.Option(metavar="FILE", help="Its private key (PEM).")
    ] = None,
    foreground: Annotated[bool, typer.Option("--foreground", help="Stay in the terminal.")] = False,
) -> None:
    """Start a hub; on a fresh directory it makes itself a key and a name.

    Example: veen hub start --data-dir ./hub --listen 127.0.0.1:8080
    """
    options = _given(
        listen=listen, admission=admission, reads=reads, workers=workers,
        tls_cert=tls_cert, tls_key=tls_key, issuers=sorted(issuer) if issuer else None,
    )  # fmt: skip
    launch = Launch(DataDir(data_dir.resolve()), config.resolve() if config else None, options)
    settings = launch.settings()
    _warn(settings)
    if foreground:
        begin(launch)
        sys.exit(supervisor.run(launch))
    pid, log = _start_in_background(launch, settings)
    show(
        {"pid": pid, "url": settings.url, "data_dir": str(launch.datadir.root), "log": str(log)},
        f"hub {pid} answers on {settings.url}; log: {log}",
    )


@app.command()
def stop(data_dir: DataDirOption = DEFAULT_DATA_DIR) -> None:
    """Stop the hub of a directory; what it has accepted is on disk already.

    Example: veen hub stop --data-dir ./hub
    """
    datadir = DataDir(data_dir.resolve())
    pid = _running_pid(datadir)
    if pid is None:
        raise Refused(f"no hub runs on {datadir.root}")
    os.kill(pid, signal.SIGTERM)
    while _is_alive(pid):
        time.sleep(0.05)
    show({"pid": pid}, f"stopped hub {pid}")


def _warn(settings: Settings) -> None:
    for mode, danger in (
        (settings.admission, "ANYONE MAY WRITE"),
        (settings.reads, "ANYONE MAY READ"),
    ):
        if mode == "open":
            notice(f"WARNING: {danger} on {settings.listen}")


def _start_in_background(launch: Launch, settings: Settings) -> tuple[int, Path]:
    launch.datadir.create()
    log_path = launch.datadir.run / "hub.log"
    with log_path.open("ab") as log:
        process = subprocess.Popen(  # noqa: S603
            launch.command("hub"),
            stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True,
        )  # fmt: skip
    deadline = time.monotonic() + _START_SEC
    while time.monotonic() < deadline:
        if process.poll() is not None:
            raise Refused(f"the hub did not start; {log_path} says: {_last_lines(log_path)}")
        if _is_ready(settings):
            return process.pid, log_path
        time.sleep(0.05)
    process.terminate()
    raise Refused(f"the hub did not answer within {_START_SEC:.0f} s; see {log_path}")


def _is_ready(settings: Settings) -> bool:
    """Whether the hub says so; one that asks for a client's certificate says it by listening."""
    try:
        if settings.tls_client_ca is not None:
            where = httpx.URL(settings.url)
            socket.create_connection((where.host, where.port or 443), timeout=5).close()
            return True
        reply = httpx.get(f"{settings.url}/readyz", verify=False, timeout=5)  # noqa: S501 - our own
    except (httpx.HTTPError, OSError):
        return False
    return reply.status_code == httpx.codes.OK


def _running_pid(datadir: DataDir) -> int | None:
    """The hub's process; the number alone may be a stranger's by now, so the lock decides."""
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
    return "Z" not in Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2][:3]


def _last_lines(path: Path) -> str:
    return " | ".join(last_lines(path, 5))


def _given(**options: Any) -> dict[str, Any]:
    return {name: value for name, value in options.items() if value is not None}
