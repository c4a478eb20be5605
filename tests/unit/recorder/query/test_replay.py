"""Replays: whatever a result leaves out, adds or changes is found and named."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from recorder.query.descriptor import normalise
from recorder.query.digest import ResultDigest
from recorder.query.execute import StreamSpan, digest_of, run
from recorder.query.rerun import (
    Horizon,
    ResultDiffers,
    first_differing_row,
    to_read,
    verify_complete,
)
from support.broken import changed
from support.recorder import query_histories, query_proven
from veen.errors import Untrusted

EARLY, LATE = "2023-11-14T22:14:00Z", "2023-11-14T22:15:30Z"
WINDOW = {"time": {"from": EARLY, "to": LATE}}


def replayed(log: Any, descriptor: Any, digest: ResultDigest) -> Any:
    horizon = Horizon.of(log.checkpoint, descriptor)
    spans = to_read(descriptor, digest, horizon)
    return verify_complete(descriptor, digest, horizon, log.within(spans), log.proofs(spans))


def test_every_honest_result_is_complete(small_log: Any, long_factor: int) -> None:
    narrowed = 0
    for query in query_histories.queries(11, 60 * long_factor):
        descriptor = normalise(query, query_id_if_missing="-")
        outcome, digest = query_proven.result_of(small_log, descriptor)
        assert replayed(small_log, descriptor, digest) == outcome
        narrowed += any(searched.from_seq > 1 for searched in digest.searched)
    assert narrowed > 5


@pytest.mark.parametrize("number", [0, 5, -1])
@pytest.mark.parametrize("requested", [{}, WINDOW])
def test_names_a_row_left_out(
    small_log: Any, a_descriptor: Any, number: int, requested: Any
) -> None:
    descriptor = a_descriptor(filter=requested, evidence={"mode": "full"})
    _, honest = query_proven.result_of(small_log, descriptor)
    spans = {
        searched.stream: StreamSpan(searched.from_seq, searched.to_seq)
        for searched in honest.searched
    }
    entries = small_log.within(spans)
    entries.remove([entry for entry in entries if entry.event is not None][number])
    outcome = run(descriptor, entries, small_log.checkpoint.log_root)
    lie = digest_of(
        descriptor, outcome, result_id="r-1", executed_at_ms=0, checkpoint=small_log.checkpoint,
        searched=honest.searched,
    )  # fmt: skip
    with pytest.raises(ResultDiffers) as caught:
        replayed(small_log, descriptor, lie)
    assert caught.value.field == "event_count"


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("query_id", "q-2"),
        ("descriptor_hash", "00" * 32),
        ("row_count", 3),
        ("event_count", 3),
        ("rows_hash", "00" * 32),
        ("rows_chain", "00" * 32),
        ("evidence_hash", "00" * 32),
        ("hub_id", "00" * 32),
        ("profile_id", "00" * 32),
    ],
)
def test_names_the_field_that_differs(
    small_log: Any, a_descriptor: Any, field: str, value: Any
) -> None:
    descriptor = a_descriptor(evidence={"mode": "spot", "sample_rate": 0.5})
    _, digest = query_proven.result_of(small_log, descriptor)
    with pytest.raises(ResultDiffers) as caught:
        replayed(small_log, descriptor, changed(digest, **{field: value}))
    assert caught.value.field == field


Change = Callable[[Any], Any]


@pytest.mark.parametrize(
    "change",
    [
        lambda item: replace(item, from_seq=item.from_seq + 1),
        lambda item: replace(item, to_seq=item.to_seq - 1),
        lambda item: replace(item, from_seq=item.to_seq + 1),
        lambda item: replace(item, to_seq=item.from_seq - 1),
        lambda item: replace(item, from_seq=10**6, to_seq=10**6 - 1),
        lambda item: replace(item, from_seq=1, to_seq=0),
        lambda item: replace(item, mmr_root="00" * 32),
        lambda item: replace(item, unread=item.unread + 1),
        lambda item: replace(item, stream="record/other"),
    ],
)
@pytest.mark.parametrize("requested", [{}, WINDOW])
def test_names_a_range_that_was_not_searched(
    small_log: Any, a_descriptor: Any, change: Change, requested: Any
) -> None:
    """Even an engine that makes all of its hashes again over a narrower range is found out."""
    descriptor = a_descriptor(filter=requested)
    _, honest = query_proven.result_of(small_log, descriptor)
    searched = (change(honest.searched[0]), *honest.searched[1:])
    spans = {item.stream: StreamSpan(item.from_seq, item.to_seq) for item in searched}
    outcome = run(descriptor, small_log.within(spans), small_log.checkpoint.log_root)
    lie = digest_of(
        descriptor, outcome, result_id="r-1", executed_at_ms=0, checkpoint=small_log.checkpoint,
        searched=searched,
    )  # fmt: skip
    with pytest.raises(ResultDiffers) as caught:
        replayed(small_log, descriptor, lie)
    assert caught.value.field == "searched"


def test_refuses_an_empty_range_beyond_the_window(small_log: Any, a_descriptor: Any) -> None:
    """The neighbour of an empty range at the end is outside the window, but on the wrong side."""
    descriptor = a_descriptor(filter=WINDOW, scope=["record/users"])
    _, honest = query_proven.result_of(small_log, descriptor)
    last = small_log.checkpoint.end("record/users").last_seq
    assert honest.event_count
    assert honest.searched[0].to_seq < last
    searched = (replace(honest.searched[0], from_seq=last + 1, to_seq=last, unread=0),)
    lie = digest_of(
        descriptor, run(descriptor, [], small_log.checkpoint.log_root), result_id="r-1",
        executed_at_ms=0, checkpoint=small_log.checkpoint, searched=searched,
    )  # fmt: skip
    with pytest.raises(ResultDiffers, match="was left out"):
        replayed(small_log, descriptor, lie)


def test_refuses_a_replay_that_leaves_out_an_entry_or_changes_a_leaf(
    small_log: Any, a_descriptor: Any
) -> None:
    descriptor = a_descriptor()
    _, digest = query_proven.result_of(small_log, descriptor)
    horizon = Horizon.of(small_log.checkpoint, descriptor)
    spans = to_read(descriptor, digest, horizon)
    entries, proofs = small_log.within(spans), small_log.proofs(spans)
    for at in range(len(entries)):
        forged = replace(entries[at], leaf_hash=bytes(32))
        for other in ([], [forged]):
            read = [*entries[:at], *other, *entries[at + 1 :]]
            with pytest.raises(Untrusted):
                verify_complete(descriptor, digest, horizon, read, proofs)


def test_refuses_a_replay_without_its_proofs(small_log: Any, a_descriptor: Any) -> None:
    descriptor = a_descriptor()
    _, digest = query_proven.result_of(small_log, descriptor)
    horizon = Horizon.of(small_log.checkpoint, descriptor)
    with pytest.raises(Untrusted, match=r"the proof of [0-9]+ to [0-9]+ is missing"):
        verify_complete(descriptor, digest, horizon, small_log.entries, {})


def test_refuses_a_replay_up_to_another_checkpoint(small_log: Any, a_descriptor: Any) -> None:
    descriptor = a_descriptor()
    _, digest = query_proven.result_of(small_log, descriptor)
    other = Horizon.of(small_log.make_checkpoint(1_700_200_000), descriptor)
    with pytest.raises(ResultDiffers, match="differs in checkpoint"):
        verify_complete(descriptor, digest, other, [], {})


def test_names_the_first_row_that_differs() -> None:
    rows = [{"n": 1}, {"n": 2}, {"n": 3}]
    assert first_differing_row(rows, rows) is None
    assert first_differing_row(rows, [{"n": 1}, {"n": 5}, {"n": 3}]) == 1
    assert first_differing_row(rows, rows[:2]) == 2
    assert first_differing_row(rows[1:], rows) == 0
