"""Order and completeness of a replay of many streams (I1), and what it says of each message."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from recorder.replay.output import form_named
from recorder.replay.plan import OutOfReach, by_place, by_time
from support.recorder import replay_notary
from veen.crypto import SigningKey
from veen.digest import h
from veen.errors import Malformed, Untrusted
from veen.events import RECORD_SCHEMA
from veen.receipt import Receipt


def lines(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def items(path: Path) -> list[dict[str, Any]]:
    return [line for line in lines(path) if line["kind"] in ("event", "other", "receipt")]


def replayed(world: Any, requested: Any, name: str = "out.jsonl") -> list[dict[str, Any]]:
    path = world.folder / name
    world.job(requested).to_file(path, form_named("jsonl"), resume=False)
    return items(path)


def log_of(world: Any) -> list[tuple[int, str, int]]:
    """Every place of every stream, in the order that the text asks for."""
    return sorted(
        (Receipt.decode(raw).hub_ts, stream, seq)
        for stream in replay_notary.STREAMS
        for seq, (_, raw) in enumerate(world.hub.log(stream).pairs, 1)
    )


def places(items: list[dict[str, Any]]) -> list[tuple[str, int]]:
    return [(item["stream"], item["hub_commit_seq"]) for item in items]


def test_streams_are_merged_by_time_then_name_then_place(replay_world: Any) -> None:
    result = replayed(replay_world, by_time(replay_notary.STREAMS, None, None))
    assert places(result) == [(stream, seq) for _, stream, seq in log_of(replay_world)]


def test_every_window_has_exactly_what_it_should(replay_world: Any) -> None:
    log, noon = log_of(replay_world), replay_notary.NOON
    for start in range(noon - 1, noon + 8, 2):
        for end in range(start, noon + 9, 3):
            expected = by_time(replay_notary.STREAMS, start * 1000, end * 1000)
            result = replayed(replay_world, expected, f"{start}-{end}.jsonl")
            assert places(result) == [(s, n) for ts, s, n in log if start <= ts <= end]


def test_a_window_of_less_than_a_second_holds_no_second(replay_world: Any) -> None:
    start = replay_notary.NOON * 1000
    assert replayed(replay_world, by_time(replay_notary.STREAMS, start + 1, start + 999)) == []


def test_every_range_has_exactly_its_places(replay_world: Any) -> None:
    for first in range(1, 13):
        for last in range(first, 13):
            result = replayed(
                replay_world, by_place("record/a", first, last), f"{first}-{last}.jsonl"
            )
            assert places(result) == [("record/a", seq) for seq in range(first, last + 1)]


def test_an_event_has_its_eight_fields_receipt_and_proof(replay_world: Any) -> None:
    (result,) = replayed(replay_world, by_place("record/a", 3, 3))
    receipt = Receipt.decode(replay_world.hub.log("record/a").pairs[2][1])
    assert result == {
        "kind": "event", "stream": "record/a", "subject_id": "subject-0",
        "principal_id": replay_notary.Author(b"q").key.public.hex(), "event_type": "test.done",
        "event_time": "2030-03-17T17:46:43.007Z", "origin": "line-1",
        "payload": {"n": 3, "x": 1.5, "text": "zwölf\n"}, "hub_commit_seq": 3,
        "hub_commit_time": "2030-03-17T17:46:41.000Z",
        "receipt_id": f"rcpt-{receipt.leaf_hash.hex()}", "receipt": receipt.encode().hex(),
        "proven": True, "checkpoint_id": replay_world.checkpoint.checkpoint_id.hex(),
    }  # fmt: skip


def test_what_is_no_event_stands_in_its_place_and_says_why(replay_world: Any) -> None:
    log, author, other = (
        replay_world.hub.log("record/d"),
        replay_notary.Author(b"p"),
        replay_notary.Author(b"q"),
    )
    mine = replay_world.client.session.identity.card.recipient(replay_notary.NOON)
    public = author.key.public
    good = replay_notary.an_event(public)
    bodies = [
        (good.encode(), RECORD_SCHEMA, mine, None),
        (b"\x01", h(b"another"), mine, "OTHER_SCHEMA"),
        (b"\x01", RECORD_SCHEMA, mine, "MALFORMED"),
        (replay_notary.an_event(public, subject_id="").encode(), RECORD_SCHEMA, mine, "FIELD"),
        (replay_notary.an_event(public, payload=b"\x41a").encode(), RECORD_SCHEMA, mine, "PAYLOAD"),
        (replay_notary.an_event(other.key.public).encode(), RECORD_SCHEMA, mine, "PRINCIPAL"),
        (good.encode(), RECORD_SCHEMA, SigningKey(h(b"x")).public, "UNOPENED"),
    ]
    for body, schema, recipient, _ in bodies:
        log.append(author.msg(log, recipient, body, schema), replay_world.hub.key)
    replay_world.checkpoint = replay_notary.checkpoint_of(replay_world.hub, ("record/d",))
    result = replayed(replay_world, by_place("record/d", None, None))
    assert [item.get("fault") for item in result] == [fault for *_, fault in bodies]
    assert [item["kind"] for item in result] == ["event", *["other"] * 6]
    assert {item["principal_id"] for item in result} == {public.hex()}


def test_without_opening_there_are_receipts_and_hashes_only(replay_world: Any) -> None:
    result = replayed(replay_world, by_place("record/a", None, None, opened=False))
    assert {item["kind"] for item in result} == {"receipt"}
    assert len(result) == 12
    assert not any("payload" in item or "subject_id" in item for item in result)


def test_above_the_checkpoint_only_if_asked_for_and_marked(replay_world: Any) -> None:
    log, author = replay_world.hub.log("record/a"), replay_notary.Author(b"new")
    mine = replay_world.client.session.identity.card.recipient(replay_notary.NOON)
    for number in range(3):
        body = replay_notary.an_event(author.key.public, number).encode()
        log.append(author.msg(log, mine, body), replay_world.hub.key)
    assert len(replayed(replay_world, by_place("record/a", None, None))) == 12
    with pytest.raises(OutOfReach, match="record/a, stream_seq 13"):
        replayed(replay_world, by_place("record/a", 1, 13), "no")
    result = replayed(replay_world, by_place("record/a", None, None, unproven=True), "new")
    assert [item["proven"] for item in result] == [True] * 12 + [False] * 3
    assert [item["checkpoint_id"] is None for item in result] == [False] * 12 + [True] * 3


def test_a_stream_the_checkpoint_does_not_speak_of_is_refused(replay_world: Any) -> None:
    with pytest.raises(OutOfReach, match="record/nowhere"):
        replayed(replay_world, by_place("record/nowhere", None, None))


def test_a_stream_is_named_by_its_name(replay_world: Any) -> None:
    with pytest.raises(OutOfReach, match="expected the name of a stream"):
        replayed(replay_world, by_place(h(b"record/a").hex(), None, None))


def test_a_checkpoint_of_another_hub_is_refused(replay_world: Any) -> None:
    other = replay_notary.Notary(b"another hub")
    try:
        replay_notary.fill(
            other, replay_world.client.session.identity.card.recipient(replay_notary.NOON)
        )
        replay_world.checkpoint = replay_notary.checkpoint_of(other)
    finally:
        other.close()
    with pytest.raises(Untrusted, match="of hub"):
        replayed(replay_world, by_place("record/a", None, None))


@pytest.mark.parametrize(
    "requested",
    [
        lambda: by_time([], None, None),
        lambda: by_place("record/a", 5, 4),
        lambda: by_time(["record/a"], 5_000, 4_000),
    ],
)
def test_refuses_a_replay_of_nothing(requested: Any) -> None:
    with pytest.raises(Malformed):
        requested()
