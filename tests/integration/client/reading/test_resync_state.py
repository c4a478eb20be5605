"""Whether a state and a hub tell one history, where they part, and what one receipt proves."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from support.broken import changed
from support.client import lying_hub, reading_support
from veen.client.log_head import LabelLogRef
from veen.client.reader import read
from veen.client.receipts import verify_receipt, verify_with_hub
from veen.client.resync import verify_state
from veen.crypto import SigningKey
from veen.digest import h
from veen.errors import Untrusted
from veen.invariants import Violation
from veen.mmr import Peaks
from veen.msg import Msg
from veen.receipt import Receipt

NAME = "record/a"
SIZE = 300


@pytest.fixture
def log(dishonest_hub: Any) -> Any:
    reading_support.fill(
        dishonest_hub, dishonest_hub.log(NAME), SIZE, reading_support.Writer(b"alice"), every=64
    )
    return dishonest_hub.log(NAME)


@pytest.fixture
def session(dishonest_hub: Any, log: Any, make_session: Callable[..., Any]) -> Any:
    result = make_session(dishonest_hub.url)
    list(read(result, dishonest_hub.labels(NAME), NAME))
    return result


def verdict(session: Any, hub: Any) -> Any:
    before = session.state
    result = verify_state(session, hub.labels(NAME), NAME)
    assert session.state == before
    return result


def test_one_history(dishonest_hub: Any, log: Any, session: Any) -> None:
    result = verdict(session, dishonest_hub)
    assert (result.consistent, result.mismatch_at, result.reason) == (True, None, None)
    assert (result.local_seq, result.local_root) == (SIZE, log.peaks.root())
    log.append(reading_support.Writer(b"bob").msg(log.label), dishonest_hub.key)
    result = verdict(session, dishonest_hub)
    assert (result.consistent, result.hub_seq, result.agrees_to) == (True, SIZE + 1, SIZE)
    assert result.hub_root == log.peaks.root()


def test_nothing_known_of_nothing_is_consistent(
    dishonest_hub: Any, make_session: Callable[..., Any]
) -> None:
    result = verdict(make_session(dishonest_hub.url), dishonest_hub)
    assert (result.consistent, result.local_seq, result.hub_seq) == (True, 0, 0)
    assert (result.local_root, result.hub_root) == (None, None)


def test_a_receipt_that_is_not_linked_yet_is_said(
    dishonest_hub: Any, log: Any, session: Any
) -> None:
    view = session.view(log.label, NAME, 0)
    ahead = replace(log.receipt(SIZE), stream_seq=SIZE + 5).signed(dishonest_hub.key)
    session.keep(log.label, view.noted(ahead))
    result = verdict(session, dishonest_hub)
    assert (result.unlinked, result.consistent) == (True, False)
    assert f"stream_seq {SIZE + 5}" in result.reason


@pytest.mark.parametrize("agreed", [0, 1, 100, 255, 256, 299])
@pytest.mark.parametrize("grown", [SIZE, 2 * SIZE])
def test_finds_where_the_histories_part_in_few_requests(
    agreed: int, grown: int, dishonest_hub: Any, log: Any, session: Any
) -> None:
    receipts = b"".join(raw for _, raw in log.pairs)
    (session.root / "receipts.cborseq").write_bytes(receipts)
    other = lying_hub.fork(dishonest_hub, NAME, agreed)
    reading_support.fill(dishonest_hub, other, grown - agreed, reading_support.Writer(b"mallory"))
    dishonest_hub.asked.clear()
    result = verdict(session, dishonest_hub)
    assert (result.consistent, result.agrees_to, result.mismatch_at) == (False, agreed, agreed + 1)
    assert len(dishonest_hub.asked) <= 4 * SIZE.bit_length() + 4


def test_without_receipts_the_peaks_tell_what_they_can(
    dishonest_hub: Any, log: Any, session: Any
) -> None:
    other = lying_hub.fork(dishonest_hub, NAME, 270)
    reading_support.fill(dishonest_hub, other, 60, reading_support.Writer(b"mallory"))
    result = verdict(session, dishonest_hub)
    assert (result.consistent, result.agrees_to, result.mismatch_at) == (False, 256, None)


def test_a_log_that_went_back_parts_after_its_end(
    dishonest_hub: Any, log: Any, session: Any
) -> None:
    (session.root / "receipts.cborseq").write_bytes(b"".join(raw for _, raw in log.pairs))
    lying_hub.fork(dishonest_hub, NAME, 200)
    result = verdict(session, dishonest_hub)
    assert (result.consistent, result.hub_seq, result.mismatch_at) == (False, 200, 201)
    assert f"stream_seq {SIZE}" in result.reason


def test_a_damaged_view_is_not_consistent(dishonest_hub: Any, log: Any, session: Any) -> None:
    view = session.view(log.label, NAME, 0)
    session.keep(log.label, replace(view, peaks=Peaks(SIZE, (h(b"x"),) * 4)))
    result = verdict(session, dishonest_hub)
    assert (result.consistent, result.mismatch_at) == (False, None)
    assert "peaks" in result.reason


@pytest.mark.parametrize("seq", [1, 2, 255, SIZE])
def test_a_receipt_holds_by_itself_and_at_the_head(
    seq: int, dishonest_hub: Any, log: Any, session: Any
) -> None:
    msg, labels = Msg.decode(log.pairs[seq - 1][0]), dishonest_hub.labels(NAME)
    alone = verify_receipt(log.receipt(seq), msg, session.hub, labels)
    assert alone.checked == ("signature", "label", "I1", "I2", "message signature") + (
        ("I3",) if seq == 1 else ()
    )
    verdict = verify_with_hub(session, log.receipt(seq), msg, LabelLogRef(labels, NAME, 0))
    assert set(verdict.checked) == {*alone.checked, "I3", "consistency", "inclusion"}
    assert verdict.head_seq == SIZE


@pytest.mark.parametrize(
    ("change", "detail"),
    [
        ({"leaf_hash": h(b"x")}, "I2 at stream_seq 7"),
        ({"label": h(b"x")}, "I12 at stream_seq 7"),
        ({"stream_seq": 1}, "I3 at stream_seq 1"),
    ],
)
def test_a_receipt_of_something_else_is_refused(
    change: dict[str, Any], detail: str, dishonest_hub: Any, log: Any, session: Any
) -> None:
    wrong = replace(log.receipt(7), **change).signed(dishonest_hub.key)
    msg = Msg.decode(log.pairs[6][0])
    with pytest.raises(Violation, match=detail):
        verify_receipt(wrong, msg, session.hub, dishonest_hub.labels(NAME))


def test_a_receipt_of_another_hub_is_refused(dishonest_hub: Any, log: Any, session: Any) -> None:
    forged = log.receipt(7).signed(SigningKey(h(b"forger")))
    with pytest.raises(Untrusted, match="not signed"):
        verify_receipt(forged, None, session.hub, None)


@pytest.mark.parametrize("field", ["ciphertext", "sig"])
def test_an_altered_message_is_refused(
    field: str, dishonest_hub: Any, log: Any, session: Any
) -> None:
    msg = Msg.decode(log.pairs[6][0])
    altered = changed(msg, **{field: bytes(len(getattr(msg, field)) - 1) + b"\x01"})
    with pytest.raises(Violation, match="stream_seq 7"):
        verify_receipt(log.receipt(7), altered, session.hub, None)


@pytest.mark.parametrize(
    ("change", "detail"),
    [
        ({"mmr_root": h(b"x")}, "I3 at stream_seq 7"),
        ({"leaf_hash": h(b"x")}, "I3 at stream_seq 7"),
    ],
)
def test_a_receipt_the_log_does_not_hold_is_refused(
    change: dict[str, Any], detail: str, dishonest_hub: Any, log: Any, session: Any
) -> None:
    wrong: Receipt = replace(log.receipt(7), **change).signed(dishonest_hub.key)
    with pytest.raises(Violation, match=detail):
        verify_with_hub(session, wrong, None, LabelLogRef(dishonest_hub.labels(NAME), NAME, 0))
