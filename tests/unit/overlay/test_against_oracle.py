"""Folds of random histories give the bytes of a naive fold, however the work is cut up."""

from __future__ import annotations

from collections.abc import Callable
from functools import reduce
from random import Random
from typing import Any

import pytest

from support.overlay import overlay_oracle
from veen.overlay.fold import Fold, SeqRun
from veen.overlay.overlay import Folded, Overlay
from veen.overlay.snapshot import OVERLAYS, overlay_named

HISTORIES = 80
NAMES = [overlay.name for overlay in OVERLAYS]


def cut(chance: Random, run: SeqRun, parts: int) -> list[SeqRun]:
    """The run as so many neighbours, some of them empty."""
    ends = sorted(chance.randint(run.from_seq - 1, run.to_seq) for _ in range(parts - 1))
    starts = [run.from_seq, *(end + 1 for end in ends)]
    return [SeqRun(*pair) for pair in zip(starts, [*ends, run.to_seq], strict=True)]


def joined(chance: Random, overlay: Overlay[Any], parts: list[Folded[Any]]) -> Folded[Any]:
    """Neighbours merged two by two in an order of chance."""
    while len(parts) > 1:
        at = chance.randrange(len(parts) - 1)
        parts[at : at + 2] = [overlay.merge(parts[at], parts[at + 1])]
    return parts[0]


@pytest.mark.parametrize("name", NAMES)
def test_every_way_of_folding_gives_the_bytes_of_the_naive_fold(
    name: str,
    a_history: Callable[..., list[Any]],
    new_fold_log: Callable[..., Any],
    label: bytes,
    long_factor: int,
) -> None:
    overlay = overlay_named(name)
    for seed in range(HISTORIES * long_factor):
        chance = Random(f"{name} {seed}")
        messages = a_history(seed, chance.randrange(1, 160), name)
        log, block = new_fold_log(messages), chance.randrange(1, 40)
        first = chance.choice([1, chance.randint(1, len(messages))])
        run = SeqRun(first, chance.randint(first - 1, len(messages)))
        due = overlay_oracle.folded(name, messages[run.from_seq - 1 : run.to_seq])
        fold = Fold(overlay, label, log, block)
        cold = fold.over(run)
        parts = [fold.over(part) for part in cut(chance, run, chance.randrange(1, 9))]
        events = log.all[run.from_seq - 1 : run.to_seq]
        one_by_one = reduce(overlay.merge, map(overlay.lift, events), overlay.empty())
        ways = (cold, fold.over(run), joined(chance, overlay, parts), one_by_one)
        assert {overlay.encode(way) for way in ways} == {due}


@pytest.mark.parametrize("name", NAMES)
def test_the_cache_is_the_same_however_it_was_filled(
    name: str, a_history: Callable[..., list[Any]], new_fold_log: Callable[..., Any], label: bytes
) -> None:
    for seed in range(12):
        chance = Random(f"cache {name} {seed}")
        messages = a_history(seed, chance.randrange(40, 120), name)
        block, whole = chance.randrange(1, 9), SeqRun(1, len(messages))
        at_once, bit_by_bit = new_fold_log(messages), new_fold_log(messages)
        Fold(overlay_named(name), label, at_once, block).over(whole)
        growing = Fold(overlay_named(name), label, bit_by_bit, block)
        for end in sorted(chance.sample(range(1, len(messages)), 5)):
            growing.over(SeqRun(chance.randint(1, end), end))
        growing.over(whole)
        shared = at_once.cache.keys() & bit_by_bit.cache.keys()
        assert len(shared) > len(messages) // block // 2
        for node in shared:
            assert at_once.cache[node].encode() == bit_by_bit.cache[node].encode()
