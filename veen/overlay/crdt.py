"""CRDT overlays: grow-only counter, last-writer-wins map, observed-remove set (CRDT0.1 - CRDT0.3).

- ``GrowOnlyCounter``: the sum of deltas per shard.
- ``LastWriterWins``: registers by key, ordered by (ts, stream_seq).
- ``ObservedRemoveSet``: an element is present while one of its adds is in no tomb. A tomb counts
  wherever it is in the prefix, before the add or after it; so tombs stay, and an add with a tomb is
  dropped.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from veen.digest import h
from veen.errors import Malformed
from veen.overlay.overlay import Event, Overlay, merged, verify_order
from veen.wire import cbor
from veen.wire.body import EventBody, Integer
from veen.wire.objects import WireArray, WireMap
from veen.wire.schema import Bytes32, Version

GCOUNTER_SCHEMA = h(b"crdt.gcnt.v1")
LWW_SCHEMA = h(b"crdt.lww.v1")
ORSET_SCHEMA = h(b"crdt.orset.v1")


@dataclass(frozen=True, slots=True, kw_only=True)
class Increment(EventBody):
    shard: Bytes32
    delta: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Shard(WireArray):
    shard: Bytes32
    total: Integer

    def rule(self) -> None:
        if self.total < 0:
            raise Malformed(f"grow-only counter: expected a total from 0, got {self.total}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Counter(WireMap):
    ver: Version = 1
    shards: tuple[Shard, ...] = ()

    def rule(self) -> None:
        verify_order(map(_counter_key, self.shards))


class GrowOnlyCounter(Overlay[Counter]):
    name = "counter.map"
    schemas = frozenset({GCOUNTER_SCHEMA})
    kind = Counter

    def read(self, event: Event) -> Counter:
        increment = Increment.decode(event.body)
        return Counter(shards=(Shard(shard=increment.shard, total=Integer(increment.delta)),))

    def join(self, left: Counter, right: Counter) -> Counter:
        return Counter(shards=merged(left.shards, right.shards, _counter_key, _sum))

    def part(self, state: Counter, state_id: bytes) -> Counter:
        """The shard of that name."""
        return Counter(shards=tuple(s for s in state.shards if s.shard == state_id))

    def document(self, state: Counter) -> dict[str, Any]:
        shards = {shard.shard.hex(): int(shard.total) for shard in state.shards}
        return {"total": sum(shards.values()), "shards": shards}


def _counter_key(shard: Shard) -> bytes:
    return shard.shard


def _sum(left: Shard, right: Shard) -> Shard:
    return Shard(shard=left.shard, total=Integer(left.total + right.total))


@dataclass(frozen=True, slots=True, kw_only=True)
class Write(EventBody):
    key: bytes
    ts: int
    value: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class Register(WireArray):
    key: bytes
    ts: int
    stream_seq: int
    value: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class Registers(WireMap):
    ver: Version = 1
    registers: tuple[Register, ...] = ()

    def rule(self) -> None:
        verify_order(map(_register_key, self.registers))


class LastWriterWins(Overlay[Registers]):
    name = "lww.map"
    schemas = frozenset({LWW_SCHEMA})
    kind = Registers

    def read(self, event: Event) -> Registers:
        write = Write.decode(event.body)
        register = Register(
            key=write.key, ts=write.ts, stream_seq=event.stream_seq, value=write.value
        )
        return Registers(registers=(register,))

    def join(self, left: Registers, right: Registers) -> Registers:
        return Registers(registers=merged(left.registers, right.registers, _register_key, _later))

    def part(self, state: Registers, state_id: bytes) -> Registers:
        """The register whose key hashes to ``state_id``."""
        return Registers(registers=tuple(r for r in state.registers if h(r.key) == state_id))

    def document(self, state: Registers) -> dict[str, Any]:
        return {"registers": {r.key.hex(): _register_document(r) for r in state.registers}}


def _register_key(register: Register) -> bytes:
    return register.key


def _later(left: Register, right: Register) -> Register:
    return max(left, right, key=lambda register: (register.ts, register.stream_seq))


def _register_document(register: Register) -> dict[str, Any]:
    return {"value": register.value.hex(), "ts": register.ts, "stream_seq": register.stream_seq}


@dataclass(frozen=True, slots=True, kw_only=True)
class AddElement(EventBody):
    id: Bytes32
    elem: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class RemoveElements(EventBody):
    tomb: tuple[Bytes32, ...]


@dataclass(frozen=True, slots=True, kw_only=True, order=True)
class Add(WireArray):
    id: Bytes32
    elem: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class Elements(WireMap):
    ver: Version = 1
    adds: tuple[Add, ...] = ()
    tombs: tuple[Bytes32, ...] = ()

    def rule(self) -> None:
        verify_order(self.adds)
        verify_order(self.tombs)
        if not {add.id for add in self.adds}.isdisjoint(self.tombs):
            raise Malformed("set: an add is stored together with its own removal")


class ObservedRemoveSet(Overlay[Elements]):
    name = "orset"
    schemas = frozenset({ORSET_SCHEMA})
    kind = Elements

    def read(self, event: Event) -> Elements:
        if cbor.mapping(event.body, 0)[0] == 1:
            tombs = RemoveElements.decode(event.body).tomb
            return Elements(tombs=tuple(sorted(set(tombs))))
        add = AddElement.decode(event.body)
        return Elements(adds=(Add(id=add.id, elem=add.elem),))

    def join(self, left: Elements, right: Elements) -> Elements:
        tombs = {*left.tombs, *right.tombs}
        adds = {add for add in (*left.adds, *right.adds) if add.id not in tombs}
        return Elements(adds=tuple(sorted(adds)), tombs=tuple(sorted(tombs)))

    def part(self, state: Elements, state_id: bytes) -> Elements:
        """The adds of the element that hashes to ``state_id``; tombs name no element."""
        return Elements(adds=tuple(add for add in state.adds if h(add.elem) == state_id))

    def document(self, state: Elements) -> dict[str, Any]:
        elements: dict[str, list[str]] = {add.elem.hex(): [] for add in state.adds}
        for add in state.adds:
            elements[add.elem.hex()].append(add.id.hex())
        return {"elements": dict(sorted(elements.items())), "tombs": len(state.tombs)}
