"""A port of this host for a server that may be stopped and started again on it.

The processes of a zone, in the order in which they start: what each is, and when it is ready.

What is done once when a zone starts: capabilities made known, Airflow's database made ready.
"""

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


def free_port() -> int:
    """One that nobody has, below those that the kernel gives out: it stays free between starts."""
    while True:
        port = secrets.choice(_PORTS)
        with socket.socket() as probe, suppress(OSError):
            probe.bind(("127.0.0.1", port))
            return port


POSTGRES: Final = "postgres"
HUB: Final = "hub"
RECORDER: Final = "recorder"
SERVER: Final = "api-server"
AIRFLOW_PARTS: Final = ("scheduler", "dag-processor", "triggerer")
_TIMEOUT_SEC: Final = 5.0
_JSON: Final = {"Accept": "application/json"}


@dataclass(frozen=True, slots=True)
class Instance:
    """The process that is meant to answer, and the time at which it was started."""

    process: Born
    since: float


@dataclass(frozen=True, slots=True, kw_only=True)
class ZoneService:
    """``stop`` is the signal that ends it, ``more`` what it alone is told by its environment.

    ``probe`` asks whether it does its work; given an instance, whether that very process does it
    and not another one that answers in its place.
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
    result = Postgres(home.postgres)
    return ZoneService(
        name=POSTGRES,
        command=result.command(),
        probe=lambda instance: result.is_ready(instance.process.pid if instance else None),
        user=user(),
        # What is connected is cut off; SIGTERM would wait for it.
        stop=signal.SIGINT,
    )


def hub(home: ZoneHome, zone: ZoneConfig) -> ZoneService:
    settings = hub_settings.load(home.file)
    words = ["hub", "start", "--foreground", "--data-dir", str(zone.hub_data)]
    return ZoneService(
        name=HUB,
        command=_veen(*words, "--config", str(home.file)),
        # Supervised it counts as started once it reads: on a full disk it still serves readers.
        probe=lambda instance: (
            (instance is not None or answers(f"{settings.url}/readyz"))
            and is_hub(settings.url, zone.hub_id)
            and _serves(instance, settings.listen)
        ),
    )


def query(home: ZoneHome) -> ZoneService:
    listen = recorder_settings.load(home.file).query.listen
    words = ["recorder", "serve", "--config", str(home.file)]
    return ZoneService(
        name=RECORDER,
        command=_veen(*words, "--cap", str(home.capability("service"))),
        probe=lambda instance: answers(f"http://{listen}/healthz") and _serves(instance, listen),
        more=service_account(home),
    )


def airflow(zone: ZoneConfig) -> list[ZoneService]:
    """The server tells of the others by their latest heartbeat."""
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
    """Whether something answers there with 200; it need not be the process that is meant."""
    return _reply(url) is not None


@dataclass(frozen=True, slots=True)
class Readiness:
    """``refusal`` is why a hub takes no messages, ``warnings`` what comes soon."""

    refusal: str | None
    warnings: tuple[str, ...] = ()


def readiness(url: str) -> Readiness:
    """What a hub says of itself on ``/readyz``."""
    try:
        reply = _client().get(f"{url}/readyz", headers=_JSON)
        result = reply.json()
    except (httpx.HTTPError, ValueError) as error:
        return Readiness(f"no answer: {error}")
    if not isinstance(result, dict):
        return Readiness("its answer is no JSON object")
    if reply.status_code != httpx.codes.OK:
        return Readiness(str(result.get("message", f"HTTP {reply.status_code}")))
    return Readiness(None, tuple(map(str, result.get("warnings") or ())))


def is_hub(url: str, hub_id: bytes) -> bool:
    """Whether the hub that answers goes by this name."""
    result = _reply(f"{url}/tooling/status")
    return result is not None and result.get("hub_id") == hub_id.hex()


def unhealthy(url: str) -> list[str]:
    """The parts of Airflow that do not do their work, as its server sees it."""
    result = _reply(f"{url}/api/v2/monitor/health")
    if result is None:
        return [SERVER]
    parts = ("metadatabase", "scheduler", "dag_processor", "triggerer")
    return [part for part in parts if (result.get(part) or {}).get("status") != "healthy"]


def airflow_command(*words: str) -> list[str]:
    return [str(Path(sys.executable).with_name("airflow")), *words]


def _serves(instance: Instance | None, listen: str) -> bool:
    """Whether the sockets of an address are those of the instance; of None nothing is asked."""
    if instance is None:
        return True
    return is_served_by(listen, [born.pid for born in of_session(instance.process)])


def _heartbeat(url: str, part: str) -> Callable[[Instance | None], bool]:
    """Whether a part is healthy by a heartbeat that it sent after it was started."""

    def probe(instance: Instance | None) -> bool:
        document = _reply(f"{url}/api/v2/monitor/health") or {}
        result = document.get(part) or {}
        if result.get("status") != "healthy":
            return False
        if instance is None:
            return True
        return any(at >= instance.since for at in _times(result))

    return probe


def _times(document: dict[str, Any]) -> Iterator[float]:
    for name, value in document.items():
        if name.endswith("_heartbeat") and isinstance(value, str):
            yield datetime.fromisoformat(value).timestamp()


def _reply(url: str) -> dict[str, Any] | None:
    """The JSON document of an answer with 200."""
    try:
        reply = _client().get(url, headers=_JSON)
        result = reply.json() if reply.status_code == httpx.codes.OK else None
    except (httpx.HTTPError, ValueError):
        return None
    return result if isinstance(result, dict) else None


@functools.cache
def _client() -> httpx.Client:
    """Made once, for that is what takes the time; no connection is kept."""
    limits = httpx.Limits(max_keepalive_connections=0)
    return httpx.Client(timeout=_TIMEOUT_SEC, trust_env=False, limits=limits)


def _veen(*words: str) -> list[str]:
    return [sys.executable, "-P", "-m", "cli.main", *words]


def authorize(home: ZoneHome) -> None:
    """Tell the hub who may write what; what it knows already changes nothing."""
    around = Runtime(clock=lambda: int(time.time()), random=os.urandom, sleep=time.sleep)
    url = hub_settings.load(home.file).url
    with closing(Transport(url, runtime=around)) as transport:
        for path in sorted(home.capabilities.glob("*.cap")):
            HubApi(transport).authorize(read_token(path))


def migration() -> ZoneService:
    return ZoneService(
        name="migrate", command=airflow_command("db", "migrate"), probe=lambda _: True
    )


def is_migrated(home: ZoneHome) -> bool:
    """Whether it was done for this version of Airflow; it takes a while, and once is enough."""
    mark = _mark(home)
    return mark.exists() and mark.read_bytes() == _version()


def mark_migrated(home: ZoneHome) -> None:
    durable.write(_mark(home), _version())


def _mark(home: ZoneHome) -> Path:
    return home.airflow / "migrated"


def _version() -> bytes:
    return f"{version('apache-airflow')}\n".encode()
