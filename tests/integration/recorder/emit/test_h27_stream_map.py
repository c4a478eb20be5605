"""H27: one event type, one stream, also for what other programs send; changes of it are logged."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from recorder.connect import open_recorder_client
from recorder.emit.migration import Migration, Target, record, rename
from recorder.index.follower import Follower, opening
from recorder.index.placement import MapChanged, refuse_changed, unlogged
from recorder.index.reader import status
from recorder.index.rebuild import create
from recorder.index.tables import IndexHome
from recorder.index.writer import writing
from recorder.settings import RecorderSettings
from support.recorder import recorder_world
from veen.errors import Malformed
from veen.wire.api import RegisterRequest, StreamsResponse

ORDERS, LOGS, MOVED = recorder_world.ORDERS, recorder_world.LOGS, "record/app/purchases"


def followed(world: Any, home: IndexHome, settings: RecorderSettings) -> None:
    """One look at the hub, as the query service and ``veen recorder index follow`` take it."""
    hub = world.document()["hub"] | {"client": "admin", "principal": "admin"}
    with (
        open_recorder_client(
            world.settings(hub=hub).hub,
            passphrase=None,
            runtime=recorder_world.runtime(),
            retry_policy=recorder_world.HASTY,
        ) as reader,
        home.locked(),
        opening(reader.session.identity.readers(), reader.session.limits, 0) as opener,
        writing(create(home, reader.meet().hub.hub_id)) as writer,
    ):
        for name in (ORDERS, LOGS, MOVED):
            # By a name: the index follows no stream that its hub knows by number alone.
            request = RegisterRequest(name=name)
            reader.session.api.transport.post("/tooling/streams", request, StreamsResponse)
        Follower(reader, writer, opener, streams=settings.streams).round()


def wrong(home: IndexHome) -> dict[str, int]:
    return {
        stream.stream: stream.wrong_stream
        for stream in status(home, 0).streams
        if stream.wrong_stream
    }


def moved_orders(world: Any) -> list[dict[str, Any]]:
    """The usual map, with the stream of orders under another name."""
    return [
        stream | {"name": MOVED} if stream["name"] == ORDERS else stream
        for stream in streams(world)
    ]


def streams(world: Any) -> list[dict[str, Any]]:
    result: list[dict[str, Any]] = world.document()["streams"]
    return result


def test_h27_an_event_of_a_foreign_type_is_found_and_a_changed_map_needs_its_migration(
    emit_world: Any, tmp_path: Path
) -> None:
    home, settings = IndexHome(tmp_path / "index"), emit_world.settings()
    with emit_world.emitter() as emitter:
        emitter.send(recorder_world.observed())
    followed(emit_world, home, settings)
    assert wrong(home) == {}

    # Another settings file maps the type of orders to the stream of logs: the hub cannot tell.
    swapped = [
        stream | {"event_types": kinds}
        for stream, kinds in zip(
            streams(emit_world), (["log.line"], ["order.placed", "log.dropped"]), strict=True
        )
    ]
    with emit_world.emitter(streams=swapped) as emitter:
        for _ in range(3):
            emitter.send(recorder_world.observed())
    followed(emit_world, home, settings)
    assert wrong(home) == {LOGS: 3}
    row = next(stream for stream in status(home, 0).streams if stream.stream == LOGS)
    assert row.unread == 0

    # With that file as its own settings, the recorder refuses: nothing tells of a migration.
    with pytest.raises(MapChanged, match=r"expected a migration event .* got none"):
        refuse_changed(home, emit_world.settings(streams=swapped).streams)
    followed(emit_world, home, emit_world.settings(streams=swapped))
    assert "veen recorder migrate" in str(status(home, 0).trouble)
    assert wrong(home) == {LOGS: 3}

    # A rename is accepted once it is in the log, and what stood in the old stream stays right.
    renamed = emit_world.settings(streams=moved_orders(emit_world))
    with pytest.raises(MapChanged, match=f"from {ORDERS} to {MOVED}"):
        refuse_changed(home, renamed.streams)
    with emit_world.emitter("admin", streams=moved_orders(emit_world)) as emitter:
        record(emitter, rename(emitter.streams, ORDERS, MOVED, 1), "test")
    followed(emit_world, home, renamed)
    refuse_changed(home, renamed.streams)
    assert status(home, 0).trouble is None
    assert wrong(home) == {LOGS: 3}
    # The map before it is now the one that is refused.
    with pytest.raises(MapChanged, match=f"from {MOVED} to {ORDERS}"):
        refuse_changed(home, settings.streams)
    # What comes to the old stream after its last place is not of that stream any more.
    with emit_world.emitter() as emitter:
        emitter.send(recorder_world.observed())
    followed(emit_world, home, renamed)
    assert wrong(home) == {LOGS: 3, ORDERS: 1}


def test_h27_the_accepted_map_outlives_the_index_and_is_not_guessed(
    emit_world: Any, tmp_path: Path
) -> None:
    home, settings = IndexHome(tmp_path / "index"), emit_world.settings()
    refuse_changed(home, settings.streams)
    followed(emit_world, home, settings)
    document = json.loads(home.stream_map.read_bytes())
    assert document["types"]["order.placed"] == ORDERS
    home.stream_map.write_bytes(b"{")
    with pytest.raises(Malformed, match="restore it"):
        refuse_changed(home, settings.streams)


def test_h27_only_a_chain_of_migrations_that_leads_there_explains_a_move() -> None:
    first = Migration("record/a", 5, (Target("record/b", ("x",)), Target("record/c", ("y",))))
    second = Migration("record/b", 7, (Target("record/d", ("x",)),))
    before, now = {"x": "record/a", "y": "record/a"}, {"x": "record/d", "y": "record/c"}
    assert unlogged(before, now, [first, second]) == []
    assert unlogged(before, now, [second, first]) == ["x"]
    assert unlogged(before, now, [first]) == ["x"]
    assert unlogged(before, now, []) == ["x", "y"]
    # A type that is new, and one that is in no settings any more, are no moves.
    assert unlogged({"x": "record/a"}, {"z": "record/b"}, []) == []
