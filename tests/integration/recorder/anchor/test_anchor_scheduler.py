"""The book of anchors: failures are kept, counted and tried again, and nothing is lost."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from recorder.anchor.anchors import (
    Anchor,
    AnchorProof,
    AnchorScheduler,
    AnchorUnavailable,
    Refs,
    anchor_failures,
    publish_anchor,
    verify_anchors,
)
from recorder.anchor.ledger import AnchorLedger
from recorder.anchor.rfc3161 import TimeStamps, TsaLine, trust_of
from recorder.checkpoints.catalogue import RecorderCheckpointName
from recorder.checkpoints.store import AnchorCadence, CheckpointDirectory, CheckpointStore
from support.recorder import anchor_documents
from veen.errors import Malformed, Untrusted
from veen.objects.port import ObjectStore, Store, StoreUnavailable

NOW = 1_794_000_100
EACH = AnchorCadence(every_checkpoints=1, every_minutes=0)


class Moody:
    """An anchor that is out as long as it is told to be."""

    kind = "file"

    def __init__(self, inner: Anchor) -> None:
        self._inner = inner
        self.is_out = False
        self.published = 0

    def publish(self, root: bytes, epoch: int, ts: int, nonce: bytes) -> bytes:
        if self.is_out:
            raise AnchorUnavailable("out for lunch")
        self.published += 1
        return self._inner.publish(root, epoch, ts, nonce)

    def verify(self, root: bytes, anchor_ref: bytes) -> AnchorProof:
        return self._inner.verify(root, anchor_ref)


class Flaky:
    """Object storage that is out as long as it is told to be."""

    def __init__(self, inner: ObjectStore) -> None:
        self._inner = inner
        self.is_out = False

    def __getattr__(self, name: str) -> Any:
        if self.is_out:
            raise StoreUnavailable("the store is out")
        return getattr(self._inner, name)


@pytest.fixture
def anchor(tmp_path: Path, noise: Callable[[int], bytes]) -> Moody:
    return Moody(AnchorLedger(tmp_path / "anchors.ledger", noise))


@pytest.fixture
def objects(anchor_store: Store) -> Flaky:
    return Flaky(anchor_store.objects)


@pytest.fixture
def checkpoint_store(checkpoint_directory: CheckpointDirectory, objects: Any) -> CheckpointStore:
    return CheckpointStore(checkpoint_directory, anchor_documents.HUB.hub_id, objects)


@pytest.fixture
def refs(checkpoint_directory: CheckpointDirectory, objects: Any) -> Refs:
    return Refs(checkpoint_directory, anchor_documents.HUB.hub_id, objects)


@pytest.fixture
def book(checkpoint_store: CheckpointStore, refs: Refs, anchor: Moody) -> AnchorScheduler:
    return AnchorScheduler(checkpoint_store, refs, anchor, EACH)


def keep(checkpoint_store: CheckpointStore, count: int) -> list[Any]:
    checkpoints = [
        anchor_documents.a_checkpoint(anchor_documents.START + n, (3 + n, n)) for n in range(count)
    ]
    for item in checkpoints:
        checkpoint_store.put(item)
    return checkpoints


def test_a_failure_is_kept_counted_and_tried_again_later(
    book: AnchorScheduler, checkpoint_store: CheckpointStore, anchor: Moody
) -> None:
    keep(checkpoint_store, 1)
    anchor.is_out = True
    assert book.ask_when_due(NOW) is not None
    waits = []
    now = NOW
    for attempt in range(1, 10):
        (outcome,) = book.work(now)
        assert (outcome.ref, outcome.task.attempts) == (None, attempt)
        assert book.work(now) == []
        waits.append(outcome.task.next_try - now)
        now = outcome.task.next_try
    assert waits == [30, 60, 120, 240, 480, 960, 1_920, 3_600, 3_600]
    status = book.status(now)
    assert (status.failed, status.attempts, status.last_error) == (1, 9, "out for lunch")
    assert (status.waiting, status.lateness.is_late) == (1, True)
    anchor.is_out = False
    (outcome,) = book.work(now)
    assert outcome.ref is not None
    status = book.status(now)
    assert (status.failed, status.anchored, status.waiting) == (0, 1, 0)
    assert not status.lateness.is_late


def test_failures_are_counted_beyond_the_anchor_that_came_at_last(
    book: AnchorScheduler,
    checkpoint_store: CheckpointStore,
    checkpoint_directory: CheckpointDirectory,
    anchor: Moody,
) -> None:
    for number in range(3):
        checkpoint_store.put(
            anchor_documents.a_checkpoint(anchor_documents.START + number, (3 + number, number))
        )
        book.ask_when_due(NOW)
        anchor.is_out = True
        (outcome,) = book.work(NOW)
        anchor.is_out = False
        book.work(outcome.task.next_try)
    status = book.status(NOW)
    assert (status.failures, status.attempts, status.failed) == (3, 0, 0)
    failures = anchor_failures(checkpoint_directory)
    assert (failures.count, failures.last_at, failures.last_error) == (3, NOW, "out for lunch")


def test_what_was_published_waits_for_the_store(
    book: AnchorScheduler, checkpoint_store: CheckpointStore, anchor: Moody, objects: Flaky
) -> None:
    keep(checkpoint_store, 1)
    book.ask_when_due(NOW)
    objects.is_out = True
    (outcome,) = book.work(NOW)
    assert isinstance(outcome.error, StoreUnavailable)
    assert book.status(NOW).unstored == 1
    objects.is_out = False
    (outcome,) = book.work(outcome.task.next_try)
    assert (outcome.error, anchor.published) == (None, 1)


def test_a_damaged_ledger_is_not_silent(
    book: AnchorScheduler, checkpoint_store: CheckpointStore, tmp_path: Path
) -> None:
    keep(checkpoint_store, 2)
    book.ask_when_due(NOW)
    book.work(NOW)
    (tmp_path / "anchors.ledger").write_bytes(b"")
    checkpoint_store.put(anchor_documents.a_checkpoint(anchor_documents.START + 9, (9, 9)))
    book.ask_when_due(NOW)
    (outcome,) = book.work(NOW)
    assert isinstance(outcome.error, Untrusted)
    assert "was acknowledged" in (book.status(NOW).last_error or "")


def test_publishing_again_keeps_both(
    book: AnchorScheduler, checkpoint_store: CheckpointStore, refs: Refs, anchor: Moody
) -> None:
    (item,) = keep(checkpoint_store, 1)
    for _ in range(2):
        book.do(book.ask(RecorderCheckpointName.of(item), NOW), NOW)
    result = refs.of(item.checkpoint_id)
    assert [ref.name for ref in result] == ["file-1.cbor", "file-2.cbor"]
    assert len({verify_anchors(anchor, item, ref.anchor_ref).place for ref in result}) == 2


def test_a_number_that_another_host_took_is_left_to_it(
    book: AnchorScheduler, checkpoint_store: CheckpointStore, refs: Refs, anchor_store: Store
) -> None:
    (item,) = keep(checkpoint_store, 1)
    prefix = f"recorder/{anchor_documents.HUB.hub_id.hex()}/anchors/{item.checkpoint_id.hex()}/"
    anchor_store.objects.put(f"{prefix}file-1.cbor", b"another's")
    outcome = book.do(book.ask(RecorderCheckpointName.of(item), NOW), NOW)
    assert outcome.ref is not None
    assert outcome.ref.name == "file-2.cbor"
    assert refs.fetch(item.checkpoint_id) == 1
    assert list(anchor_store.objects.keys(prefix)) == [
        prefix + ref.name for ref in refs.of(item.checkpoint_id)
    ]


def test_refuses_an_anchor_of_another_document_with_the_same_root(
    checkpoint_store: CheckpointStore, anchor: Moody
) -> None:
    mine, other = (
        anchor_documents.a_checkpoint(),
        anchor_documents.a_checkpoint(anchor_documents.START + 1),
    )
    assert mine.log_root == other.log_root
    ref = publish_anchor(anchor, other)
    with pytest.raises(Untrusted, match="with the same root"):
        verify_anchors(anchor, mine, ref)
    assert verify_anchors(anchor, other, ref).nonce == other.checkpoint_id


def test_refuses_a_task_that_cannot_be_read(
    book: AnchorScheduler,
    checkpoint_store: CheckpointStore,
    checkpoint_directory: CheckpointDirectory,
) -> None:
    keep(checkpoint_store, 1)
    task = book.ask_when_due(NOW)
    assert task is not None
    (checkpoint_directory.tasks / task.file).write_bytes(b"\xff")
    with pytest.raises(Malformed, match="publish again"):
        book.status(NOW)


def test_a_task_of_another_kind_is_left_and_counted(
    book: AnchorScheduler, checkpoint_store: CheckpointStore, refs: Refs, authority: Any
) -> None:
    keep(checkpoint_store, 1)
    stamping = TimeStamps(trust_of(authority.chain), authority.reply)
    AnchorScheduler(checkpoint_store, refs, stamping, EACH).ask_when_due(NOW)
    assert book.work(NOW) == []
    assert book.status(NOW).pending == 1
    assert book.ask_when_due(NOW) is not None
    (done,) = book.work(NOW)
    assert done.ref is not None
    assert (done.ref.kind, book.status(NOW).pending) == ("file", 1)


@pytest.mark.parametrize(
    ("every", "minutes", "stored", "age", "checkpoints", "seconds"),
    [
        (1, 0, 0, 0, 0, 0),
        (1, 0, 1, 0, 1, 0),
        (3, 0, 2, 9_999, 0, 0),
        (3, 0, 3, 0, 1, 0),
        (3, 0, 5, 0, 3, 0),
        (0, 2, 5, 119, 0, 0),
        (0, 2, 5, 120, 0, 1),
        (0, 2, 1, 620, 0, 501),
    ],
)
def test_lateness_goes_by_checkpoints_and_by_minutes(
    checkpoint_store: CheckpointStore, refs: Refs, anchor: Moody, every: int,
    minutes: int, stored: int,
    age: int, checkpoints: int, seconds: int,
) -> None:  # fmt: skip
    documents = keep(checkpoint_store, stored)
    cadence = AnchorCadence(every_checkpoints=every, every_minutes=minutes)
    book, now = (
        AnchorScheduler(checkpoint_store, refs, anchor, cadence),
        anchor_documents.START + age,
    )
    status = book.status(now)
    assert (status.lateness.checkpoints, status.lateness.seconds) == (checkpoints, seconds)
    assert status.oldest_waiting == (RecorderCheckpointName.of(documents[0]) if documents else None)
    task = book.ask_when_due(now)
    assert (task is not None) is status.lateness.is_late
    if task is not None:
        assert task.checkpoint_id == documents[-1].checkpoint_id
        assert book.ask_when_due(now) is None  # one is on its way


def test_an_authority_that_comes_back_gets_what_waited(
    checkpoint_store: CheckpointStore, refs: Refs, authority: Any, serve: Callable[..., Any]
) -> None:
    (item,) = keep(checkpoint_store, 1)
    server = serve(authority, status=503)
    line = TsaLine(url=server.url)
    out = AnchorScheduler(
        checkpoint_store, refs, TimeStamps(trust_of(authority.chain), line.ask), EACH
    )
    out.ask_when_due(NOW)
    (failed,) = out.work(NOW)
    assert "answered 503" in str(failed.error)
    back = TimeStamps(trust_of(authority.chain), replace(line, url=serve(authority).url).ask)
    (done,) = AnchorScheduler(checkpoint_store, refs, back, EACH).work(failed.task.next_try)
    assert done.ref is not None
    assert verify_anchors(back, item, done.ref.anchor_ref).witness == "CN=Test TSA"
