"""The processes of a zone: their commands and readiness probes, and one-time preparations."""

from __future__ import annotations

import functools
import os
import secrets
import signal
import socket
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing, suppress
from dataclasses import dataclass, field
from datetime import datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any, Final

import httpx

from hub import settings as hub_settings
from recorder import settings as recorder_settings
from veen.captoken import read_token
from veen.client.hub_api import HubApi
from veen.client.transport import Transport
from veen.system import durable
from veen.system.child_process import Born, of_session
from veen.system.environment import Runtime
from veen.system.listening import is_served_by
from zone.config import ZoneConfig
from zone.directory import ZoneHome, service_account
from zone.postgres import Postgres, user

_PORTS: Final = range(20_000, 32_000)
POSTGRES: Final = "postgres"
HUB: Final = "hub"
RECORDER: Final = "recorder"
SERVER: Final = "api-server"
AIRFLOW_PARTS: Final = ("scheduler", "dag-processor", "triggerer")
_TIMEOUT_SEC: Final = 5.0
_JSON: Final = {"Accept": "application/json"}


def free_port() -> int:
    """An unused port below the kernel's ephemeral range, which stays free between starts."""
    while True:
        port = secrets.choice(_PORTS)
        with socket.socket() as probe, suppress(OSError):
            probe.bind(("127.0.0.1", port))
            return port


@dataclass(frozen=True, slots=True)
class Instance:
    """The process that is expected to answer, and its start time."""

    process: Born
    since: float


@dataclass(frozen=True, slots=True, kw_only=True)
class ZoneService:
    """A process of a zone. ``stop`` is the signal that ends it, ``more`` its own environment
    variables.

    ``probe`` checks whether it works; given an instance, also that this process answers and not
    another one in its place.
    """

    name: str
    command: list[str]
    probe: Callable[[Instance | None], bool]
    more: Mapping[str, str] = field(default_factory=dict)
    user: str | None = None
    stop: signal.Signals = signal.SIGTERM

    def is_ready(self, instance: Instance | None = None) -> bool:
        return self.probe(instance)


def postgres(home: ZoneHome) -> ZoneService:
    server = Postgres(home.postgres)
    return ZoneService(
        name=POSTGRES,
        command=server.command(),
        probe=lambda instance: server.is_ready(instance.process.pid if instance else None),
        user=user(),
        # Fast shutdown: SIGTERM would wait for clients to disconnect.
        stop=signal.SIGINT,
    )


def hub(home: ZoneHome, zone: ZoneConfig) -> ZoneService:
    settings = hub_settings.load(home.file)
    argv = ["hub", "start", "--foreground", "--data-dir", str(zone.hub_data)]
    return ZoneService(
        name=HUB,
        command=_veen(*argv, "--config", str(home.file)),
        # Under supervision it is started once it serves reads: on a full disk it still does.
        probe=lambda instance: (
            (instance is not None or answers(f"{settings.url}/readyz"))
            and is_hub(settings.url, zone.hub_id)
            and _serves(instance, settings.listen)
        ),
    )


def query(home: ZoneHome) -> ZoneService:
    listen = recorder_settings.load(home.file).query.listen
    argv = ["recorder", "serve", "--config", str(home.file)]
    return ZoneService(
        name=RECORDER,
        command=_veen(*argv, "--cap", str(home.capability("service"))),
        probe=lambda instance: answers(f"http://{listen}/healthz") and _serves(instance, listen),
        more=service_account(home),
    )


def airflow(zone: ZoneConfig) -> list[ZoneService]:
    """Airflow's processes; the API server reports the heartbeats of the others."""
    url, listen = zone.airflow.url, zone.airflow.listen
    server = ZoneService(
        name=SERVER,
        command=airflow_command(SERVER),
        probe=lambda instance: answers(f"{url}/api/v2/version") and _serves(instance, listen),
    )
    others = [
        ZoneService(
            name=name,
            command=airflow_command(
                name, *([] if name == "dag-processor" else ["--skip-serve-logs"])
            ),
            probe=_heartbeat(url, name.replace("-", "_")),
        )
        for name in AIRFLOW_PARTS
    ]
    return [server, *others]


def answers(url: str) -> bool:
    """Whether any process answers there with 200."""
    return _reply(url) is not None


