"""Attempts of nobody known, from the request to their entry in the audit stream of a hub."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from recorder.api.app import create_app
from recorder.checkpoints.store import HubIdentityFile
from recorder.emit.emitter import Emitter
from recorder.service.database import Database, Results
from recorder.service.recording import Audits, Bookkeeping, Recording
from recorder.service.supervisor import ServiceHome
from recorder.stream_map import AUDIT
from veen.client.client import Client
from veen.events import read_event


@pytest.fixture
def site(query_hub: Any, make_query_zone: Callable[..., Any]) -> Any:
    return make_query_zone(query_hub)


@pytest.fixture
def client(site: Any) -> Iterator[Client]:
    with Client.open(site.folder / "service", site.hub.url, hub_id=site.hub_id) as result:
        yield result


def in_the_next_minutes() -> int:
    return int(time.time() * 1000) + 120_000


def recorded(site: Any, client: Client) -> list[Any]:
    """What is in the log once the minute of the attempts is over."""
    home = ServiceHome(site.settings.query.results)
    database = Database(home.database)
    emitter = Emitter(client, site.settings.streams, clock=in_the_next_minutes)
    Bookkeeping(
        Results(database), Audits(database),
        Recording(client, emitter, HubIdentityFile(home.hub_identity), "query@z1"),
        principal_of=lambda _: None, clock_ms=in_the_next_minutes,
    ).record_audits()  # fmt: skip
    own = [item for item in client.read(AUDIT) if item.msg.client_id == emitter.principal_id]
    opened = (client.open_payload(item.msg) for item in own)
    events = (read_event(item.header.schema, item.body, emitter.principal_id) for item in opened)
    return [event.value() for event in events]


def test_a_forged_token_and_a_path_to_nowhere_are_in_the_log(site: Any, client: Client) -> None:
    http = create_app(site.settings).test_client()
    forged = {"Authorization": "Bearer forged"}
    path = f"/api/query/result/r-{'0' * 32}"
    assert http.get(path, headers=forged).status_code == 401
    assert http.get("/api/query/all", headers=forged).status_code == 404
    detail = [item["metadata"] for item in recorded(site, client)]
    assert [(item["status"], item["outcome"], item["count"]) for item in detail] == [
        (401, "unauthorized", 1),
        (404, "query_not_found", 1),
    ]
    assert detail[0]["route"] == "/api/query/result/<result_id>"
    assert {item["source"] for item in detail} == {"127.0.0.1"}
    assert {item["requester"] for item in detail} == {None}
