"""A client that fell behind, lost its state or finds it damaged comes back to the log."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from support.client import lying_hub, reading_support
from veen.checkpoint import Checkpoint
from veen.client.reader import read
from veen.client.receipts import cbor_items
from veen.client.resync import Was, resync
from veen.client.session import Session
from veen.client.transport import Fork
from veen.digest import h
from veen.errors import Untrusted
from veen.invariants import ClientCursor
from veen.mmr import Peaks
from veen.receipt import Receipt
from veen.wire.api import CheckpointRangeResponse

NAME = "record/a"


@pytest.fixture
def me() -> Any:
    return reading_support.Writer(b"me", key=reading_support.an_identity().client)


@pytest.fixture
def log(dishonest_hub: Any, me: Any) -> Any:
    """23 entries, every other one our own, a checkpoint after each fourth."""
    reading_support.fill(
        dishonest_hub, dishonest_hub.log(NAME), 23, me, reading_support.Writer(b"other"), every=4
    )
    return dishonest_hub.log(NAME)


@pytest.fixture
def session(dishonest_hub: Any, log: Any, make_session: Callable[..., Any]) -> Any:
    return make_session(dishonest_hub.url)


def synced(session: Session, hub: Any) -> Any:
    return resync(session, hub.labels(NAME), NAME)


def view_of(session: Session, log: Any) -> Any:
    return session.view(log.label, NAME, 0)


def receipts(session: Session) -> list[Receipt]:
    return [item for _, item in cbor_items(session.root / "receipts.cborseq", Receipt)]


def test_a_resync_tells_how_far_it_has_come(dishonest_hub: Any, log: Any, session: Any) -> None:
    detail: list[tuple[int, int | None]] = []
    resync(
        session, dishonest_hub.labels(NAME), NAME, progress=lambda *how_far: detail.append(how_far)
    )
    assert detail == sorted(detail)
    assert detail[-1] == (23, 23)


def test_a_lost_view_is_replayed_from_the_start(dishonest_hub: Any, log: Any, session: Any) -> None:
    done = synced(session, dishonest_hub)
    assert (done.was, done.from_size, done.to_size, done.replayed) == (Was.LOST, 0, 23, 23)
    assert (done.first_seq, done.checkpoints_checked) == (1, 5)
    view = view_of(session, log)
    assert (view.peaks, view.head) == (log.peaks, log.receipt(23))
    assert view.cursors == {session.identity.client_id: ClientCursor(12, 22)}
    assert receipts(session) == [log.receipt(seq) for seq in range(1, 24, 2)]


def test_a_view_that_is_behind_is_carried_on(dishonest_hub: Any, log: Any, session: Any) -> None:
    list(read(session, dishonest_hub.labels(NAME), NAME, to_seq=10))
    done = synced(session, dishonest_hub)
    assert (done.was, done.from_size, done.to_size, done.replayed) == (Was.BEHIND, 10, 23, 13)
    assert done.checkpoints_checked == 3
    assert synced(session, dishonest_hub).was is Was.CURRENT


def test_a_label_without_entries_is_current(
    dishonest_hub: Any, make_session: Callable[..., Any]
) -> None:
    done = synced(make_session(dishonest_hub.url), dishonest_hub)
    assert (done.was, done.to_size, done.replayed) == (Was.CURRENT, 0, 0)


@pytest.mark.parametrize(
    "damage",
    [
        lambda view: replace(view, peaks=Peaks(view.peaks.size, (h(b"x"),) * 4)),
        lambda view: replace(view, peaks=Peaks(7, (h(b"x"),) * 3)),
        lambda view: replace(view, head=None),
        lambda view: replace(view, head=replace(view.head, hub_sig=bytes(64))),
        lambda view: replace(view, unlinked=replace(view.head, stream_seq=30)),
    ],
)
def test_a_damaged_view_is_made_again(
    damage: Any, dishonest_hub: Any, log: Any, session: Any
) -> None:
    synced(session, dishonest_hub)
    good = view_of(session, log)
    wrong = replace(damage(good), cursors={session.identity.client_id: ClientCursor(99, 9)})
    session.keep(log.label, wrong)
    done = synced(session, dishonest_hub)
    assert (done.was, done.from_size, done.to_size) == (Was.DAMAGED, 0, 23)
    assert view_of(session, log) == good


def test_a_receipt_in_a_damaged_view_still_counts(
    dishonest_hub: Any, log: Any, session: Any
) -> None:
    synced(session, dishonest_hub)
    view = view_of(session, log)
    session.keep(log.label, replace(view, peaks=Peaks(23, (h(b"x"),) * 4)))
    reading_support.fill(
        dishonest_hub,
        lying_hub.fork(dishonest_hub, NAME, 9),
        20,
        reading_support.Writer(b"mallory"),
    )
    with pytest.raises(Fork):
        synced(session, dishonest_hub)


@pytest.mark.parametrize("grown", [14, 15, 40])
def test_another_history_is_a_fork_and_the_state_stays(
    grown: int, dishonest_hub: Any, session: Any
) -> None:
    synced(session, dishonest_hub)
    before = session.state
    reading_support.fill(
        dishonest_hub,
        lying_hub.fork(dishonest_hub, NAME, 9),
        grown,
        reading_support.Writer(b"mallory"),
    )
    with pytest.raises(Fork) as caught:
        synced(session, dishonest_hub)
    assert caught.value.evidence.exists()
    assert session.state == before


def test_a_log_that_went_back_is_refused_and_the_state_stays(
    dishonest_hub: Any, session: Any
) -> None:
    synced(session, dishonest_hub)
    before = session.state
    lying_hub.fork(dishonest_hub, NAME, 9)
    with pytest.raises(Untrusted, match="stream_seq 23"):
        synced(session, dishonest_hub)
    assert session.state == before


def test_an_unlinked_receipt_is_linked_when_the_log_holds_it(
    dishonest_hub: Any, log: Any, session: Any
) -> None:
    list(read(session, dishonest_hub.labels(NAME), NAME, to_seq=3))
    session.keep(log.label, view_of(session, log).noted(log.receipt(11)))
    assert synced(session, dishonest_hub).was is Was.BEHIND
    assert view_of(session, log).unlinked is None


def test_a_resync_that_is_cut_short_goes_on_where_it_was(
    dishonest_hub: Any, log: Any, session: Any
) -> None:
    dishonest_hub.lie = lambda path, asked, answer: (
        replace(answer, items=answer.items[:4], next_cursor=asked.from_seq + 4)
        if path == "/v1/stream" and asked.from_seq < 9
        else b"\x00" if path == "/v1/stream" else answer
    )  # fmt: skip
    with pytest.raises(ValueError, match="byte 0"):
        synced(session, dishonest_hub)
    assert view_of(session, log).peaks.size == 8
    dishonest_hub.lie = None
    done = synced(session, dishonest_hub)
    assert (done.was, done.from_size, done.replayed) == (Was.BEHIND, 8, 15)


def wrong_checkpoint(hub: Any, **changes: Any) -> Any:
    """A lie about the checkpoint at 8."""

    def change(checkpoint: Checkpoint) -> Checkpoint:
        return (
            replace(checkpoint, **changes).signed(hub.key)
            if checkpoint.upto_seq == 8
            else checkpoint
        )

    def lie(path: str, _: Any, answer: Any) -> Any:
        if not isinstance(answer, CheckpointRangeResponse):
            return answer
        return replace(answer, checkpoints=tuple(map(change, answer.checkpoints)))

    return lie


@pytest.mark.parametrize(
    ("changes", "detail"),
    [
        ({"mmr_root": h(b"x")}, "stream_seq 8: the hub signed another root"),
        ({"label_curr": h(b"x")}, "stream_seq 8: the checkpoint belongs to another label"),
        ({"label_prev": h(b"x")}, "label_prev"),
        ({"epoch": 7}, "label_curr"),
        ({"upto_seq": 3}, "stream_seq 3: the checkpoint is out of order"),
    ],
)
def test_a_checkpoint_that_does_not_fit_is_refused(
    changes: dict[str, Any], detail: str, dishonest_hub: Any, session: Any
) -> None:
    dishonest_hub.lie = wrong_checkpoint(dishonest_hub, **changes)
    with pytest.raises(Untrusted, match=detail):
        synced(session, dishonest_hub)


def test_a_checkpoint_nobody_signed_is_refused(dishonest_hub: Any, log: Any, session: Any) -> None:
    log.checkpoints[1] = replace(log.checkpoints[1], hub_sig=bytes(64))
    with pytest.raises(Untrusted, match="checkpoint 8 is not signed"):
        synced(session, dishonest_hub)


@pytest.mark.parametrize("gone", [8, 9])
def test_what_retention_took_away_is_tied_to_what_is_left(
    gone: int, dishonest_hub: Any, log: Any, session: Any
) -> None:
    log.pruned = gone
    done = synced(session, dishonest_hub)
    assert (done.was, done.first_seq, done.replayed) == (Was.LOST, gone + 1, 23 - gone)
    view = view_of(session, log)
    assert (view.peaks, view.head) == (log.peaks, log.receipt(23))
    assert view.cursors == {session.identity.client_id: ClientCursor(12, 22)}
    assert synced(session, dishonest_hub).was is Was.CURRENT


def test_a_view_within_what_was_taken_away_is_carried_over_it(
    dishonest_hub: Any, log: Any, session: Any
) -> None:
    list(read(session, dishonest_hub.labels(NAME), NAME, to_seq=3))
    session.keep(log.label, view_of(session, log).noted(log.receipt(5)))
    log.pruned = 8
    done = synced(session, dishonest_hub)
    assert (done.was, done.from_size, done.first_seq, done.to_size) == (Was.BEHIND, 3, 9, 23)
    assert view_of(session, log).unlinked is None


def test_a_receipt_of_ours_in_what_was_taken_away_must_lead_to_the_rest(
    dishonest_hub: Any, log: Any, session: Any
) -> None:
    list(read(session, dishonest_hub.labels(NAME), NAME, to_seq=3))
    wrong = replace(log.receipt(5), mmr_root=h(b"x")).signed(dishonest_hub.key)
    session.keep(log.label, view_of(session, log).noted(wrong))
    log.pruned = 8
    before = session.state
    with pytest.raises(Untrusted):
        synced(session, dishonest_hub)
    assert session.state == before


def test_a_checkpoint_before_what_is_left_must_lead_to_it(
    dishonest_hub: Any, log: Any, session: Any
) -> None:
    log.pruned = 8
    log.checkpoints[1] = replace(log.checkpoints[1], mmr_root=h(b"x")).signed(dishonest_hub.key)
    with pytest.raises(Untrusted, match="known root at size"):
        synced(session, dishonest_hub)


def test_other_receipts_stay_when_those_of_a_label_are_made_again(
    dishonest_hub: Any, log: Any, session: Any
) -> None:
    foreign = replace(log.receipt(1), label=h(b"another label")).signed(dishonest_hub.key)
    stale = replace(log.receipt(4), leaf_hash=h(b"stale"))
    path = session.root / "receipts.cborseq"
    path.write_bytes(foreign.encode() + stale.encode() + log.receipt(1).encode()[:50])
    synced(session, dishonest_hub)
    assert receipts(session) == [*(log.receipt(seq) for seq in range(1, 24, 2)), foreign]
    assert path.stat().st_mode & 0o777 == 0o600
