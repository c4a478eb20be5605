"""Grow-only counter: the sum of deltas per shard (CRDT0.3)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from veen.digest import h
from veen.errors import Malformed
from veen.overlay.body import Body
from veen.overlay.event import Event
from veen.overlay.integer import Integer
from veen.overlay.overlay import Overlay
from veen.overlay.rows import merged, refuse_disorder
from veen.schema import Bytes32, Version
from veen.wire import WireArray, WireMap

SCHEMA = h(b"crdt.gcnt.v1")


@dataclass(frozen=True, slots=True, kw_only=True)
class Increment(Body):
    shard: Bytes32
    delta: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Shard(WireArray):
    shard: Bytes32
    total: Integer

    def rule(self) -> None:
        if self.total < 0:
            raise Malformed(f"a counter that only grows at {self.total}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Counter(WireMap):
    ver: Version = 1
    shards: tuple[Shard, ...] = ()

    def rule(self) -> None:
        refuse_disorder(map(_key, self.shards))


class GrowOnlyCounter(Overlay[Counter]):
    name = "counter.map"
    schemas = frozenset({SCHEMA})
    kind = Counter

    def read(self, event: Event) -> Counter:
        found = Increment.decode(event.body)
        return Counter(shards=(Shard(shard=found.shard, total=Integer(found.delta)),))

    def join(self, left: Counter, right: Counter) -> Counter:
        return Counter(shards=merged(left.shards, right.shards, _key, _sum))

    def part(self, state: Counter, state_id: bytes) -> Counter:
        """The shard of that name."""
        return Counter(shards=tuple(s for s in state.shards if s.shard == state_id))

    def document(self, state: Counter) -> dict[str, Any]:
        shards = {shard.shard.hex(): int(shard.total) for shard in state.shards}
        return {"total": sum(shards.values()), "shards": shards}


def _key(shard: Shard) -> bytes:
    return shard.shard


def _sum(left: Shard, right: Shard) -> Shard:
    return Shard(shard=left.shard, total=Integer(left.total + right.total))
