"""Events of the recorder steps, and consistently rewritten logs (I2)."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any, Final, NamedTuple

from cli.selftest.samples import NaiveTree, naive_root
from cli.selftest.world import World
from cli.selftest.zones import SelftestZone
from recorder.emit.emitter import Observation
from recorder.replay.plan import HubSource
from veen.client.log_head import Pair
from veen.client.outbox import SentEvent
from veen.digest import h
from veen.errors import Undecryptable
from veen.hub_identity import HubIdentity
from veen.payload import Opened
from veen.proofs import RangeProof

_START_MS: Final = 1_763_500_000_000


class RecordedSample(NamedTuple):
    """An event, its expected stream, and its receipt."""

    observed: Observation
    stream: str
    sent: SentEvent

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
        """The order of replays and rows: hub_commit_time, stream, hub_commit_seq."""
        return self.hub_ts, self.stream.encode(), self.seq


def streams_of(step: str) -> dict[str, tuple[str, ...]]:
    """The two streams of a step."""
    return {
        f"record/{step}/orders": ("order.placed", "order.cancelled"),
        f"record/{step}/doors": ("door.opened",),
    }


def a_zone(world: World) -> SelftestZone:
    """A recorder for a step, registered with the hub."""
    world.running()
    zone = SelftestZone(world, world.root / f"{world.step}-zone", streams_of(world.step))
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


def some_events(zone: SelftestZone, count: int) -> list[Observation]:
    """Events of all types in turn, so that consecutive ones go to different streams."""
    types = [kind for stream in zone.settings.streams.streams if stream.name in zone.names
             for kind in stream.event_types]  # fmt: skip
    chance = zone.world.random
    return [an_event(chance, types[number % len(types)], number) for number in range(count)]


def record(zone: SelftestZone, observed: list[Observation]) -> list[RecordedSample]:
    """Send events and verify their receipts."""
    streams = zone.settings.streams
    with zone.emitter() as emitter:
        sent = list(emitter.send_many(observed))
    return [
        RecordedSample(observation, streams.stream_of(observation.event_type).name, its)
        for observation, its in zip(observed, sent, strict=True)
    ]


def leaves_of(recorded: list[RecordedSample], stream: str) -> list[bytes]:
    return [
        sample.leaf
        for sample in sorted(recorded, key=lambda item: item.seq)
        if sample.stream == stream
    ]


def fields_of(observed: Observation) -> dict[str, Any]:
    """The fields of an event as its producer gave them."""
    return {
        "subject_id": observed.subject_id,
        "event_type": observed.event_type,
        "event_time": observed.event_time,
        "origin": observed.origin,
        "payload": observed.payload,
    }


Edit = Callable[[list[Pair], int], list[Pair]]


def changed(pairs: list[Pair], at: int) -> list[Pair]:
    """The log with the text of one event replaced."""
    old = pairs[at].msg
    text = old.ciphertext[:-1] + bytes([old.ciphertext[-1] ^ 1])
    new = replace(old, ciphertext=text, ct_hash=h(text))
    return [*pairs[:at], Pair(new, pairs[at].receipt), *pairs[at + 1 :]]


def left_out(pairs: list[Pair], at: int) -> list[Pair]:
    """The log without one event, and another one at the end so that the count is the same."""
    return [*pairs[:at], *pairs[at + 1 :], pairs[at - 1]]


def moved(pairs: list[Pair], at: int) -> list[Pair]:
    """The log with two neighbouring events swapped."""
    other = at - 1 if at else at + 1
    swapped = list(pairs)
    swapped[at], swapped[other] = swapped[other], swapped[at]
    return swapped


def added(pairs: list[Pair], at: int) -> list[Pair]:
    """The log with one event duplicated and the last one dropped."""
    return [*pairs[:at], pairs[at - 1], *pairs[at:-1]]


EDITS = {
    "changed": changed, "left out": left_out, "moved": moved, "put in a second time": added,
}  # fmt: skip


class RewrittenSource:
    """A hub that rewrote one stream with consistent numbers, roots and proofs."""

    def __init__(self, honest: HubSource, pairs: list[Pair]) -> None:
        self._honest = honest
        leaves = [pair.msg.leaf_hash() for pair in pairs]
        self._tree = NaiveTree(leaves)
        self._pairs = [_placed(pair, leaves[:seq]) for seq, pair in enumerate(pairs, start=1)]

    @property
    def hub(self) -> HubIdentity:
        return self._honest.hub

    def identity_sig(self) -> bytes:
        return self._honest.identity_sig()

    def pages(self, _: str, from_seq: int, to_seq: int) -> Iterator[tuple[Pair, ...]]:
        yield tuple(self._pairs[from_seq - 1 : to_seq])

    def range_proof(self, _: str, from_seq: int, to_seq: int, size: int) -> RangeProof:
        return RangeProof.build(self._tree, from_seq, to_seq, size)

    def first_at(self, stream: str, hub_ts: int) -> int | None:
        return self._honest.first_at(stream, hub_ts)

    def head_seq(self, _: str) -> int:
        return len(self._pairs)

    def open_pair(self, pair: Pair) -> Opened:
        raise Undecryptable(f"nothing of a rewritten log is opened, as {pair.receipt.stream_seq}")


def _placed(pair: Pair, leaves: list[bytes]) -> Pair:
    receipt = replace(
        pair.receipt, stream_seq=len(leaves), leaf_hash=leaves[-1], mmr_root=naive_root(leaves)
    )
    return Pair(pair.msg, receipt)
