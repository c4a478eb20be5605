"""Events that a self-test records, and what has to be in the log of them."""

from __future__ import annotations

import random
from typing import Any, Final, NamedTuple

from cli.selftest.world import World
from cli.selftest.zone import Zone
from recorder.emit.observation import Observation
from veen.client.sending import Sent

_START_MS: Final = 1_763_500_000_000


class Recorded(NamedTuple):
    """An event, the stream it had to go to, and the receipt that it got."""

    observed: Observation
    stream: str
    sent: Sent

    @property
    def seq(self) -> int:
        return self.sent.receipt.stream_seq

    @property
    def hub_ts(self) -> int:
        return self.sent.receipt.hub_ts

    @property
    def leaf(self) -> bytes:
        return self.sent.receipt.leaf_hash

    @property
    def order(self) -> tuple[int, bytes, int]:
        """Of replays and of rows: hub_commit_time, stream, hub_commit_seq."""
        return self.hub_ts, self.stream.encode(), self.seq


def streams_of(step: str) -> dict[str, tuple[str, ...]]:
    """Two streams of a step's own."""
    return {
        f"record/{step}/orders": ("order.placed", "order.cancelled"),
        f"record/{step}/doors": ("door.opened",),
    }


def a_zone(world: World) -> Zone:
    """A recorder of the step's own, known to the hub."""
    world.running()
    zone = Zone(world, world.root / f"{world.step}-zone", streams_of(world.step))
    zone.register()
    return zone


def an_event(chance: random.Random, event_type: str, number: int) -> Observation:
    return Observation(
        event_type=event_type,
        subject_id=f"user:{number % 5}",
        origin=f"gate-{number % 3}",
        payload={"number": number, "word": chance.randbytes(6).hex(), "odd": number % 2 == 1},
        event_time=_START_MS + 1_000 * number,
    )


def some_events(zone: Zone, count: int) -> list[Observation]:
    """Of all types, one after the other, so that neighbours go to different streams."""
    types = [kind for one in zone.settings.streams.streams if one.name in zone.names
             for kind in one.event_types]  # fmt: skip
    chance = zone.world.random
    return [an_event(chance, types[number % len(types)], number) for number in range(count)]


def record(zone: Zone, observed: list[Observation]) -> list[Recorded]:
    """Send events and have their receipts verified."""
    streams = zone.settings.streams
    with zone.emitter() as emitter:
        sent = list(emitter.send_many(observed))
    return [
        Recorded(one, streams.stream_of(one.event_type).name, its)
        for one, its in zip(observed, sent, strict=True)
    ]


def leaves_of(recorded: list[Recorded], stream: str) -> list[bytes]:
    return [one.leaf for one in sorted(recorded, key=lambda one: one.seq) if one.stream == stream]


def fields_of(observed: Observation) -> dict[str, Any]:
    """What the producer said of an event."""
    return {
        "subject_id": observed.subject_id,
        "event_type": observed.event_type,
        "event_time": observed.event_time,
        "origin": observed.origin,
        "payload": observed.payload,
    }
