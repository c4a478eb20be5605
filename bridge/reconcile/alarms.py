"""What should never be: ledgers that fork, numbers that repeat, streams with two histories."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import NamedTuple

from bridge.reconcile.facts import Checkpoint, Entry, Export, Fork, Import
from bridge.reconcile.ranges import Ranges


class RootClaim(NamedTuple):
    """Somebody's word that a stream had a root at a place."""

    hub_id: bytes
    stream: str
    seq: int
    root: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class LedgerReport:
    """``unknown`` are entries below ``newest`` that nothing tells of; ``repeated`` numbers stand
    for two entries, and ``forked`` ones do not follow the entry before them.
    """

    bridge_id: bytes
    newest: int
    unknown: Ranges
    repeated: tuple[int, ...]
    forked: tuple[int, ...]


def reconcile_ledger(bridge_id: bytes, entries: Iterable[Entry]) -> LedgerReport:
    hashes: dict[int, set[bytes]] = defaultdict(set)
    before: dict[int, set[bytes]] = defaultdict(set)
    for one in entries:
        hashes[one.n].add(one.entry_hash)
        before[one.n].add(one.prev)
    newest = max(hashes)
    # Beside a repeated number, one of two entries is not followed; that is told once, there.
    followed = (n for n in before if n - 1 in hashes)
    return LedgerReport(
        bridge_id=bridge_id,
        newest=newest,
        unknown=Ranges([(1, newest)]) - Ranges((n, n) for n in hashes),
        repeated=tuple(sorted(n for n, found in hashes.items() if len(found) > 1)),
        forked=tuple(sorted(n for n in followed if not before[n] <= hashes[n - 1])),
    )


def root_claims(
    exports: Iterable[Export], imports: Iterable[Import], sources: Iterable[Checkpoint]
) -> Iterator[RootClaim]:
    yield from (
        RootClaim(one.hub_id, one.stream, one.last, one.root) for one in exports if one.root
    )
    yield from (
        RootClaim(one.hub_id, one.stream, one.last, one.root) for one in imports if one.root
    )
    for source in sources:
        for end in source.ends:
            if end.last:
                yield RootClaim(source.hub_id, end.stream, end.last, end.root)


def contradictions(claims: Iterable[RootClaim]) -> list[Fork]:
    """Where two different roots are claimed for one place."""
    first: dict[tuple[bytes, str, int], bytes] = {}
    found = set()
    for one in claims:
        if first.setdefault(one[:3], one.root) != one.root:
            found.add(Fork(*one[:3]))
    return sorted(found)
