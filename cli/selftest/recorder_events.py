"""Recorder steps: each event in its one stream, by its own principal, in one order (SDR0 3.2)."""

from __future__ import annotations

import json
import time
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

from cli.selftest.recorded import a_zone, fields_of, record, some_events, streams_of
from cli.selftest.step import Step, expect, expect_raises, expect_that
from cli.selftest.world import World
from cli.selftest.zone import Zone
from recorder.emit.observation import NoEvent
from recorder.replay.job import Job
from recorder.replay.output import form_named
from recorder.replay.source import HubSource
from recorder.replay.wanted import by_time
from recorder.settings import load
from recorder.stream_map import UnknownType
from veen import json_body
from veen.client.client import Client
from veen.client.errors import HubRefused
from veen.errors import Code
from veen.overlay.body import AnyItem
from veen.record_event import SCHEMA, EventFault, NotAnEvent, RecordEvent, read_event
from veen.settings_table import BadSettings

_COUNT: Final = 12


def emit_by_type(world: World) -> None:
    """One by one, in batches and through the outbox, each event lands in the stream of its type."""
    zone = a_zone(world)
    observed = some_events(zone, _COUNT)
    with zone.emitter() as emitter:
        emitter.send(observed[0])
        emitter.emit_many(observed[1:5])
        expect("kept in the outbox", emitter.pending(), 4)
        expect("landed", emitter.flush().landed, 4)
        expect("receipts", len(list(emitter.send_many(observed[5:]))), _COUNT - 5)
        unknown = replace(observed[0], event_type="nobody.knows")
        expect_raises("an unknown type", UnknownType, emitter.send, unknown)
        large = replace(observed[0], payload="x" * 70_000)
        expect_raises("a payload beyond the bound", NoEvent, emitter.send, large)
    with zone.acting() as reader:
        for stream, types in streams_of(world.step).items():
            due = [fields_of(one) for one in observed if one.event_type in types]
            expect(f"the events of {stream}", [_fields(one) for one in _read(reader, stream)], due)


def separation(world: World) -> None:
    """An admin is no producer and a producer no admin: by the settings, and by the hub."""
    zone = a_zone(world)
    orders, doors = zone.names
    doubled = {orders: ("order.placed",), doors: ("order.placed",)}
    expect_raises("a type of two streams", BadSettings, _load, zone, zone.text(doubled))
    both = zone.text({orders: ("order.placed",)}, producer="admin")
    expect_raises("an admin that produces", BadSettings, _load, zone, both)
    with zone.emitter("admin") as emitter:
        observed = some_events(zone, 1)[0]
        expect_raises("an event by an admin", NoEvent, emitter.send, observed)
    token = zone.token("admin", zone.names)
    _expect_refused(Code.FORBIDDEN, world.api().authorize, token)
    (one,) = record(zone, some_events(zone, 1))
    with zone.acting("producer") as producer:
        api = producer.session.api
        _expect_refused(Code.FORBIDDEN, api.recorder_checkpoint, zone.settings.profile_id())
        _expect_refused(Code.FORBIDDEN, lambda: list(producer.read(one.stream)))


def principal(world: World) -> None:
    """An event that names another than the client that signed it is none (I3)."""
    zone = a_zone(world)
    (honest,) = record(zone, some_events(zone, 1))
    forged = RecordEvent(
        subject_id="user:1",
        principal_id=world.people["admin"],
        event_type="order.placed",
        event_time=1,
        origin="gate-1",
        payload=AnyItem(json_body.encode_value({})),
    )
    with zone.acting("producer") as producer, zone.acting() as reader:
        producer.renew(zone.token("producer", zone.names))
        key = reader.session.identity.card.id_dh
        producer.send(honest.stream, forged.encode(), schema=SCHEMA, recipient=key)
        first, second = reader.read(honest.stream)
        expect("the signer", first.msg.client_id, world.people["producer"])
        opened = reader.open_payload(first.msg)
        event = read_event(opened.header.schema, opened.body, first.msg.client_id)
        expect("principal_id", event.principal_id, world.people["producer"])
        opened = reader.open_payload(second.msg)
        error = expect_raises(
            "another's principal_id", NotAnEvent, read_event,
            opened.header.schema, opened.body, second.msg.client_id,
        )  # fmt: skip
    expect("the fault", getattr(error, "fault", None), EventFault.PRINCIPAL)


def order(world: World) -> None:
    """Places without a gap, time that never goes back, and one order over streams for all (I1)."""
    zone = a_zone(world)
    recorded = record(zone, some_events(zone, _COUNT))
    for stream in zone.names:
        mine = [one for one in recorded if one.stream == stream]
        expect(f"places of {stream}", [one.seq for one in mine], list(range(1, len(mine) + 1)))
        times = [one.hub_ts for one in mine]
        expect_that(times == sorted(times), f"hub time never goes back in {stream}")
    with zone.acting() as reader:
        checkpoint = zone.checkpoint(reader).checkpoint
        found = []
        for name in ("first", "second"):
            job = Job(
                source=HubSource(reader),
                wanted=lambda _: by_time(zone.names, None, int(time.time() + 60) * 1_000),
                latest=lambda: checkpoint,
            )
            out = zone.folder / name
            job.to_file(out, form_named("jsonl"), resume=False)
            found.append(events_in(out))
    places = [(one["stream"], one["hub_commit_seq"]) for one in found[0]]
    due = [(one.stream, one.seq) for one in sorted(recorded, key=lambda one: one.order)]
    expect("the order of a replay", places, due)
    expect("the order of another", found[1], found[0])


def events_in(path: Path) -> list[dict[str, Any]]:
    """What a replay has written, without the plan and the proofs."""
    found = [json.loads(line) for line in path.read_text().splitlines()]
    return [one for one in found if one["kind"] in ("event", "other")]


def _read(reader: Client, stream: str) -> list[RecordEvent]:
    found = []
    for pair in reader.read(stream):
        opened = reader.open_payload(pair.msg)
        found.append(read_event(opened.header.schema, opened.body, pair.msg.client_id))
    return found


def _fields(event: RecordEvent) -> dict[str, Any]:
    return {
        "subject_id": event.subject_id,
        "event_type": event.event_type,
        "event_time": event.event_time,
        "origin": event.origin,
        "payload": event.value(),
    }


def _load(zone: Zone, text: str) -> object:
    path = zone.folder / "other.toml"
    path.write_text(text)
    return load(path)


def _expect_refused(code: Code, call: Any, *given: Any) -> None:
    error = expect_raises("what the policy forbids", HubRefused, call, *given)
    expect("the refusal", getattr(error, "code", None), code.value)


STEPS: Final = (
    Step("emit-by-type", emit_by_type),
    Step("separation", separation),
    Step("principal", principal),
    Step("order", order),
)
