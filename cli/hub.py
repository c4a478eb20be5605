"""``veen hub``: start and stop a hub, and show its identity, status and metrics (OBS0.1)."""

from __future__ import annotations

import math
import os
import shlex
import signal
import ssl
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path
from typing import Annotated, Any, Final

import httpx
import typer
from prometheus_client import Metric
from prometheus_client.parser import text_string_to_metric_families

from cli.console import global_options, notice, show, show_text
from cli.errors import OK, REFUSED
from cli.options import DEFAULT_DATA_DIR, ConfigOption, DataDirOption, HubOptions, retry_policy, tls
from hub import supervisor
from hub.settings import HubSettings
from hub.storage.datadir import DataDir, Holder, is_held
from hub.storage.identity import read_identity
from hub.supervisor import HubLaunch, begin
from veen.client.credentials import Credentials
from veen.client.session import skew_warning
from veen.client.transport import CBOR, HubRefused, Unreachable, refusal, resolve_address
from veen.client.transport import tls_info as look_at_tls
from veen.errors import Code, Malformed, Refused, Rejected
from veen.system import durable
from veen.system.child_process import born, of_session, stat_of
from veen.system.listening import is_served_by, refuse_taken
from veen.system.log_file import last_lines
from veen.wire.api import ErrorEnvelope, HealthResponse, ReadyResponse
from zone.directory import ZoneHome
from zone.run import rest, supervised, wake

app = typer.Typer(help="Run, inspect and verify a hub.", no_args_is_help=True)

_START_SEC: Final = 60.0
_END_SEC: Final = 30.0
_QUANTILE: Final = 0.95
_READY_FIELDS: Final = ("disk_free_bytes", "disk_days_left", "hub_time_ahead_sec", "warnings")
_OVERLAYS: Final = ("fed1", "auth1", "kex1_plus", "sh1_plus", "lclass0", "meta0_plus")


@app.command()
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


@app.command()
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


def fetch_metrics(
    url: str, *, credentials: Credentials, tls: ssl.SSLContext | None, timeout_sec: float
) -> str:
    where = f"{url}/metrics"
    headers = {**credentials.headers("GET", where, b""), "Accept": CBOR}
    verify = tls if tls is not None else True
    try:
        reply = httpx.get(
            where, headers=headers, timeout=timeout_sec, verify=verify, trust_env=False
        )
    except httpx.HTTPError as error:
        raise Unreachable(f"{url} does not answer: {error}") from error
    if reply.status_code != httpx.codes.OK:
        raise _refused(where, reply)
    return reply.text


def _refused(where: str, reply: httpx.Response) -> Rejected | HubRefused | Unreachable:
    try:
        return refusal(ErrorEnvelope.decode(reply.content))
    except Malformed:
        return Unreachable(f"{where} answered {reply.status_code} without an error envelope")


def metrics_summary(text: str) -> dict[str, Any]:
    """Counters and gauges as they are; for a histogram count, mean and an upper bound of its
    p95.
    """
    summary: dict[str, Any] = {}
    for family in text_string_to_metric_families(text):
        if family.type == "histogram":
            summary[family.name] = _histogram(family)
        else:
            summary |= {
                _name(sample.name, sample.labels): _number(sample.value)
                for sample in family.samples
            }
    return dict(sorted(summary.items()))


def _name(name: str, labels: dict[str, str]) -> str:
    return "/".join([name, *(labels[key] for key in sorted(labels))])


def _histogram(family: Metric) -> dict[str, float | None]:
    values = {sample.name.removeprefix(family.name): sample.value for sample in family.samples}
    count = values["_count"]
    buckets = [
        (float(sample.labels["le"]), sample.value)
        for sample in family.samples
        if "le" in sample.labels
    ]
    bounds = (bound for bound, below in sorted(buckets) if below >= _QUANTILE * count)
    return {
        "count": _number(count),
        "mean": round(values["_sum"] / count, 3) if count else None,
        "p95_at_most": _number(next(bounds)) if count else None,
    }


def _number(value: float) -> float | None:
    """A number for JSON: integers as such, None for infinity."""
    if math.isinf(value):
        return None
    return int(value) if value.is_integer() else value


__all__ = ["app"]


