"""A query that is too large for the index, from the API through Spark and back to its rows."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from recorder import timestamp
from recorder.index.engine import EngineLimits
from recorder.index.engine import answer as inline
from recorder.index.tables import IndexHome
from recorder.query.descriptor import normalise
from recorder.query.execute import digest_of
from support.hub.hub_process import hub_in
from support.recorder import query_world as worlds
from support.spark import archived_hub
from veen.objects.port import FileSettings

LONG_ENOUGH_SEC = 150.0


@pytest.fixture
def hub(tmp_path: Path) -> Iterator[Any]:
    with hub_in(tmp_path / "hub", worlds.hub_toml()) as result:
        yield result


@pytest.fixture
def zone(hub: Any, tmp_path: Path) -> Iterator[Any]:
    """A service whose index may look at one row, and whose archive is a directory."""
    with worlds.closing(worlds.Zone(tmp_path / "zone", hub, row_budget=1)) as result:
        text = result.config.read_text().replace('engine = "inline"', 'engine = "auto"')
        store = f'[objects]\nurl = "{(tmp_path / "store").as_uri()}"\n'
        result.config.write_text(text + store)
        yield result


def ended(zone: Any, result_id: str) -> dict[str, Any]:
    with zone.as_("alice") as alice:

        def answered() -> httpx.Response | None:
            reply: httpx.Response = alice.get(f"/api/query/status/{result_id}")
            return None if reply.json()["status"] in ("pending", "running") else reply

        reply = worlds.wait_until(answered, "a query that ended", LONG_ENOUGH_SEC)
    result: dict[str, Any] = reply.json()
    return result


def test_a_query_beyond_the_budget_ends_with_the_digest_of_the_inline_engine(
    spark_environment: dict[str, str], zone: Any, hub: Any, tmp_path: Path
) -> None:
    zone.emit("http.request", 40)
    checkpoint = zone.checkpoint()
    archived = archived_hub.archived(hub.data, FileSettings(tmp_path / "store"))
    zone.start("recorder", "serve").catch_up(checkpoint)
    query = worlds.a_query(query_id="q-large", evidence={"mode": "full"})
    with zone.as_("alice") as alice:
        reply = alice.post("/api/query/submit", json=query)
        assert reply.status_code == 202, reply.text
        result_id = reply.json()["result_id"]
        assert ended(zone, result_id)["status"] == "completed"
        result = alice.get(f"/api/query/result/{result_id}").json()
    digest = result["result_digest"]
    assert digest["row_count"] == len(result["rows"]) == 40
    assert [row["payload.number"] for row in result["rows"]] == list(range(40))
    descriptor = normalise(query, query_id_if_missing="-")
    beside = inline(
        IndexHome(zone.settings.index), descriptor, checkpoint,
        archived.archive.identity(archived.archive.latest()), EngineLimits(),
    )  # fmt: skip
    due = digest_of(
        descriptor, beside.outcome, result_id=result_id, checkpoint=checkpoint,
        executed_at_ms=timestamp.parse(digest["executed_at"]), searched=beside.searched,
    )  # fmt: skip
    assert digest == due.document()


@pytest.mark.long
def test_a_query_while_the_archive_is_behind_speaks_up_to_where_it_goes(
    spark_environment: dict[str, str], zone: Any, hub: Any, tmp_path: Path
) -> None:
    zone.start("recorder", "serve")
    zone.emit("http.request", 20)
    first = zone.checkpoint()
    zone.catch_up(first)
    with zone.as_("alice") as alice:
        reply = alice.post("/api/query/submit", json=worlds.a_query()).json()
        detail = ended(zone, reply["result_id"]) if "result_id" in reply else reply
        assert "run veen archive push" in detail["message"]
        archived_hub.archived(hub.data, FileSettings(tmp_path / "store"))
        zone.emit("http.request", 10, 20)
        zone.catch_up(zone.checkpoint())
        result_id = alice.post("/api/query/submit", json=worlds.a_query()).json()["result_id"]
        assert ended(zone, result_id)["status"] == "completed"
        result = alice.get(f"/api/query/result/{result_id}").json()
    digest = result["result_digest"]
    assert [row["payload.number"] for row in result["rows"]] == list(range(20))
    assert digest["checkpoint"]["checkpoint_id"] == first.checkpoint_id.hex()
