"""Attempts of nobody known, from the request to their entry in the audit stream of a hub."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from recorder.api.app import create_app
from recorder.emit.emitter import Emitter
from recorder.service.audit import Audits
from recorder.service.bookkeeping import Bookkeeping
from recorder.service.database import Database
from recorder.service.home import ServiceHome
from recorder.service.hub_papers import HubPapers
from recorder.service.recording import Recording
from recorder.service.results import Results
from recorder.stream_map import AUDIT
from veen.client.client import Client
from veen.record_event import read_event


@pytest.fixture
def site(hub: Any, make_zone: Callable[..., Any]) -> Any:
    return make_zone(hub)


@pytest.fixture
def client(site: Any) -> Iterator[Client]:
    with Client.open(site.folder / "service", site.hub.url, hub_id=site.hub_id) as found:
        yield found


def in_the_next_minutes() -> int:
    return int(time.time() * 1000) + 120_000


def recorded(site: Any, client: Client) -> list[Any]:
    """What is in the log once the minute of the attempts is over."""
    home = ServiceHome(site.settings.query.results)
    database = Database(home.database)
    emitter = Emitter(client, site.settings.streams, clock=in_the_next_minutes)
    Bookkeeping(
        Results(database), Audits(database),
        Recording(client, emitter, HubPapers(home.papers), "query@z1"),
        principal_of=lambda _: None, clock_ms=in_the_next_minutes,
    ).record_audits()  # fmt: skip
    own = [one for one in client.read(AUDIT) if one.msg.client_id == emitter.principal_id]
    opened = (client.open_payload(one.msg) for one in own)
    events = (read_event(one.header.schema, one.body, emitter.principal_id) for one in opened)
    return [one.value() for one in events]


def test_a_forged_token_and_a_path_to_nowhere_are_in_the_log(site: Any, client: Client) -> None:
    http = create_app(site.settings).test_client()
    forged = {"Authorization": "Bearer forged"}
    path = f"/api/query/result/r-{'0' * 32}"
    assert http.get(path, headers=forged).status_code == 401
    assert http.get("/api/query/all", headers=forged).status_code == 404
    told = [one["metadata"] for one in recorded(site, client)]
    assert [(one["status"], one["outcome"], one["count"]) for one in told] == [
        (401, "unauthorized", 1),
        (404, "query_not_found", 1),
    ]
    assert told[0]["route"] == "/api/query/result/<result_id>"
    assert {one["source"] for one in told} == {"127.0.0.1"}
    assert {one["requester"] for one in told} == {None}
