"""Reading a log that holds: every range, in bounded memory, with the view moving on."""

from __future__ import annotations

import gc
import random
import tracemalloc
from collections import deque
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from itertools import islice
from typing import Any

import pytest

from support.client import lying_hub, reading_support
from support.long_form import LONG
from veen.client.reader import open_pair, read
from veen.client.transport import HubRefused
from veen.errors import Undecryptable
from veen.invariants import ClientCursor
from veen.label import DEFAULT_PROFILE

NAME = "record/a"


def seqs(session: Any, hub: Any, **requested: Any) -> list[int]:
    return [item.receipt.stream_seq for item in read(session, hub.labels(NAME), NAME, **requested)]


def view_of(session: Any, hub: Any) -> Any:
    return session.view(hub.log(NAME).label, NAME, 0)


def test_reads_what_the_log_holds_byte_by_byte(
    dishonest_hub: Any, make_session: Callable[..., Any]
) -> None:
    reading_support.fill(dishonest_hub, dishonest_hub.log(NAME), 25)
    result = read(
        make_session(dishonest_hub.url),
        dishonest_hub.labels(NAME),
        NAME,
        page_items=7,
        with_proof=True,
    )
    assert [(item.msg.encode(), item.receipt.encode()) for item in result] == dishonest_hub.log(
        NAME
    ).pairs


@pytest.mark.parametrize("seed", range(8))
def test_any_ranges_in_any_order_equal_the_log(
    dishonest_hub: Any, make_session: Callable[..., Any], seed: int
) -> None:
    chance = random.Random(seed)
    log, session = dishonest_hub.log(NAME), make_session(dishonest_hub.url)
    writers = [reading_support.Writer(b"alice"), reading_support.Writer(b"bob")]
    for _ in range(60 if LONG else 12):
        reading_support.fill(dishonest_hub, log, chance.randrange(12), *writers)
        size = log.peaks.size
        first = chance.randrange(0, size + 4)
        last = chance.choice([None, chance.randrange(0, size + 6)])
        expected = {
            "from_seq": first,
            "to_seq": last,
            "with_proof": chance.random() < 0.5,
            "page_items": chance.randrange(1, 9),
        }
        due = range(max(first, 1), min(size, size if last is None else last) + 1)
        before = view_of(session, dishonest_hub).peaks.size
        assert seqs(session, dishonest_hub, **expected) == list(due)
        after = view_of(session, dishonest_hub)
        after.verify()
        reached = due[-1] if due and due[0] <= before + 1 else 0
        assert after.peaks.size == max(before, reached)


def test_the_view_and_own_cursors_survive_on_disk(
    dishonest_hub: Any, make_session: Callable[..., Any]
) -> None:
    own = reading_support.an_identity(rotations=1)
    me = reading_support.Writer(b"me", key=own.client)
    reading_support.fill(
        dishonest_hub, dishonest_hub.log(NAME), 9, me, reading_support.Writer(b"other")
    )
    assert seqs(make_session(dishonest_hub.url, identity=own), dishonest_hub, page_items=4) == list(
        range(1, 10)
    )
    view = view_of(make_session(dishonest_hub.url, identity=own), dishonest_hub)
    assert (view.peaks, view.head) == (
        dishonest_hub.log(NAME).peaks,
        dishonest_hub.log(NAME).receipt(9),
    )
    assert view.cursors == {own.client_id: ClientCursor(5, 8)}


def test_cursors_of_a_retired_client_id_are_learnt_too(
    dishonest_hub: Any, make_session: Callable[..., Any]
) -> None:
    before, after = reading_support.an_identity(), reading_support.an_identity(rotations=1)
    reading_support.fill(
        dishonest_hub, dishonest_hub.log(NAME), 3, reading_support.Writer(b"me", key=before.client)
    )
    session = make_session(dishonest_hub.url, identity=after)
    seqs(session, dishonest_hub)
    assert view_of(session, dishonest_hub).cursors == {before.client_id: ClientCursor(3, 2)}


def test_a_range_that_leaves_a_gap_does_not_move_the_view(
    dishonest_hub: Any, make_session: Callable[..., Any]
) -> None:
    reading_support.fill(dishonest_hub, dishonest_hub.log(NAME), 10)
    session = make_session(dishonest_hub.url)
    assert seqs(session, dishonest_hub, from_seq=5) == [5, 6, 7, 8, 9, 10]
    assert view_of(session, dishonest_hub).peaks.size == 0
    assert seqs(session, dishonest_hub, to_seq=3) == [1, 2, 3]
    assert view_of(session, dishonest_hub).peaks.size == 3


def test_a_stream_nobody_wrote_to_is_empty(
    dishonest_hub: Any, make_session: Callable[..., Any]
) -> None:
    assert seqs(make_session(dishonest_hub.url), dishonest_hub) == []


