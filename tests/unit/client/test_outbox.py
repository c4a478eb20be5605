"""The outbox: what it holds survives, in order, encrypted, and only as much as it may."""

from __future__ import annotations

import contextlib
import os
import sqlite3
import stat
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from veen.client.outbox import SCHEMA, BadOutbox, Bounds, Late, Note, Outbox, OutboxFull
from veen.client.queued import InFlight, MessageTemplate, QueueCipher, QueuedMessage, SubmitAttempt
from veen.errors import Malformed
from veen.label import DEFAULT_PROFILE, Profile
from veen.payload import PayloadHdr
from veen.receipt import Receipt

HUB, KEY, ALL, MUCH = bytes(32), b"k" * 32, 1 << 62, 1 << 30
FORM = MessageTemplate(
    stream="record/a",
    profile=DEFAULT_PROFILE,
    recipient=b"r" * 32,
    header=PayloadHdr(schema=b"s" * 32),
)
QUEUE = FORM.queue(HUB)
SECRET = b"a body nobody may read"


@pytest.fixture
def open_outbox(tmp_path: Path) -> Iterator[Callable[..., Outbox]]:
    with ExitStack() as closing:

        def make(key: bytes = KEY, **more: Any) -> Outbox:
            outbox = Outbox(tmp_path / "outbox.sqlite", key, os.urandom, **more)
            return closing.enter_context(contextlib.closing(outbox))

        yield make


def drafts(count: int, form: MessageTemplate = FORM) -> list[QueuedMessage]:
    return [QueuedMessage(form, b"%d" % number) for number in range(count)]


def an_attempt(event_id: int, seq: int, **more: Any) -> SubmitAttempt:
    usual: dict[str, Any] = {
        "event_id": event_id, "label": b"l" * 32, "epoch": 0, "client_id": b"c" * 32,
        "client_seq": seq, "prev_ack": 0, "auth_ref": None, "leaf": os.urandom(32), "coids": b"",
        "msg": b"msg",
    }  # fmt: skip
    return SubmitAttempt(**(usual | more))


def a_receipt(attempt: SubmitAttempt) -> Receipt:
    return Receipt(
        label=attempt.label, stream_seq=1, leaf_hash=attempt.leaf, mmr_root=attempt.leaf, hub_ts=1
    )


def waiting(outbox: Outbox, queue: bytes = QUEUE) -> list[int]:
    return [event_id for event_id, _ in outbox.waiting(queue, 0, ALL, 100, MUCH)]


def test_events_are_there_again_after_an_end_without_goodbye(
    open_outbox: Callable[..., Outbox],
) -> None:
    first = open_outbox()
    full = QueuedMessage(
        replace(FORM, auth_ref=b"a" * 32, profile=Profile(epoch_sec=9)), b"body", (b"x", b"")
    )
    first.add(HUB, [full])
    second = open_outbox()
    assert second.message(1) == full
    assert second.pending(HUB) == 1
    assert second.pending(b"another hub") == 0


def test_numbers_grow_and_are_never_given_twice(open_outbox: Callable[..., Outbox]) -> None:
    outbox = open_outbox()
    assert outbox.add(HUB, drafts(3)) == [1, 2, 3]
    assert outbox.withdraw([1, 2, 3])
    assert open_outbox().add(HUB, drafts(1)) == [4]


def test_nothing_in_the_clear_reaches_the_disk(
    open_outbox: Callable[..., Outbox], tmp_path: Path
) -> None:
    outbox = open_outbox()
    outbox.add(HUB, [QueuedMessage(FORM, SECRET, (SECRET,))])
    for path in tmp_path.iterdir():
        assert SECRET not in path.read_bytes()
        assert b"record/a" not in path.read_bytes()
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert len(list(tmp_path.iterdir())) == 3


def test_an_event_opens_with_its_key_and_under_its_number_only(
    open_outbox: Callable[..., Outbox], tmp_path: Path
) -> None:
    open_outbox().add(HUB, drafts(2))
    with pytest.raises(BadOutbox, match="event 1 is damaged"):
        open_outbox(b"x" * 32).message(1)
    with sqlite3.connect(tmp_path / "outbox.sqlite") as db:
        db.execute("UPDATE events SET id = id + 10")
    db.close()
    with pytest.raises(BadOutbox, match="event 11 is damaged"):
        open_outbox().message(11)


def test_a_file_that_is_no_outbox_is_named(
    open_outbox: Callable[..., Outbox], tmp_path: Path
) -> None:
    (tmp_path / "outbox.sqlite").write_bytes(b"not a database, but long enough to be taken for one")
    with pytest.raises(BadOutbox, match=r"outbox\.sqlite"):
        open_outbox()


