"""Where a bundle joins on to what is held, against a list of all events."""

from __future__ import annotations

import random
from typing import Any

import pytest

from bridge.importer.admission import place
from bridge.importer.ledger import BundleRun, SeqSpan
from support.bridge import bridge_world
from veen.digest import h
from veen.proofs import RangeProof
from veen.receipt import Receipt

EVENTS = 24


@pytest.fixture(scope="module")
def log() -> Any:
    return bridge_world.World().grow(EVENTS)


@pytest.fixture(scope="module")
def other() -> Any:
    """The same events up to the twelfth."""
    result = bridge_world.World().grow(12)
    result.body_bytes = 17
    return result.grow(EVENTS - 12)


def a_run(log: Any, first: int, last: int) -> BundleRun:
    receipts = [Receipt.decode(event.receipt) for event in log.events[first - 1 : last]]
    entries = b"".join(receipt.leaf_hash + receipt.mmr_root for receipt in receipts)
    return BundleRun(SeqSpan(first, last), h(bytes([first, last])), entries)


def proof(log: Any, first: int, last: int) -> RangeProof:
    return RangeProof.build(log.nodes, first, last, EVENTS)


def some_spans(chance: random.Random) -> list[SeqSpan]:
    cuts = sorted(chance.sample(range(1, EVENTS + 1), chance.choice((0, 2, 4, 6))))
    return [SeqSpan(cuts[at], cuts[at + 1]) for at in range(0, len(cuts), 2)]


def touching(spans: list[SeqSpan], first: int, last: int) -> list[SeqSpan]:
    return [span for span in spans if span.last >= first - 1 and span.first <= last + 1]


@pytest.mark.parametrize("seed", range(200))
def test_what_is_missing_and_whether_there_is_a_gap(log: Any, seed: int) -> None:
    chance = random.Random(seed)
    spans = some_spans(chance)
    first = chance.randint(1, EVENTS)
    last = chance.randint(first, EVENTS)
    held = [a_run(log, *item) for item in touching(spans, first, last)]
    result = place(proof(log, first, last), a_run(log, first, last), held)
    is_held = {seq for span in spans for seq in range(span.first, span.last + 1)}
    new = [seq for item in result.missing for seq in range(item.span.first, item.span.last + 1)]
    assert result.fork is None
    assert new == [seq for seq in range(first, last + 1) if seq not in is_held]
    assert result.duplicates == last - first + 1 - len(new)
    assert (result.gap is None) == (first == 1 or first - 1 in is_held)
    for run in result.missing:
        assert run.entries == a_run(log, *run.span).entries


@pytest.mark.parametrize("seed", range(200))
def test_another_history_is_found_wherever_it_can_be_seen(log: Any, other: Any, seed: int) -> None:
    chance = random.Random(seed)
    spans = some_spans(chance)
    first = chance.randint(1, EVENTS)
    last = chance.randint(first, EVENTS)
    held = [a_run(log, *item) for item in touching(spans, first, last)]
    result = place(proof(other, first, last), a_run(other, first, last), held)
    # Both tell the same up to 12. Where they meet after it, or one grows out of the other, the
    # difference shows; two that do not touch cannot be told apart.
    meet = {seq for span in spans for seq in range(span.first, span.last + 1)}
    shows = any(seq > 12 and seq in meet for seq in range(first - 1, last + 1))
    grows = any(span.first == last + 1 and last >= 12 for span in spans) and last > 12
    assert (result.fork is not None) == (shows or grows)
    if result.fork is not None:
        assert result.fork > 12
