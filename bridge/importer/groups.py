"""The inbox, sorted: which bags belong together, and in which order carriers should go in."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Final

from bridge.carrier.carrier import Carrier
from bridge.carrier.open_bag import Bag
from bridge.refusal import Refused
from veen.digest import h

_AT_A_TIME: Final = 100_000
"""How many bags are looked at together. Of one carrier there can be a few hundred."""


@dataclass(frozen=True, slots=True)
class Group:
    """The bags of one carrier as far as they are here; nothing of it is verified yet.

    ``due`` is how many bags it says it has; what is no bag is a group of its own, to be refused.
    """

    bags: tuple[Path, ...]
    due: int
    order: tuple[bytes, str, int, str]

    @property
    def name(self) -> str:
        return self.bags[0].name

    @property
    def is_whole(self) -> bool:
        return len(self.bags) >= self.due


def groups(inbox: Path) -> Iterator[Group]:
    """All that lies in the inbox, so that what stays in it stands in nobody's way."""
    with os.scandir(inbox) as entries:
        names = iter(sorted(one.name for one in entries if not one.name.startswith(".")))
    while some := list(islice(names, _AT_A_TIME)):
        yield from _sorted(inbox, some)


def _sorted(inbox: Path, names: list[str]) -> list[Group]:
    found: dict[bytes, Group] = {}
    for name in names:
        path = inbox / name
        carrier = _carrier(path)
        key = h(carrier.encode()) if carrier else os.fsencode(name)
        known = found.get(key)
        if known is None:
            due = carrier.bags if carrier else 1
            found[key] = Group((path,), due, _order(path, carrier))
        else:
            found[key] = Group((*known.bags, path), known.due, known.order)
    return sorted(found.values(), key=lambda one: one.order)


def _carrier(path: Path) -> Carrier | None:
    try:
        bag = Bag(path)
    except Refused:
        return None
    bag.close()
    return bag.carrier


def _order(path: Path, carrier: Carrier | None) -> tuple[bytes, str, int, str]:
    """Streams from their beginning on, as far as a carrier tells it in the open."""
    if carrier is None or carrier.ledger is None:
        return b"", "", 0, path.name
    entry = carrier.ledger.tail[-1]
    return entry.hub_id, entry.stream, entry.from_seq, path.name
