"""H27: a query says which of the events it searched stand in the stream of another type."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from recorder.emit.emitter import Emitter, Observation
from recorder.stream_map import RecorderStream, RecorderStreamMap
from support.recorder import query_world

HTTP, AUTH = "record/app/http", "record/app/auth"


def test_h27_a_result_names_streams_with_events_of_foreign_types(
    start_query_hub: Callable[..., Any], make_query_zone: Callable[..., Any]
) -> None:
    zone = make_query_zone(start_query_hub())
    zone.emit("http.request", 4)
    zone.emit("auth.login", 1)
    other = RecorderStreamMap([RecorderStream(name=AUTH, event_types=("http.request",))], ())
    recipient = zone.reader.card.recipient(int(time.time()))
    stranger = Emitter(zone.producer, other, clock=lambda: 0, recipient=recipient)
    foreign = Observation(
        event_type="http.request", subject_id="user:1", origin="shop", payload={}, event_time=1
    )
    list(stranger.send_many([foreign] * 2))
    zone.start().catch_up(zone.checkpoint())
    due = [{"count": 2, "fault": "WRONG_STREAM", "first_seq": 2, "stream": AUTH}]
    with zone.as_("alice") as alice:
        asked = alice.post("/api/query/submit", json=query_world.a_query(scope=[HTTP, AUTH])).json()
        result_id = (asked.get("result_digest") or asked)["result_id"]
        path = f"/api/query/result/{result_id}"
        query_world.wait_until(lambda: alice.get(path).json().get("faults") == due, "the fault")
        result = alice.get(path).json()
        # The rows are what the log has; none is left out, and the digest is not touched.
        assert len(result["rows"]) == 7
        assert [item["unread"] for item in result["result_digest"]["searched"]] == [0, 0]
        clean = alice.post("/api/query/submit", json=query_world.a_query(scope=[HTTP])).json()
        result_id = (clean.get("result_digest") or clean)["result_id"]
        path = f"/api/query/result/{result_id}"
        shown = query_world.wait_until(
            lambda: reply.json() if (reply := alice.get(path)).is_success else None, "the rows"
        )
    assert shown["faults"] == []
