"""Where a bundle joins on to what is held, against a list of all events."""

from __future__ import annotations

import random
from typing import Any

import bridge_world
import pytest

from bridge.importer.ledger_tables import Run, Span
from bridge.importer.placement import place
from veen.digest import h
from veen.range_proof import RangeProof
from veen.receipt import Receipt

EVENTS = 24


@pytest.fixture(scope="module")
def log() -> Any:
    return bridge_world.World().grow(EVENTS)


@pytest.fixture(scope="module")
def other() -> Any:
    """The same events up to the twelfth."""
    found = bridge_world.World().grow(12)
    found.body_bytes = 17
    return found.grow(EVENTS - 12)


def a_run(log: Any, first: int, last: int) -> Run:
    receipts = [Receipt.decode(one.receipt) for one in log.events[first - 1 : last]]
    entries = b"".join(one.leaf_hash + one.mmr_root for one in receipts)
    return Run(Span(first, last), h(bytes([first, last])), entries)


def proof(log: Any, first: int, last: int) -> RangeProof:
    return RangeProof.build(log.nodes, first, last, EVENTS)


def some_spans(chance: random.Random) -> list[Span]:
    cuts = sorted(chance.sample(range(1, EVENTS + 1), chance.choice((0, 2, 4, 6))))
    return [Span(cuts[at], cuts[at + 1]) for at in range(0, len(cuts), 2)]


def touching(spans: list[Span], first: int, last: int) -> list[Span]:
    return [one for one in spans if one.last >= first - 1 and one.first <= last + 1]


@pytest.mark.parametrize("seed", range(200))
def test_what_is_missing_and_whether_there_is_a_gap(log: Any, seed: int) -> None:
    chance = random.Random(seed)
    spans = some_spans(chance)
    first = chance.randint(1, EVENTS)
    last = chance.randint(first, EVENTS)
    held = [a_run(log, *one) for one in touching(spans, first, last)]
    found = place(proof(log, first, last), a_run(log, first, last), held)
    is_held = {seq for one in spans for seq in range(one.first, one.last + 1)}
    new = [seq for one in found.missing for seq in range(one.span.first, one.span.last + 1)]
    assert found.fork is None
    assert new == [seq for seq in range(first, last + 1) if seq not in is_held]
    assert found.duplicates == last - first + 1 - len(new)
    assert (found.gap is None) == (first == 1 or first - 1 in is_held)
    for run in found.missing:
        assert run.entries == a_run(log, *run.span).entries


@pytest.mark.parametrize("seed", range(200))
def test_another_history_is_found_wherever_it_can_be_seen(log: Any, other: Any, seed: int) -> None:
    chance = random.Random(seed)
    spans = some_spans(chance)
    first = chance.randint(1, EVENTS)
    last = chance.randint(first, EVENTS)
    held = [a_run(log, *one) for one in touching(spans, first, last)]
    found = place(proof(other, first, last), a_run(other, first, last), held)
    # Both tell the same up to 12. Where they meet after it, or one grows out of the other, the
    # difference shows; two that do not touch cannot be told apart.
    meet = {seq for one in spans for seq in range(one.first, one.last + 1)}
    shows = any(seq > 12 and seq in meet for seq in range(first - 1, last + 1))
    grows = any(one.first == last + 1 and last >= 12 for one in spans) and last > 12
    assert (found.fork is not None) == (shows or grows)
    if found.fork is not None:
        assert found.fork > 12