def test_entries_taken_away_by_retention_are_refused_not_skipped(
    dishonest_hub: Any, make_session: Callable[..., Any]
) -> None:
    reading_support.fill(dishonest_hub, dishonest_hub.log(NAME), 10)
    dishonest_hub.log(NAME).pruned = 4
    with pytest.raises(HubRefused):
        seqs(make_session(dishonest_hub.url), dishonest_hub)
    assert seqs(make_session(dishonest_hub.url), dishonest_hub, from_seq=5) == [5, 6, 7, 8, 9, 10]


def test_a_hub_may_change_its_key_while_we_read(
    dishonest_hub: Any, make_session: Callable[..., Any]
) -> None:
    log, alice = dishonest_hub.log(NAME), reading_support.Writer(b"alice")
    reading_support.fill(dishonest_hub, log, 3, alice)
    session = make_session(dishonest_hub.url)
    pairs = read(session, dishonest_hub.labels(NAME), NAME, page_items=2)
    assert len(list(islice(pairs, 3))) == 3
    dishonest_hub.rotate(b"second key", lying_hub.NOON + 10)
    log.hub_ts = lying_hub.NOON + 11
    reading_support.fill(dishonest_hub, log, 3, alice)
    assert seqs(session, dishonest_hub) == [1, 2, 3, 4, 5, 6]
    assert len(session.hub.hub_keys) == 2


def test_opens_with_whichever_key_it_was_sealed_to(
    dishonest_hub: Any, make_session: Callable[..., Any]
) -> None:
    old, new = reading_support.an_identity(), reading_support.an_identity(rotations=1)
    log, alice = dishonest_hub.log(NAME), reading_support.Writer(b"alice")
    for number, card in enumerate((old.card, new.card, old.card)):
        to = card.prekeys[0].prekey
        log.append(alice.msg(log.label, body=b"body %d" % number, recipient=to), dishonest_hub.key)
    session = make_session(dishonest_hub.url, identity=new)
    result = read(session, dishonest_hub.labels(NAME), NAME)
    bodies = [open_pair(session, item, DEFAULT_PROFILE).body for item in result]
    assert bodies == [b"body 0", b"body 1", b"body 2"]


def test_what_is_sealed_to_another_names_its_place(
    dishonest_hub: Any, make_session: Callable[..., Any]
) -> None:
    log, alice = dishonest_hub.log(NAME), reading_support.Writer(b"alice")
    to = reading_support.an_identity(b"somebody else").card.prekeys[0].prekey
    log.append(alice.msg(log.label, body=b"x", recipient=to), dishonest_hub.key)
    session = make_session(dishonest_hub.url)
    (pair,) = read(session, dishonest_hub.labels(NAME), NAME)
    with pytest.raises(Undecryptable, match=f"stream_seq 1 of label {log.label.hex()}"):
        open_pair(session, pair, DEFAULT_PROFILE)


def test_memory_does_not_grow_with_the_log(
    dishonest_hub: Any, make_session: Callable[..., Any]
) -> None:
    def peak(name: str) -> int:
        session = make_session(dishonest_hub.url, name)
        gc.collect()
        tracemalloc.start()
        try:
            deque(read(session, dishonest_hub.labels(NAME), NAME, page_items=200), maxlen=0)
            return tracemalloc.get_traced_memory()[1]
        finally:
            tracemalloc.stop()

    log, writer = dishonest_hub.log(NAME), reading_support.Writer(b"alice")
    reading_support.fill(dishonest_hub, log, 2_000, writer)
    peak("warm")
    small = peak("small")
    reading_support.fill(dishonest_hub, log, 18_000, writer)
    large = peak("large")
    assert log.peaks.size == 20_000
    assert large < 1.5 * small + 200_000


def test_a_reader_does_not_take_back_what_a_sender_remembers_meanwhile(
    dishonest_hub: Any, make_session: Callable[..., Any]
) -> None:
    """Two threads move one view: one by reading, one as a sender does after each answer."""
    log, alice = dishonest_hub.log(NAME), reading_support.Writer(b"alice")
    reading_support.fill(dishonest_hub, log, 300, alice)
    session = make_session(dishonest_hub.url)
    me = session.identity.client_id
    stored = 0

    def send() -> None:
        nonlocal stored
        while not reader.done():
            with session.moving:
                view = view_of(session, dishonest_hub)
                stored += 1
                session.keep(log.label, view.with_cursor(me, ClientCursor(stored, 0)))
            assert view_of(session, dishonest_hub).cursor(me).client_seq == stored

    with ThreadPoolExecutor(1) as pool:
        reader = pool.submit(seqs, session, dishonest_hub, page_items=3)
        send()
    assert reader.result() == list(range(1, 301))
    view = view_of(session, dishonest_hub)
    assert (view.peaks, view.cursor(me).client_seq) == (log.peaks, stored)
