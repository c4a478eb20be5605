"""H22: a service of a zone is ready when its own process answers, not another one in its place."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from support.local_http import Answering, served
from veen.system.child_process import Born
from zone import services
from zone.directory import ZoneHome
from zone.init import Ports
from zone.postgres import Postgres
from zone.services import Instance, free_port

MakeZone = Callable[..., ZoneHome]
OTHER = Instance(Born(1, 1), 0.0)
"""A process that was started and is not the one that answers."""


@contextmanager
def answering(document: dict[str, Any]) -> Iterator[int]:
    """A stranger that answers every question with one document; its port."""

    class Handler(Answering):
        def get(self) -> None:
            self.say(200, json.dumps(document).encode())

    with served(Handler) as url:
        yield int(url.rpartition(":")[2])


def zone_at(a_zone: MakeZone, folder: Path, *, hub: int = 0, query: int = 0) -> ZoneHome:
    ports = Ports(hub or free_port(), query or free_port(), free_port())
    return a_zone(folder / "z1", "alone", ports=ports)


def test_h22_a_hub_is_known_by_its_name_and_by_its_process(
    tmp_path: Path, a_zone: MakeZone
) -> None:
    document: dict[str, Any] = {"ok": True}
    with answering(document) as port:
        home = zone_at(a_zone, tmp_path, hub=port)
        hub = services.hub(home, home.zone())
        assert not hub.is_ready()
        document["hub_id"] = "00" * 32
        assert not hub.is_ready()
        document["hub_id"] = home.zone().hub_id.hex()
        assert hub.is_ready()
        assert not hub.is_ready(OTHER)


def test_h22_a_stranger_does_not_answer_for_the_query_service(
    tmp_path: Path, a_zone: MakeZone
) -> None:
    with answering({"ok": True}) as port:
        query = services.query(zone_at(a_zone, tmp_path, query=port))
        assert query.is_ready()
        assert not query.is_ready(OTHER)


def test_h22_postgresql_is_the_process_that_holds_the_cluster(tmp_path: Path) -> None:
    postgres = Postgres(tmp_path)
    assert not postgres.is_ready(os.getpid())
    postgres.data.mkdir()
    (postgres.data / "postmaster.pid").write_text("1\n/data\n")
    assert not postgres.is_ready(os.getpid())


def test_h23_a_lock_of_postgresql_from_before_a_reboot_is_dropped(tmp_path: Path) -> None:
    """Its number belongs to a stranger by now, and PostgreSQL would refuse to start for that."""
    postgres = Postgres(tmp_path)
    postgres.data.mkdir()
    lock = postgres.data / "postmaster.pid"
    lock.write_text(f"{os.getpid()}\n/data\n")
    postgres._drop_stale_lock()
    assert not lock.exists()


@pytest.mark.parametrize(("age_sec", "is_ready"), [(60, False), (-60, True)])
def test_h22_a_heartbeat_from_before_the_start_is_another_process(
    tmp_path: Path, a_zone: MakeZone, age_sec: int, is_ready: bool
) -> None:
    beat = datetime.fromtimestamp(time.time() - age_sec, UTC).isoformat()
    health = {"scheduler": {"status": "healthy", "latest_scheduler_heartbeat": beat}}
    with answering(health) as port:
        home = a_zone(tmp_path / "z1", "alone", ports=Ports(free_port(), free_port(), port))
        _, scheduler, dag_processor, _ = services.airflow(home.zone())
        assert scheduler.is_ready()
        assert scheduler.is_ready(replace(OTHER, since=time.time())) is is_ready
        assert not dag_processor.is_ready()


@pytest.mark.parametrize("name", ["a+b", "a&b", "a b", "100%", "a?b#c", "a'b"])
def test_h29_a_zone_path_says_nothing_to_a_database_url(tmp_path: Path, name: str) -> None:
    postgres = Postgres(tmp_path / name)
    assert postgres.url("psycopg2").endswith(f"/airflow?host={postgres.socket}")
    assert not set(str(postgres.socket)) & set("+& %?#'")
    assert Postgres(Path("/srv/z1/postgres")).socket == Path("/srv/z1/postgres/socket")
