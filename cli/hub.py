"""``veen hub``: run a hub, look at it, check its directory."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path
from typing import Annotated, Any

import httpx
import typer

from cli.console import Refused, Unreachable, show
from hub import supervisor
from hub.process import Launch, parse_launch
from hub.settings import Settings
from hub.storage.datadir import DataDir, is_held

app = typer.Typer(help="Run a hub, look at it, check its directory.", no_args_is_help=True)

DataDirOption = Annotated[
    Path, typer.Option("--data-dir", help="The directory that is the hub; made if it is not there.")
]
HubOption = Annotated[str, typer.Option("--hub", help="Address of a running hub.")]
JsonOption = Annotated[bool, typer.Option("--json", help="Print one JSON document.")]
_START_SEC = 60.0


@app.command()
def start(
    data_dir: DataDirOption = Path("veen-data"),
    listen: Annotated[
        str | None, typer.Option(help="Address and port, e.g. 127.0.0.1:8080.")
    ] = None,
    config: Annotated[
        Path | None, typer.Option(help="A TOML file with the hub's settings.")
    ] = None,
    admission: Annotated[str | None, typer.Option(help="gated (default) or open.")] = None,
    reads: Annotated[str | None, typer.Option(help="policy (default) or open.")] = None,
    workers: Annotated[int | None, typer.Option(help="HTTP worker processes.")] = None,
    issuer: Annotated[
        list[str] | None, typer.Option(help="Public key (hex) of a capability issuer; repeatable.")
    ] = None,
    tls_cert: Annotated[str | None, typer.Option(help="Certificate chain (PEM).")] = None,
    tls_key: Annotated[str | None, typer.Option(help="Its private key (PEM).")] = None,
    foreground: Annotated[bool, typer.Option(help="Stay in this terminal.")] = False,
) -> None:
    """Start a hub; on a fresh directory it makes itself a key and a name.

    Example: veen hub start --data-dir ./hub --listen 127.0.0.1:8080
    """
    options = _given(
        listen=listen, admission=admission, reads=reads, workers=workers,
        tls_cert=tls_cert, tls_key=tls_key, issuers=sorted(issuer) if issuer else None,
    )  # fmt: skip
    root = data_dir.resolve()
    launch = Launch(DataDir(root), config.resolve() if config else None, options)
    settings = parse_launch(launch.command("hub")[3:]).settings()
    for mode, danger in (
        (settings.admission, "ANYONE MAY WRITE"),
        (settings.reads, "ANYONE MAY READ"),
    ):
        if mode == "open":
            typer.echo(f"WARNING: {danger} on {settings.listen}", err=True)
    if foreground:
        sys.exit(supervisor.run(launch))
    _start_in_background(launch, settings)


@app.command()
def stop(data_dir: DataDirOption = Path("veen-data")) -> None:
    """Stop the hub of a directory; what it has accepted is on disk already."""
    datadir = DataDir(data_dir.resolve())
    pid = _running_pid(datadir)
    if pid is None:
        raise Refused(f"no hub runs on {datadir.root}")
    os.kill(pid, signal.SIGTERM)
    while _is_alive(pid):
        time.sleep(0.05)
    typer.echo(f"stopped hub {pid}")


@app.command()
def status(hub: HubOption = "http://127.0.0.1:8080", json: JsonOption = False) -> None:
    """What a running hub says of itself: name, keys, limits, modes."""
    show(get(hub, "/tooling/status"), as_json=json)


@app.command()
def key(hub: HubOption = "http://127.0.0.1:8080", json: JsonOption = False) -> None:
    """The hub's name and the keys it signs with; pin them out of band."""
    found = get(hub, "/tooling/status")
    show({name: found[name] for name in ("hub_id", "hub_pk", "hub_keys")}, as_json=json)


@app.command()
def health(hub: HubOption = "http://127.0.0.1:8080", json: JsonOption = False) -> None:
    """Whether the hub is up, and where its latest label stands."""
    show(get(hub, "/healthz"), as_json=json)


@app.command()
def metrics(hub: HubOption = "http://127.0.0.1:8080") -> None:
    """The hub's metrics in Prometheus' text form."""
    typer.echo(_fetch(hub, "/metrics").text, nl=False)


def _start_in_background(launch: Launch, settings: Settings) -> None:
    launch.datadir.create()
    log_path = launch.datadir.run / "hub.log"
    with log_path.open("ab") as log:
        process = subprocess.Popen(  # noqa: S603
            [sys.executable, "-m", "hub", *launch.command("hub")[3:]],
            stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True,
        )  # fmt: skip
    url = settings.url
    deadline = time.monotonic() + _START_SEC
    while time.monotonic() < deadline:
        if process.poll() is not None:
            raise Refused(f"the hub did not start; {log_path} says:\n{_last_lines(log_path)}")
        if _is_ready(url, settings):
            typer.echo(f"hub {process.pid} answers on {url}; log: {log_path}")
            return
        time.sleep(0.05)
    process.terminate()
    raise Refused(f"the hub did not answer within {_START_SEC:.0f} s; see {log_path}")


def _is_ready(url: str, settings: Settings) -> bool:
    """Whether the hub says so; one that asks for a client's certificate says it by listening."""
    try:
        if settings.tls_client_ca is not None:
            where = httpx.URL(url)
            socket.create_connection((where.host, where.port or 443), timeout=5).close()
            return True
        reply = httpx.get(f"{url}/readyz", verify=False, timeout=5)  # noqa: S501 - our own hub
    except (httpx.HTTPError, OSError):
        return False
    return reply.status_code == httpx.codes.OK


def _fetch(hub: str, path: str) -> httpx.Response:
    try:
        reply = httpx.get(
            f"{hub.rstrip('/')}{path}", headers={"Accept": "application/json"}, timeout=10
        )
    except httpx.HTTPError as error:
        raise Unreachable(f"{hub} does not answer: {error}") from error
    if reply.status_code != httpx.codes.OK:
        raise Refused(f"{hub}{path} answered {reply.status_code}: {reply.text[:500]}")
    return reply


def get(hub: str, path: str) -> dict[str, Any]:
    document: dict[str, Any] = _fetch(hub, path).json()
    return document


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
    return "\n".join(path.read_text(errors="replace").splitlines()[-5:])


def _given(**options: Any) -> dict[str, Any]:
    return {name: value for name, value in options.items() if value is not None}
