"""The ledger of a bridge: a chain that tells what was lost, and cannot tell two stories."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from bridge.carrier.format import CarrierLedger
from support.bridge import bridge_world
from veen.digest import h
from veen.errors import Malformed, Untrusted


@pytest.fixture
def ledger(grown_world: Any) -> CarrierLedger:
    carrier_ledger = CarrierLedger(bridge_id=h(b"bridge"))
    for seq in range(1, 6):
        carrier_ledger = carrier_ledger.with_bundle(
            bridge_world.parts(grown_world.bundle(seq, seq))[0]
        )
    return carrier_ledger


def test_reads_back_what_was_entered(ledger: CarrierLedger) -> None:
    assert CarrierLedger.decode(ledger.encode()) == ledger
    assert [(entry.n, entry.from_seq) for entry in ledger.tail] == [(n, n) for n in range(1, 6)]


def test_refuses_a_chain_with_a_link_left_out(ledger: CarrierLedger) -> None:
    with pytest.raises(Malformed):
        replace(ledger, tail=(*ledger.tail[:1], *ledger.tail[2:])).encode()


def test_refuses_a_chain_with_another_link(ledger: CarrierLedger) -> None:
    other = replace(ledger.tail[1], to_seq=9)
    with pytest.raises(Malformed):
        replace(ledger, tail=(ledger.tail[0], other, *ledger.tail[2:])).encode()


def test_keeps_a_tail_of_64(grown_world: Any, ledger: CarrierLedger) -> None:
    header = bridge_world.parts(grown_world.bundle(1, 1))[0]
    for _ in range(65):
        ledger = ledger.with_bundle(header)
    assert [entry.n for entry in ledger.tail] == list(range(7, 71))


def test_tells_what_came_after_the_last_one_known(ledger: CarrierLedger) -> None:
    assert ledger.after(ledger.tail[1]) == ledger.tail[2:]
    assert ledger.after(ledger.tail[-1]) == ()
    shortened = replace(ledger, tail=ledger.tail[3:])
    assert shortened.after(ledger.tail[0]) == ledger.tail[3:]


@pytest.mark.parametrize("stored", [slice(0, 5), slice(2, 5)], ids=["told", "behind it"])
def test_a_fork_shows(ledger: CarrierLedger, stored: slice) -> None:
    forked = replace(ledger.tail[1], to_seq=9)
    with pytest.raises(Untrusted):
        replace(ledger, tail=ledger.tail[stored]).after(forked)


def test_a_ledger_that_went_back_shows(ledger: CarrierLedger) -> None:
    with pytest.raises(Untrusted):
        replace(ledger, tail=ledger.tail[:3]).after(ledger.tail[4])
