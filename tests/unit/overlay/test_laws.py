"""Every overlay is a monoid with one encoding, and tells its state in JSON."""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import reduce
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from veen.errors import Malformed
from veen.overlay.overlay import Folded, Overlay, fold_events
from veen.overlay.snapshot import OVERLAYS

SIZE = 40
overlays = pytest.mark.parametrize("overlay", OVERLAYS, ids=lambda overlay: overlay.name)
seeds = st.integers(0, 10**6)
cuts = st.tuples(st.integers(0, SIZE), st.integers(0, SIZE)).map(sorted)


@pytest.fixture(scope="session")
def a_log(
    a_history: Callable[..., list[Any]], new_fold_log: Callable[..., Any]
) -> Callable[..., Any]:
    return lambda seed, overlay: new_fold_log(a_history(seed, SIZE, overlay.name)).all


def one_by_one(overlay: Overlay[Any], events: Any) -> Folded[Any]:
    return reduce(overlay.merge, map(overlay.lift, events), overlay.empty())


@overlays
@given(seed=seeds, at=cuts)
def test_merging_is_associative(
    overlay: Overlay[Any], a_log: Callable[..., Any], seed: int, at: list[int]
) -> None:
    events = a_log(seed, overlay)
    parts = (events[: at[0]], events[at[0] : at[1]], events[at[1] :])
    a, b, c = (one_by_one(overlay, part) for part in parts)
    left = overlay.merge(overlay.merge(a, b), c)
    right = overlay.merge(a, overlay.merge(b, c))
    assert left == right
    assert overlay.encode(left) == overlay.encode(right)


@overlays
@given(seed=seeds)
def test_the_empty_state_changes_nothing_on_either_side(
    overlay: Overlay[Any], a_log: Callable[..., Any], seed: int
) -> None:
    folded, empty = one_by_one(overlay, a_log(seed, overlay)), overlay.empty()
    assert overlay.merge(empty, folded) == folded == overlay.merge(folded, empty)


@overlays
@given(seed=seeds, size=st.integers(0, SIZE))
def test_folding_by_halves_is_folding_one_by_one(
    overlay: Overlay[Any], a_log: Callable[..., Any], seed: int, size: int
) -> None:
    events = a_log(seed, overlay)[:size]
    assert fold_events(overlay, events) == one_by_one(overlay, events)


@overlays
@given(seed=seeds)
def test_a_state_is_what_its_bytes_say(
    overlay: Overlay[Any], a_log: Callable[..., Any], seed: int
) -> None:
    folded = one_by_one(overlay, a_log(seed, overlay))
    raw = overlay.encode(folded)
    again = overlay.decode(raw)
    assert again == folded
    assert overlay.encode(overlay.merge(overlay.empty(), again)) == raw


@overlays
@given(seed=seeds, at=st.integers(0, 10**6), bit=st.integers(0, 7))
def test_changed_bytes_are_refused_or_another_state(
    overlay: Overlay[Any], a_log: Callable[..., Any], seed: int, at: int, bit: int
) -> None:
    folded = one_by_one(overlay, a_log(seed, overlay))
    raw = bytearray(overlay.encode(folded))
    raw[at % len(raw)] ^= 1 << bit
    try:
        result = overlay.decode(bytes(raw))
    except Malformed:
        return
    assert result != folded
    assert overlay.encode(Folded(result.state, result.skipped)) == raw


@overlays
@given(seed=seeds)
def test_the_document_is_json(overlay: Overlay[Any], a_log: Callable[..., Any], seed: int) -> None:
    document = overlay.state(one_by_one(overlay, a_log(seed, overlay)))
    assert json.loads(json.dumps(document)) == document
    assert {"state", "skipped"} == document.keys()


@overlays
def test_the_state_of_nothing_has_few_bytes(overlay: Overlay[Any]) -> None:
    assert len(overlay.encode(overlay.empty())) < 32
    assert overlay.decode(overlay.encode(overlay.empty())) == overlay.empty()
