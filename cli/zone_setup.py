"""What is done once when a zone starts: capabilities made known, Airflow's database made ready."""

from __future__ import annotations

import os
import time
from contextlib import closing
from importlib.metadata import version
from pathlib import Path

from cli.cap import read_token
from cli.zone_home import ZoneHome
from cli.zone_services import Service, airflow_command
from hub import settings as hub_settings
from veen import durable
from veen.client.hub_api import HubApi
from veen.client.surroundings import Surroundings
from veen.client.transport import Transport


def authorize(home: ZoneHome) -> None:
    """Tell the hub who may write what; what it knows already changes nothing."""
    around = Surroundings(clock=lambda: int(time.time()), random=os.urandom, sleep=time.sleep)
    url = hub_settings.load(home.file).url
    with closing(Transport(url, surroundings=around)) as transport:
        for path in sorted(home.capabilities.glob("*.cap")):
            HubApi(transport).authorize(read_token(path))


def migration() -> Service:
    return Service(name="migrate", command=airflow_command("db", "migrate"), probe=lambda _: True)


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
