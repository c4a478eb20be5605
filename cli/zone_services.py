"""The processes of a zone, in the order in which they start: what each is, and when it is ready."""

from __future__ import annotations

import signal
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import httpx

from cli.zone_environment import service_account
from cli.zone_home import ZoneHome
from cli.zone_postgres import Postgres, user
from hub import settings as hub_settings
from recorder import settings as recorder_settings
from recorder.zone import Zone

POSTGRES: Final = "postgres"
AIRFLOW_PARTS: Final = ("scheduler", "dag-processor", "triggerer")
_TIMEOUT_SEC: Final = 5.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Service:
    """``stop`` is the signal that ends it, ``more`` what it alone is told by its environment."""

    name: str
    command: list[str]
    is_ready: Callable[[], bool]
    more: Mapping[str, str] = field(default_factory=dict)
    user: str | None = None
    stop: signal.Signals = signal.SIGTERM


def postgres(home: ZoneHome) -> Service:
    found = Postgres(home.postgres)
    return Service(
        name=POSTGRES,
        command=found.command(),
        is_ready=found.is_ready,
        user=user(),
        # What is connected is cut off; SIGTERM would wait for it.
        stop=signal.SIGINT,
    )


def hub(home: ZoneHome, zone: Zone) -> Service:
    url = hub_settings.load(home.file).url
    words = ["hub", "start", "--foreground", "--data-dir", str(zone.hub_data)]
    return Service(
        name="hub",
        command=_veen(*words, "--config", str(home.file)),
        is_ready=lambda: answers(f"{url}/readyz"),
    )


def query(home: ZoneHome) -> Service:
    url = f"http://{recorder_settings.load(home.file).query.listen}"
    words = ["recorder", "serve", "--config", str(home.file)]
    return Service(
        name="recorder",
        command=_veen(*words, "--cap", str(home.capability("service"))),
        is_ready=lambda: answers(f"{url}/healthz"),
        more=service_account(home),
    )


def airflow(zone: Zone) -> list[Service]:
    """They are ready together: the server tells of the others."""
    url = zone.airflow.url
    server = Service(
        name="api-server",
        command=airflow_command("api-server"),
        is_ready=lambda: answers(f"{url}/api/v2/version"),
    )
    others = [
        Service(
            name=name,
            command=airflow_command(
                name, *([] if name == "dag-processor" else ["--skip-serve-logs"])
            ),
            is_ready=lambda: not unhealthy(url),
        )
        for name in AIRFLOW_PARTS
    ]
    return [server, *others]


def answers(url: str) -> bool:
    try:
        reply = httpx.get(url, timeout=_TIMEOUT_SEC, trust_env=False)
    except httpx.HTTPError:
        return False
    return reply.status_code == httpx.codes.OK


def unhealthy(url: str) -> list[str]:
    """The parts of Airflow that do not do their work, as its server sees it."""
    try:
        reply = httpx.get(f"{url}/api/v2/monitor/health", timeout=_TIMEOUT_SEC, trust_env=False)
        found = reply.json()
    except (httpx.HTTPError, ValueError):
        return ["api-server"]
    parts = ("metadatabase", "scheduler", "dag_processor", "triggerer")
    return [one for one in parts if (found.get(one) or {}).get("status") != "healthy"]


def airflow_command(*words: str) -> list[str]:
    return [str(Path(sys.executable).with_name("airflow")), *words]


def _veen(*words: str) -> list[str]:
    return [sys.executable, "-P", "-m", "cli.main", *words]
