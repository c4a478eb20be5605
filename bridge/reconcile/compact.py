"""Runs of imported events joined into longer ones, in whatever portions they come.

Joining is the same in any order and over any split of the facts, so that parts of it can be done
beside each other and the rest at the end.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import NamedTuple

from bridge.reconcile.facts import Held, Import


class Run(NamedTuple):
    """Consecutive events of one bundle; ``is_settled`` when C2 covers their place (K2).

    ``place`` names the copy: the import stream, and how far its numbers are ahead of the origin's.
    """

    hub_id: bytes
    stream: str
    held: Held
    is_settled: bool
    bundle_id: bytes
    place: tuple[str, int]
    first: int
    last: int
    time_last: int

    @property
    def key(self) -> tuple[object, ...]:
        return (*self[:2], self.held.value, *self[3:6])


def runs(imports: Iterable[Import], settled_to: dict[str, int] | None) -> list[Run]:
    """``settled_to`` is where C2 ends each import stream; without it everything is settled."""
    return joined(run for one in imports for run in _split(one, settled_to))


def joined(found: Iterable[Run]) -> list[Run]:
    """The fewest runs that say the same, in order."""
    made: list[Run] = []
    for run in sorted(found, key=lambda one: (one.key, one.first, one.last, one.time_last)):
        last = made[-1] if made else None
        if last is None or last.key != run.key or run.first > last.last + 1:
            made.append(run)
        elif (run.last, run.time_last) > (last.last, last.time_last):
            made[-1] = last._replace(last=run.last, time_last=run.time_last)
    return made


def _split(one: Import, settled_to: dict[str, int] | None) -> Iterator[Run]:
    """The part that C2 covers, and the rest. Of a run that is cut only its first time is known:
    no later than the true one, so nothing is called closed that is not.
    """
    ahead = one.target_first - one.first
    cut = one.last if settled_to is None else settled_to.get(one.target, 0) - ahead
    place = (one.target, ahead)
    start = (one.hub_id, one.stream, one.held)
    if cut >= one.last:
        yield Run(*start, True, one.bundle_id, place, one.first, one.last, one.time_last)
    elif cut < one.first:
        yield Run(*start, False, one.bundle_id, place, one.first, one.last, one.time_last)
    else:
        yield Run(*start, True, one.bundle_id, place, one.first, cut, one.time_first)
        yield Run(*start, False, one.bundle_id, place, cut + 1, one.last, one.time_last)