@app.command()
def status(at: HubOptions) -> None:
    """Show the hub_id, keys, limits and readiness of a running hub.

    Example: veen hub status --hub http://127.0.0.1:8080
    """
    status_, ready = at.status(), _readiness(at)
    del ready["ok"]
    if (warning := skew_warning(status_.hub_ts - int(time.time()))) is not None:
        notice(f"WARNING: {warning}")
    show(status_.to_json() | ready)


@app.command()
def key(
    at: HubOptions,
    out: Annotated[
        Path | None,
        typer.Option(
            "--out", metavar="FILE", help="Write the identity to this file, for --hub-identity."
        ),
    ] = None,
) -> None:
    """Show the hub_id and the signing keys of a hub; pin the hub_id out of band.

    Example: veen hub key --hub ./hub --out hub-identity.cbor
    """
    status = at.status()
    if out is not None:
        durable.write(out.absolute().with_suffix(".sig"), status.identity_sig)
        durable.write(out.absolute(), status.identity().encode())
    identity = status.to_json()
    show({name: identity[name] for name in ("hub_id", "hub_pk", "hub_keys")})


@app.command()
def profile(at: HubOptions) -> None:
    """Show the protocol version, profile and features of a hub.

    Example: veen hub profile --hub http://127.0.0.1:8080
    """
    try:
        status = at.status()
    except HubRefused as error:
        if error.code != Code.NOT_FOUND.value:
            raise
        raise HubRefused("E.PROFILE", "the hub reports no profile", {}, None) from error
    overlays = {name: name in status.features for name in _OVERLAYS}
    show(
        {
            "version": f"veen-{status.server_version}",
            "profile_id": status.profile_ids[0].hex(),
            "hub_id": status.hub_id.hex(),
            "features": {"core": True, **overlays} | dict.fromkeys(status.features, True),
        }
    )


@app.command()
def health(at: HubOptions) -> None:
    """Show whether the hub accepts messages, and the head of its latest label.

    Exits with 4 if the hub runs but accepts no messages: its disk is full, its clock stepped
    ahead, or its sequencer is down. ok is also false while hub time waits for a clock that is
    behind.

    Example: veen hub health --hub http://127.0.0.1:8080
    """
    with at.open() as api:
        health_document = api.transport.get("/healthz", HealthResponse).to_json()
    ready = _readiness(at)
    show(health_document | ready | {"ok": health_document["ok"] and ready["ok"]})
    if not ready["ready"]:
        raise typer.Exit(REFUSED)


def _readiness(at: HubOptions) -> dict[str, Any]:
    """The answer of ``/readyz``, also if the hub is not ready; absent fields are omitted."""
    try:
        with at.open(once=True) as api:
            document = api.transport.get("/readyz", ReadyResponse).to_json()
    except HubRefused as error:
        return {"ready": False, "ok": False, "not_ready": error.message}
    details = {key: document[key] for key in _READY_FIELDS if key in document}
    return {"ready": True, "ok": document["ok"]} | details


@app.command()
def metrics(
    at: HubOptions,
    raw: Annotated[bool, typer.Option("--raw", help="Print the Prometheus text format.")] = False,
) -> None:
    """Show the counters of the hub, and its latencies as count, mean and p95.

    Example: veen hub metrics --hub http://127.0.0.1:8080
    """
    text = fetch_metrics(
        resolve_address(at.hub).url,
        credentials=at.credentials(),
        tls=tls(at.ca),
        timeout_sec=retry_policy().timeout_sec,
    )
    if raw and not global_options().json:
        show_text(text.splitlines())
    else:
        show({"metrics": text} if raw else metrics_summary(text))


@app.command("tls-info")
def tls_info(at: HubOptions) -> None:
    """Show the TLS parameters of a hub, and when its certificate expires.

    Example: veen hub tls-info --hub https://hub.example:8443 --ca ca.pem
    """
    address = resolve_address(at.hub)
    connection = look_at_tls(address.url, tls(at.ca), retry_policy().timeout_sec)
    show(
        {
            "url": address.url,
            "version": connection.version,
            "cipher": connection.cipher,
            "aead": connection.is_aead,
            "compression": connection.compression,
            "subject": connection.subject,
            "issuer": connection.issuer,
            "not_after": connection.not_after,
        }
    )