def test_an_outbox_of_a_later_version_is_left_alone(
    open_outbox: Callable[..., Outbox], tmp_path: Path
) -> None:
    open_outbox().close()
    with sqlite3.connect(tmp_path / "outbox.sqlite") as db:
        db.execute(f"PRAGMA user_version = {SCHEMA.version + 1}")
    db.close()
    with pytest.raises(BadOutbox, match=f"version {SCHEMA.version + 1}"):
        open_outbox()


# The tables of version 2; version 1 had no notes.
SECOND = """
DROP INDEX event_queue; DROP INDEX attempt_slot; DROP INDEX attempt_event;
ALTER TABLE events RENAME COLUMN queue TO lane;
ALTER TABLE attempts RENAME TO flights;
CREATE INDEX event_lane ON events (lane, id);
CREATE INDEX flight_slot ON flights (label, client_id, client_seq);
CREATE INDEX flight_event ON flights (event);
"""


@pytest.mark.parametrize(
    "earlier",
    [
        pytest.param(f"{SECOND} DROP TABLE notes; PRAGMA user_version = 1", id="version 1"),
        pytest.param(f"{SECOND} PRAGMA user_version = 2", id="version 2"),
    ],
)
def test_an_outbox_of_an_earlier_version_is_migrated_with_its_events(
    earlier: str, open_outbox: Callable[..., Outbox], tmp_path: Path
) -> None:
    outbox = open_outbox()
    outbox.add(HUB, drafts(2))
    attempts = an_attempt(1, 1), an_attempt(1, 1, auth_ref=b"a" * 32)
    outbox.journal(attempts)
    outbox.close()
    with sqlite3.connect(tmp_path / "outbox.sqlite") as db:
        db.executescript(earlier)
    db.close()
    outbox = open_outbox()
    assert outbox.pending(HUB) == 2
    assert (outbox.slots(QUEUE, ALL, 9), waiting(outbox)) == ([InFlight(attempts)], [2])
    assert len(outbox.queues(HUB)) == 1
    outbox.add(HUB, drafts(1), Note("place", b"3"))
    outbox.close()
    assert open_outbox().note("place") == b"3"


def test_a_migration_that_fails_changes_nothing_and_runs_again(
    open_outbox: Callable[..., Outbox], tmp_path: Path
) -> None:
    outbox = open_outbox()
    outbox.add(HUB, drafts(1))
    attempt = an_attempt(1, 1)
    outbox.journal([attempt])
    outbox.close()
    file = tmp_path / "outbox.sqlite"
    # The last statement of the migration fails on this index.
    taken = "CREATE INDEX attempt_event ON events (hub)"
    with contextlib.closing(sqlite3.connect(file)) as db:
        db.executescript(f"{SECOND} {taken}; PRAGMA user_version = 2")
        before = db.execute("SELECT * FROM sqlite_schema ORDER BY name").fetchall()
    with pytest.raises(BadOutbox, match="attempt_event"):
        open_outbox()
    with contextlib.closing(sqlite3.connect(file)) as db:
        assert db.execute("PRAGMA user_version").fetchone() == (2,)
        assert db.execute("SELECT * FROM sqlite_schema ORDER BY name").fetchall() == before
        db.execute("DROP INDEX attempt_event")
    assert open_outbox().slots(QUEUE, ALL, 9) == [InFlight((attempt,))]


def test_a_note_is_kept_with_its_events_or_not_at_all(open_outbox: Callable[..., Outbox]) -> None:
    outbox = open_outbox(bounds=Bounds(max_events=2))
    assert outbox.note("place") is None
    outbox.add(HUB, drafts(2), Note("place", b"first"))
    with pytest.raises(OutboxFull):
        outbox.add(HUB, drafts(1), Note("place", b"second"))
    assert (outbox.note("place"), outbox.note("another")) == (b"first", None)
    outbox.add(HUB, [], Note("place", b"third"))
    assert outbox.note("place") == b"third"


@pytest.mark.parametrize("bounds", [Bounds(max_events=3), Bounds(max_bytes=800)])
def test_a_full_outbox_takes_all_or_nothing(
    bounds: Bounds, open_outbox: Callable[..., Outbox]
) -> None:
    outbox = open_outbox(bounds=bounds)
    outbox.add(HUB, drafts(2))
    with pytest.raises(OutboxFull, match="may hold"):
        outbox.add(HUB, drafts(2))
    assert outbox.pending(HUB) == 2
    outbox = open_outbox(bounds=bounds)
    with pytest.raises(OutboxFull):
        outbox.add(HUB, drafts(2))
    outbox.journal([an_attempt(1, 1)])
    outbox.settle([InFlight((an_attempt(1, 1),))])
    assert outbox.add(HUB, drafts(2)) == [3, 4]


