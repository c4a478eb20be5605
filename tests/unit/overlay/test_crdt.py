"""Registers, sets and counters as CRDT0 tells them."""

from __future__ import annotations

from collections.abc import Callable
from itertools import permutations
from typing import Any

import pytest

from support.overlay import overlay_histories
from veen.digest import h
from veen.errors import Malformed
from veen.overlay.crdt import (
    Add,
    Counter,
    Elements,
    GrowOnlyCounter,
    LastWriterWins,
    ObservedRemoveSet,
    Register,
    Registers,
    Shard,
)
from veen.overlay.overlay import Event, fold_events
from veen.wire.body import Integer, to_bytes

ONE, TWO = h(b"one"), h(b"two")
Folds = Callable[..., dict[str, Any]]


@pytest.fixture
def state_of(an_event: Callable[..., Event]) -> Folds:
    def fold(overlay: Any, *bodies: Any) -> dict[str, Any]:
        (schema,) = overlay.schemas
        events = [an_event(schema, body, stream_seq=at) for at, body in enumerate(bodies, 1)]
        document = overlay.state(fold_events(overlay, events))
        assert all(not places["count"] for places in document["skipped"].values())
        result: dict[str, Any] = document["state"]
        return result

    return fold


def write(ts: int, value: bytes) -> dict[str, Any]:
    return {"key": b"foo", "ts": ts, "value": value}


def test_the_later_timestamp_wins_even_when_it_comes_first(state_of: Folds) -> None:
    state = state_of(LastWriterWins(), write(2, b"B"), write(1, b"A"))
    assert state["registers"] == {b"foo".hex(): {"value": "42", "ts": 2, "stream_seq": 1}}


def test_the_later_place_wins_at_the_same_timestamp(state_of: Folds) -> None:
    state = state_of(LastWriterWins(), write(5, b"A"), write(5, b"B"), write(4, b"C"))
    assert state["registers"][b"foo".hex()]["value"] == b"B".hex()


def test_registers_of_other_keys_do_not_meet(state_of: Folds) -> None:
    state = state_of(LastWriterWins(), write(1, b"A"), {"key": b"", "ts": 0, "value": b"B"})
    assert sorted(state["registers"]) == ["", b"foo".hex()]


@pytest.mark.parametrize("order", list(permutations(range(3))))
def test_a_tomb_counts_before_its_add_as_well_as_after(
    state_of: Folds, order: tuple[int, ...]
) -> None:
    bodies = ({"id": ONE, "elem": b"x"}, {"tomb": [ONE]}, {"id": ONE, "elem": b"x"})
    state = state_of(ObservedRemoveSet(), *(bodies[at] for at in order))
    assert state == {"elements": {}, "tombs": 1}


def test_an_element_stays_while_one_of_its_adds_is_in_no_tomb(state_of: Folds) -> None:
    bodies = ({"id": ONE, "elem": b"x"}, {"id": TWO, "elem": b"x"}, {"tomb": [ONE, ONE]})
    state = state_of(ObservedRemoveSet(), *bodies)
    assert state["elements"] == {b"x".hex(): [TWO.hex()]}


def test_one_id_for_two_elements_adds_and_removes_both(state_of: Folds) -> None:
    bodies = ({"id": ONE, "elem": b"x"}, {"id": ONE, "elem": b"y"})
    assert len(state_of(ObservedRemoveSet(), *bodies)["elements"]) == 2
    assert state_of(ObservedRemoveSet(), *bodies, {"tomb": [ONE]})["elements"] == {}


def test_a_counter_is_the_sum_of_its_shards_beyond_64_bits(state_of: Folds) -> None:
    most = 2**64 - 1
    bodies = [{"shard": ONE, "delta": most}] * 3 + [{"shard": TWO, "delta": 5}]
    state = state_of(GrowOnlyCounter(), *bodies)
    assert state["total"] == 3 * most + 5
    assert state["shards"] == {ONE.hex(): 3 * most, TWO.hex(): 5}


def test_a_part_is_the_register_element_or_shard_that_is_named() -> None:
    register = Register(key=b"foo", ts=1, stream_seq=1, value=b"A")
    registers = Registers(registers=(Register(key=b"", ts=9, stream_seq=2, value=b""), register))
    assert LastWriterWins().part(registers, h(b"foo")) == Registers(registers=(register,))
    adds = tuple(sorted([Add(id=ONE, elem=b"x"), Add(id=TWO, elem=b"y")]))
    elements = Elements(adds=adds, tombs=(h(b"three"),))
    assert ObservedRemoveSet().part(elements, h(b"y")) == Elements(adds=(Add(id=TWO, elem=b"y"),))
    shard = Shard(shard=ONE, total=Integer(4))
    assert GrowOnlyCounter().part(Counter(shards=(shard,)), ONE) == Counter(shards=(shard,))
    assert GrowOnlyCounter().part(Counter(shards=(shard,)), TWO) == Counter()


@pytest.mark.parametrize(
    ("kind", "tree"),
    [
        pytest.param(Elements, {1: 1, 2: [[ONE, b""]], 3: [ONE]}, id="add beside its tomb"),
        pytest.param(Elements, {1: 1, 2: [], 3: [ONE, ONE]}, id="tomb twice"),
        pytest.param(Elements, {1: 1, 2: [], 3: sorted([ONE, TWO])[::-1]}, id="tombs unsorted"),
        pytest.param(Counter, {1: 1, 2: [[ONE, b"\x01"]] * 2}, id="shard twice"),
        pytest.param(Counter, {1: 1, 2: [[ONE, b"\xff"]]}, id="counter below zero"),
        pytest.param(Registers, {1: 1, 2: [[b"k", 1, 1, b""]] * 2}, id="register twice"),
        pytest.param(Registers, {1: 2, 2: []}, id="another version"),
    ],
)
def test_a_state_that_no_fold_gives_is_refused(kind: Any, tree: Any) -> None:
    with pytest.raises(Malformed):
        kind.decode(overlay_histories.cbor(tree))


@pytest.mark.parametrize(
    ("value", "raw"),
    [(0, "00"), (1, "01"), (127, "7f"), (128, "0080"), (-1, "ff"), (-128, "80"), (-129, "ff7f"),
     (2**64, "010000000000000000"), (-(2**63), "8000000000000000")],
)  # fmt: skip
def test_an_integer_is_the_shortest_twos_complement(value: int, raw: str) -> None:
    assert to_bytes(value).hex() == raw
    result, end = Integer.as_kind().read(bytes([0x40 + len(raw) // 2]) + bytes.fromhex(raw), 0)
    assert (result, end) == (value, 1 + len(raw) // 2)


@pytest.mark.parametrize("raw", ["40", "420000", "42007f", "42ffff", "42ff80", "00", "20"])
def test_an_integer_in_another_form_is_refused(raw: str) -> None:
    with pytest.raises(Malformed):
        Integer.as_kind().read(bytes.fromhex(raw), 0)
