"""Last writer wins: registers by key, ordered by (ts, stream_seq) (CRDT0.1)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from veen.digest import h
from veen.overlay.body import Body
from veen.overlay.event import Event
from veen.overlay.overlay import Overlay
from veen.overlay.rows import merged, refuse_disorder
from veen.schema import Version
from veen.wire import WireArray, WireMap

SCHEMA = h(b"crdt.lww.v1")


@dataclass(frozen=True, slots=True, kw_only=True)
class Write(Body):
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
        refuse_disorder(map(_key, self.registers))


class LastWriterWins(Overlay[Registers]):
    name = "lww.map"
    schemas = frozenset({SCHEMA})
    kind = Registers

    def read(self, event: Event) -> Registers:
        write = Write.decode(event.body)
        register = Register(
            key=write.key, ts=write.ts, stream_seq=event.stream_seq, value=write.value
        )
        return Registers(registers=(register,))

    def join(self, left: Registers, right: Registers) -> Registers:
        return Registers(registers=merged(left.registers, right.registers, _key, _later))

    def part(self, state: Registers, state_id: bytes) -> Registers:
        """The register whose key hashes to ``state_id``."""
        return Registers(registers=tuple(r for r in state.registers if h(r.key) == state_id))

    def document(self, state: Registers) -> dict[str, Any]:
        return {"registers": {r.key.hex(): _told(r) for r in state.registers}}


def _key(register: Register) -> bytes:
    return register.key


def _later(left: Register, right: Register) -> Register:
    return max(left, right, key=lambda register: (register.ts, register.stream_seq))


def _told(register: Register) -> dict[str, Any]:
    return {"value": register.value.hex(), "ts": register.ts, "stream_seq": register.stream_seq}