@dataclass(frozen=True, slots=True)
class Readiness:
    """``refusal`` is why a hub accepts no messages, ``warnings`` what it warns of."""

    refusal: str | None
    warnings: tuple[str, ...] = ()


def readiness(url: str) -> Readiness:
    """The answer of a hub on ``/readyz``."""
    try:
        reply = _client().get(f"{url}/readyz", headers=_JSON)
        document = reply.json()
    except (httpx.HTTPError, ValueError) as error:
        return Readiness(f"no answer: {error}")
    if not isinstance(document, dict):
        return Readiness("expected a JSON object as its answer")
    if reply.status_code != httpx.codes.OK:
        return Readiness(str(document.get("message", f"HTTP {reply.status_code}")))
    return Readiness(None, tuple(map(str, document.get("warnings") or ())))


def is_hub(url: str, hub_id: bytes) -> bool:
    """Whether the hub that answers has this hub_id."""
    status = _reply(f"{url}/tooling/status")
    return status is not None and status.get("hub_id") == hub_id.hex()


def unhealthy(url: str) -> list[str]:
    """The unhealthy parts of Airflow, according to its API server."""
    health = _reply(f"{url}/api/v2/monitor/health")
    if health is None:
        return [SERVER]
    parts = ("metadatabase", "scheduler", "dag_processor", "triggerer")
    return [part for part in parts if (health.get(part) or {}).get("status") != "healthy"]


def airflow_command(*arguments: str) -> list[str]:
    return [str(Path(sys.executable).with_name("airflow")), *arguments]


def _serves(instance: Instance | None, listen: str) -> bool:
    """Whether the listening sockets of an address belong to the instance; True without one."""
    if instance is None:
        return True
    return is_served_by(listen, [born.pid for born in of_session(instance.process)])


def _heartbeat(url: str, part: str) -> Callable[[Instance | None], bool]:
    """A probe that a part is healthy, with a heartbeat sent after it was started."""

    def probe(instance: Instance | None) -> bool:
        document = _reply(f"{url}/api/v2/monitor/health") or {}
        health = document.get(part) or {}
        if health.get("status") != "healthy":
            return False
        if instance is None:
            return True
        return any(at >= instance.since for at in _times(health))

    return probe


def _times(document: dict[str, Any]) -> Iterator[float]:
    for name, value in document.items():
        if name.endswith("_heartbeat") and isinstance(value, str):
            yield datetime.fromisoformat(value).timestamp()


def _reply(url: str) -> dict[str, Any] | None:
    """The JSON object of an answer with 200, else None."""
    try:
        reply = _client().get(url, headers=_JSON)
        document = reply.json() if reply.status_code == httpx.codes.OK else None
    except (httpx.HTTPError, ValueError):
        return None
    return document if isinstance(document, dict) else None


@functools.cache
def _client() -> httpx.Client:
    """An HTTP client, created once because that is slow; connections are not reused."""
    limits = httpx.Limits(max_keepalive_connections=0)
    return httpx.Client(timeout=_TIMEOUT_SEC, trust_env=False, limits=limits)


def _veen(*arguments: str) -> list[str]:
    return [sys.executable, "-P", "-m", "cli.main", *arguments]


def authorize(home: ZoneHome) -> None:
    """Authorize every capability of the zone at its hub; idempotent."""
    runtime = Runtime(clock=lambda: int(time.time()), random=os.urandom, sleep=time.sleep)
    url = hub_settings.load(home.file).url
    with closing(Transport(url, runtime=runtime)) as transport:
        for path in sorted(home.capabilities.glob("*.cap")):
            HubApi(transport).authorize(read_token(path))


def migration() -> ZoneService:
    return ZoneService(
        name="migrate", command=airflow_command("db", "migrate"), probe=lambda _: True
    )


def is_migrated(home: ZoneHome) -> bool:
    """Whether the database was migrated for this version of Airflow."""
    mark = _mark(home)
    return mark.exists() and mark.read_bytes() == _version()


def mark_migrated(home: ZoneHome) -> None:
    durable.write(_mark(home), _version())


def _mark(home: ZoneHome) -> Path:
    return home.airflow / "migrated"


def _version() -> bytes:
    return f"{version('apache-airflow')}\n".encode()