def test_queues_separate_what_is_ordered_apart(open_outbox: Callable[..., Outbox]) -> None:
    outbox = open_outbox()
    forms = [FORM, replace(FORM, stream="record/b"), replace(FORM, profile=Profile(pad_block=9))]
    for form in (*forms, *reversed(forms)):
        outbox.add(HUB, drafts(1, form))
    assert [queue.template for queue in outbox.queues(HUB)] == forms
    assert [waiting(outbox, form.queue(HUB)) for form in forms] == [[1, 6], [2, 5], [3, 4]]
    assert outbox.queues(b"another hub") == []


def test_a_portion_has_a_bound_but_is_never_empty(open_outbox: Callable[..., Outbox]) -> None:
    outbox = open_outbox()
    outbox.add(HUB, [QueuedMessage(FORM, bytes(1_000)) for _ in range(5)])
    assert [len(outbox.waiting(QUEUE, 0, ALL, 3, size)) for size in (1, 2_600, MUCH)] == [1, 2, 3]
    assert [item for item, _ in outbox.waiting(QUEUE, 2, 4, 9, MUCH)] == [3, 4]


def test_submitted_messages_come_back_with_every_attempt_in_order(
    open_outbox: Callable[..., Outbox],
) -> None:
    outbox = open_outbox()
    outbox.add(HUB, drafts(3))
    attempts = [an_attempt(1, 1), an_attempt(2, 2), an_attempt(1, 1, auth_ref=b"a" * 32)]
    outbox.journal(attempts)
    outbox = open_outbox()
    assert outbox.slots(QUEUE, ALL, 10) == [
        InFlight((attempts[0], attempts[2])), InFlight((attempts[1],)),
    ]  # fmt: skip
    assert outbox.slots(QUEUE, 1, 10) == outbox.slots(QUEUE, ALL, 1)
    assert waiting(outbox) == [3]
    assert outbox.last_seq(b"l" * 32, b"c" * 32) == 2


def test_a_settled_place_takes_its_event_with_it(open_outbox: Callable[..., Outbox]) -> None:
    outbox = open_outbox()
    outbox.add(HUB, drafts(2))
    slots = [InFlight((an_attempt(item, item), an_attempt(item, item))) for item in (1, 2)]
    for slot in slots:
        outbox.journal(slot.attempts)
    outbox.settle(slots[:1])
    assert [slot.current.event_id for slot in outbox.slots(QUEUE, ALL, 9)] == [2]
    assert (outbox.pending(HUB), waiting(outbox)) == (1, [])


def test_a_withdrawn_event_leaves_its_attempts_behind(open_outbox: Callable[..., Outbox]) -> None:
    outbox = open_outbox()
    outbox.add(HUB, drafts(2))
    attempts = [an_attempt(1, 1), an_attempt(2, 2)]
    outbox.journal(attempts)
    assert not outbox.withdraw([1]), "its place would stay empty before one that may be taken"
    assert outbox.withdraw([2])
    assert outbox.withdraw([1])
    assert outbox.withdrawn(b"l" * 32, b"c" * 32) == [
        replace(attempt, withdrawn=True) for attempt in attempts
    ]
    assert (outbox.pending(HUB), outbox.slots(QUEUE, ALL, 9)) == (0, [])
    assert outbox.last_seq(b"l" * 32, b"c" * 32) == 0


def test_a_late_acknowledgement_is_remembered_and_the_queue_waits_for_other_places(
    open_outbox: Callable[..., Outbox],
) -> None:
    outbox = open_outbox()
    outbox.add(HUB, drafts(1))
    old = an_attempt(1, 1)
    outbox.journal([old])
    outbox.withdraw([1])
    outbox.add(HUB, drafts(2))
    outbox.journal([an_attempt(2, 1), an_attempt(3, 2)])
    (slot, _) = outbox.slots(QUEUE, ALL, 9)
    assert slot.is_shared
    late = Late(1, a_receipt(old))
    outbox.settle_late(slot, late, QUEUE)
    assert (open_outbox().late(), waiting(outbox)) == ([late], [2, 3])
    assert outbox.withdrawn(b"l" * 32, b"c" * 32) == []


@settings(max_examples=50)
@given(
    st.lists(st.tuples(st.binary(max_size=300), st.lists(st.binary(max_size=9), max_size=3))),
)
def test_drafts_come_back_as_they_went(contents: list[tuple[bytes, list[bytes]]]) -> None:
    reader = QueueCipher(KEY, os.urandom)
    for number, (body, attachments) in enumerate(contents):
        form = replace(FORM, stream="ab"[number % 2])
        draft = QueuedMessage(form, body, tuple(attachments))
        assert reader.decode(draft.encode()) == draft


@pytest.mark.parametrize(
    "raw",
    [b"", FORM.encode(), FORM.encode() + b"\x80", QueuedMessage(FORM, b"x").encode() + b"\x00"],
)
def test_what_is_no_draft_is_refused(raw: bytes) -> None:
    with pytest.raises(Malformed):
        QueueCipher(KEY, os.urandom).decode(raw)
