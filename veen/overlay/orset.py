"""Observed-remove set: an element is there while one of its adds is in no tomb (CRDT0.2).

A tomb counts wherever it stands in the prefix, before the add or after it; so tombs stay, and an
add that meets its tomb is dropped for good.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from veen import cbor
from veen.digest import h
from veen.errors import Malformed
from veen.overlay.body import Body
from veen.overlay.event import Event
from veen.overlay.overlay import Overlay
from veen.overlay.rows import refuse_disorder
from veen.schema import Bytes32, Version
from veen.wire import WireArray, WireMap

SCHEMA = h(b"crdt.orset.v1")


@dataclass(frozen=True, slots=True, kw_only=True)
class AddElement(Body):
    id: Bytes32
    elem: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class RemoveElements(Body):
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
        refuse_disorder(self.adds)
        refuse_disorder(self.tombs)
        if not {add.id for add in self.adds}.isdisjoint(self.tombs):
            raise Malformed("an add stands beside its own tomb")


class ObservedRemoveSet(Overlay[Elements]):
    name = "orset"
    schemas = frozenset({SCHEMA})
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
