"""What a client knows of a label moves only along one history."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from veen import mmr
from veen.client.session import LabelView
from veen.digest import h
from veen.errors import Untrusted
from veen.invariants import NEW_CLIENT, ClientCursor
from veen.mmr import EMPTY, Peaks
from veen.proofs import RangeProof, consistency
from veen.receipt import Receipt

VIEW = LabelView(hub_id=bytes(32), stream="record/a", epoch=0)
LABEL = b"l" * 32


class History:
    """A label's leaves and nodes; ``fork`` names one of its histories."""

    def __init__(self, size: int, fork: bytes = b"") -> None:
        self.peaks, self._nodes, self.receipts = EMPTY, list[bytes](), list[Receipt]()
        for seq in range(1, size + 1):
            leaf = h(b"%d" % seq + fork)
            self.peaks, completed = mmr.grow(self.peaks, leaf)
            self._nodes += completed
            self.receipts.append(
                Receipt(
                    label=LABEL,
                    stream_seq=seq,
                    leaf_hash=leaf,
                    mmr_root=self.peaks.root(),
                    hub_ts=1,
                )
            )

    def node(self, height: int, index: int) -> bytes:
        return self._nodes[mmr.position(height, index)]

    def proof(self, old: int, new: int) -> RangeProof:
        return consistency(self, old, new)

    def view(self, size: int) -> LabelView:
        if size == 0:
            return VIEW
        return replace(VIEW, peaks=mmr.peaks_at(self, size), head=self.receipts[size - 1])


HISTORY, OTHER = History(70), History(70, b"other")


@given(st.integers(0, 69))
def test_the_next_entry_moves_the_view(size: int) -> None:
    moved = HISTORY.view(size).appended(HISTORY.receipts[size])
    assert moved == HISTORY.view(size + 1)
    moved.verify()


@given(st.integers(0, 60), st.integers(2, 10))
def test_a_later_entry_moves_the_view_by_a_proof(size: int, ahead: int) -> None:
    receipt = HISTORY.receipts[size + ahead - 1]
    moved = HISTORY.view(size).linked(HISTORY.proof(size, size + ahead - 1), receipt)
    assert moved == HISTORY.view(size + ahead)


@given(st.integers(1, 60), st.integers(2, 10))
def test_another_history_is_refused_with_or_without_its_own_proof(size: int, ahead: int) -> None:
    view, receipt = HISTORY.view(size), OTHER.receipts[size + ahead - 1]
    with pytest.raises(Untrusted):
        view.appended(OTHER.receipts[size])
    for history in (HISTORY, OTHER):
        with pytest.raises(Untrusted):
            view.linked(history.proof(size, size + ahead - 1), receipt)


@given(st.integers(1, 50), st.integers(0, 59), st.integers(0, 9))
def test_a_proof_of_other_sizes_is_refused(size: int, old: int, ahead: int) -> None:
    new = old + ahead
    receipt = HISTORY.receipts[size + 9]
    if (old, new) == (size, size + 9):
        return
    with pytest.raises(Untrusted, match="expected a consistency proof from"):
        HISTORY.view(size).linked(HISTORY.proof(old, new), receipt)


@pytest.mark.parametrize("seq", [1, 4, 5, 7, 8])
def test_an_entry_that_does_not_follow_is_refused(seq: int) -> None:
    with pytest.raises(Untrusted, match="expected the receipt after 5"):
        HISTORY.view(5).appended(HISTORY.receipts[seq - 1])


def test_what_is_noted_counts_as_seen_until_it_is_passed() -> None:
    view = HISTORY.view(3).noted(HISTORY.receipts[5])
    assert (view.seen, view.peaks.size) == (6, 3)
    between = view.appended(HISTORY.receipts[3])
    assert (between.seen, between.unlinked) == (6, HISTORY.receipts[5])
    passed = between.linked(HISTORY.proof(4, 6), HISTORY.receipts[6])
    assert (passed.seen, passed.unlinked) == (7, None)


def test_a_client_without_a_place_is_new() -> None:
    assert VIEW.cursor(b"c" * 32) == NEW_CLIENT
    moved = VIEW.with_cursor(b"c" * 32, ClientCursor(4, 2))
    assert (moved.cursor(b"c" * 32), VIEW.cursors) == (ClientCursor(4, 2), {})


@pytest.mark.parametrize(
    "damaged",
    [
        replace(HISTORY.view(5), head=None),
        replace(HISTORY.view(5), head=HISTORY.receipts[3]),
        replace(HISTORY.view(5), peaks=OTHER.view(5).peaks),
        replace(HISTORY.view(5), peaks=EMPTY),
        replace(VIEW, peaks=Peaks(1, (bytes(32),))),
    ],
)
def test_a_view_that_its_receipt_does_not_bear_out_is_refused(damaged: LabelView) -> None:
    with pytest.raises(Untrusted):
        damaged.verify()
    HISTORY.view(5).verify()
    VIEW.verify()
