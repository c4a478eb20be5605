"""Processes killed in the middle, a hub that is away, an index that was tampered with."""

from __future__ import annotations

import sqlite3
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from functools import partial
from pathlib import Path
from threading import Event
from typing import Any

import httpx
import pytest

from support.long_form import LONG
from support.recorder import query_world
from veen.client.client import Client
from veen.events import read_event

BURST = 40 if LONG else 10


@pytest.fixture(scope="module")
def zone(start_query_hub: Any, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """A hub and a service that the tests of this file may harm, in the order they stand."""
    result = query_world.Zone(tmp_path_factory.mktemp("harmed"), start_query_hub())
    with query_world.closing(result):
        result.emit("http.request", 40)
        checkpoint = result.checkpoint()
        result.start().catch_up(checkpoint)
        yield result


def submit(zone: Any, number: int) -> str | None:
    """The result_id that was promised, or None where nothing was."""
    query = query_world.a_query(query_id=f"q-{number}", evidence={"mode": "full"})
    try:
        with zone.as_("alice") as http:
            reply = http.post("/api/query/submit", json=query)
    except httpx.HTTPError:
        return None
    assert reply.status_code in (200, 202, 503), reply.text
    result = reply.json()
    if reply.status_code == 503:
        return None
    return str(result["result_digest"]["result_id"] if "rows" in result else result["result_id"])


def burst(zone: Any, first: int, harm: Any) -> list[str]:
    """Submissions side by side, while the service is harmed; the results that were promised."""
    begun = Event()

    def submit_query(number: int) -> str | None:
        result = submit(zone, number)
        begun.set()
        return result

    with ThreadPoolExecutor(4) as many:
        futures = [many.submit(submit_query, number) for number in range(first, first + BURST)]
        begun.wait(30)
        harm()
        results = [future.result() for future in futures]
    return [item for item in results if item is not None]


def ends(zone: Any, promised: list[str]) -> None:
    with zone.as_("alice") as http:
        for result_id in promised:
            path = f"/api/query/status/{result_id}"
            query_world.wait_until(partial(has_ended, http, path), f"the end of {result_id}")


def has_ended(http: Any, path: str) -> bool:
    return bool(http.get(path).json().get("status") == "completed")


def recorded(zone: Any, stream: str, key: str) -> Counter[str]:
    """How often each id stands in a stream, read by the service's own identity while it rests."""
    counter: Counter[str] = Counter()
    with Client.open(zone.folder / "service", zone.hub.url, hub_id=zone.hub_id) as client:
        for pair in client.read(stream):
            opened = client.open_payload(pair.msg)
            event = read_event(opened.header.schema, opened.body, pair.msg.client_id)
            counter[event.value()[key]] += 1
    return counter


def test_killed_processes_lose_and_double_nothing(zone: Any) -> None:
    runner = zone.runner().pid
    promised = burst(zone, 100, lambda: zone.runner().kill())
    query_world.wait_until(lambda: zone.runner().pid != runner, "another runner")
    promised += burst(zone, 200, zone.workers()[0].kill)
    ends(zone, promised)
    late = burst(zone, 300, zone.kill)
    zone.start()
    promised += late
    ends(zone, promised)
    assert len(promised) >= BURST
    assert submit(zone, 400) is not None
    zone.stop()
    results = recorded(zone, "record/query/results", "result_id")
    requests = recorded(zone, "record/query/requests", "query_id")
    assert {results[item] for item in promised} == {1}
    assert set(results.values()) == set(requests.values()) == {1}
    with closing(sqlite3.connect(zone.folder / "results" / "service.sqlite")) as db:
        rows = db.execute("SELECT query_id, result_id, state FROM queries").fetchall()
    assert {state for _, _, state in rows} == {"completed"}
    assert {item for item, _, _ in rows} == set(requests)
    assert {item for _, item, _ in rows} == set(results)
    zone.start("recorder", "serve")


def test_an_end_is_final_whoever_writes(zone: Any) -> None:
    with closing(sqlite3.connect(zone.folder / "results" / "service.sqlite")) as db:
        for change in (
            "UPDATE queries SET state = 'failed' WHERE state = 'completed'",
            "UPDATE queries SET digest = x'00' WHERE state = 'completed'",
            "DELETE FROM queries WHERE state = 'completed'",
        ):
            with pytest.raises(sqlite3.IntegrityError):
                db.execute(change)


def test_h18_a_runner_that_cannot_start_for_a_moment_is_started_again(zone: Any) -> None:
    """As on a full disk: the service waits and tries again, and nobody has to start it."""
    settings, detail = zone.config.read_text(), "the runner cannot go on"
    before = zone.log.read_text().count(detail)
    runner = zone.runner()
    zone.config.write_text("this is broken")
    try:
        runner.kill()
        query_world.wait_until(
            lambda: zone.log.read_text().count(detail) > before, "a runner that does not start"
        )
    finally:
        zone.config.write_text(settings)
    query_world.wait_until(lambda: submit(zone, 7_000) is not None, "a query that is taken")
    assert zone.answers()


def test_a_hub_that_is_away_refuses_queries_and_keeps_audits(zone: Any) -> None:
    zone.hub.stop()
    with zone.as_("alice") as http, zone.as_("forged") as forged:
        reply = http.post("/api/query/submit", json=query_world.a_query(query_id="q-away"))
        assert (reply.status_code, reply.json()["error_code"]) == (503, "internal_error")
        assert "Retry-After" in reply.headers
        assert forged.get(f"/api/query/status/r-{'0' * 32}").status_code == 401
    zone.hub.start()
    with zone.as_("alice") as http:
        query_world.wait_until(
            lambda: http.post("/api/query/submit", json=query_world.a_query(query_id="q-away"))
            .status_code == 200,
            "a query after the hub is back",
        )  # fmt: skip
    query_world.wait_until(lambda: _audits_waiting(zone) == 0, "audits that are recorded")
    zone.stop()
    with Client.open(zone.folder / "service", zone.hub.url, hub_id=zone.hub_id) as client:
        outcomes: Counter[str] = Counter()
        for pair in client.read("record/query/audit/access"):
            opened = client.open_payload(pair.msg)
            event = read_event(opened.header.schema, opened.body, pair.msg.client_id).value()
            if event["resource_identifier"] == "query:q-away":
                outcomes[event["metadata"]["outcome"]] += 1
    assert outcomes["internal_error"] >= 1
    assert outcomes["ok"] == 1
    zone.start()


def _audits_waiting(zone: Any) -> int:
    with closing(sqlite3.connect(zone.folder / "results" / "service.sqlite")) as db:
        return int(db.execute("SELECT count(*) FROM audits").fetchone()[0])


@pytest.mark.parametrize("column", ["payload", "subject_id", "event_time", "hub_ts"])
def test_a_tampered_index_fails_the_query_and_nothing_is_returned(zone: Any, column: str) -> None:
    forged = {"payload": b"\xa0", "subject_id": "user:99", "event_time": 1, "hub_ts": 1}[column]
    with closing(sqlite3.connect(_index(zone.folder / "index"))) as db:
        place, old = db.execute(
            f"SELECT place, {column} FROM events WHERE event_type = 'http.request' "
            "ORDER BY place DESC LIMIT 1"
        ).fetchone()
        db.execute(f"UPDATE events SET {column} = ? WHERE place = ?", (forged, place))
        db.commit()
        try:
            for evidence in ({"mode": "full"}, {"mode": "spot", "sample_rate": 1}):
                with zone.as_("alice") as http:
                    reply = http.post(
                        "/api/query/submit", json=query_world.a_query(evidence=evidence)
                    )
                assert (reply.status_code, reply.json()["error_code"]) == (500, "execution_failed")
                assert "rows" not in reply.json()
                result_id = reply.json()["message"].partition(":")[0]
                with zone.as_("alice") as http:
                    again = http.get(f"/api/query/result/{result_id}")
                assert (again.status_code, again.json()["error_code"]) == (500, "execution_failed")
        finally:
            db.execute(f"UPDATE events SET {column} = ? WHERE place = ?", (old, place))
            db.commit()


def _index(home: Path) -> Path:
    return home / "current" / "index.sqlite"
