"""The inbox, sorted: which bags belong together, and in which order carriers should go in."""

from __future__ import annotations

import os
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Final

from bridge.carrier.carrier import Carrier
from bridge.carrier.open_bag import Bag
from bridge.refusal import Refused
from veen.digest import h

_AT_A_TIME: Final = 1024


@dataclass(frozen=True, slots=True)
class Group:
    """The bags of one carrier as far as they are here; nothing of it is verified yet."""

    bags: tuple[Path, ...]
    order: tuple[bytes, str, int, str]

    @property
    def name(self) -> str:
        return self.bags[0].name


def groups(inbox: Path) -> list[Group]:
    """At most so many at a time; what is no bag is a group of its own, to be refused."""
    with os.scandir(inbox) as entries:
        found = [one.name for one in islice(entries, _AT_A_TIME) if not one.name.startswith(".")]
    by_carrier: dict[bytes, tuple[list[Path], Carrier | None]] = {}
    for name in sorted(found):
        path = inbox / name
        carrier = _carrier(path)
        key = h(carrier.encode()) if carrier else name.encode("utf-8", "surrogateescape")
        by_carrier.setdefault(key, ([], carrier))[0].append(path)
    all_of_them = [Group(tuple(paths), _order(paths, of)) for paths, of in by_carrier.values()]
    return sorted(all_of_them, key=lambda one: one.order)


def _carrier(path: Path) -> Carrier | None:
    try:
        bag = Bag(path)
    except Refused:
        return None
    bag.close()
    return bag.carrier


def _order(paths: list[Path], carrier: Carrier | None) -> tuple[bytes, str, int, str]:
    """Streams from their beginning on, as far as a carrier tells it in the open."""
    if carrier is None or carrier.ledger is None:
        return b"", "", 0, paths[0].name
    entry = carrier.ledger.tail[-1]
    return entry.hub_id, entry.stream, entry.from_seq, paths[0].name
