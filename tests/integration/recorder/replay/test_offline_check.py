"""An output with proofs is checked without a hub; nothing in it can be changed unnoticed."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import pytest

from recorder.replay.output import form_named
from recorder.replay.plan import ReplayRequest, by_place, by_time
from recorder.replay.verify import NotCheckable, check_file
from support.recorder import replay_notary
from veen.crypto import SigningKey
from veen.digest import h
from veen.errors import Malformed, Untrusted, VeenError

FORMS = ("jsonl", "cbor")


def output(world: Any, requested: ReplayRequest, form: str) -> Path:
    path: Path = world.folder / f"out.{form}"
    path.unlink(missing_ok=True)
    world.job(requested).to_file(path, form_named(form), resume=False)
    return path


def records(path: Path, form: str) -> list[bytes]:
    raw, at, result = path.read_bytes(), 0, []
    while at < len(raw):
        end = form_named(form).end(raw, at)
        assert end is not None
        result.append(raw[at:end])
        at = end
    return result


@pytest.mark.parametrize("form", FORMS)
def test_an_untouched_output_holds(replay_world: Any, form: str) -> None:
    noon = replay_notary.NOON * 1000
    for expected in (
        by_time(replay_notary.STREAMS, None, None, with_proofs=True),
        by_time(replay_notary.STREAMS, noon + 2_000, noon + 4_000, with_proofs=True),
        by_time(replay_notary.STREAMS, noon + 90_000, None, with_proofs=True),
        by_place("record/a", 3, 7, with_proofs=True),
        by_place("record/a", 3, 7, with_proofs=True, opened=False),
    ):
        path = output(replay_world, expected, form)
        verified = check_file(path, replay_world.hub.identity.hub_id, replay_world.checkpoint)
        assert verified.proven == verified.plan.count
        assert verified.unproven == verified.unopened == 0


def test_what_only_the_readers_key_shows_is_counted(replay_world: Any) -> None:
    log, author = replay_world.hub.log("record/d"), replay_notary.Author(b"p")
    mine = replay_world.client.session.identity.card.recipient(replay_notary.NOON)
    public = author.key.public
    log.append(author.msg(log, mine, b"\x01", h(b"other")), replay_world.hub.key)
    log.append(author.msg(log, SigningKey(h(b"x")).public, b"\x01"), replay_world.hub.key)
    log.append(author.msg(log, mine, b"\x01"), replay_world.hub.key)
    log.append(author.msg(log, mine, replay_notary.an_event(public).encode()), replay_world.hub.key)
    replay_world.checkpoint = replay_notary.checkpoint_of(replay_world.hub, ("record/d",))
    log.append(author.msg(log, mine, replay_notary.an_event(public).encode()), replay_world.hub.key)
    expected = by_place("record/d", None, None, with_proofs=True, unproven=True)
    for form in FORMS:
        verified = check_file(
            output(replay_world, expected, form), replay_world.hub.identity.hub_id
        )
        assert (verified.proven, verified.unproven, verified.unopened) == (4, 1, 2)
        assert verified.kinds == {"other": 3, "event": 2}


@pytest.mark.parametrize("form", FORMS)
def test_no_record_can_be_left_out_doubled_or_moved(replay_world: Any, form: str) -> None:
    path = output(replay_world, by_time(replay_notary.STREAMS, None, None, with_proofs=True), form)
    whole = records(path, form)
    for k in range(len(whole)):
        for forged in (
            whole[:k] + whole[k + 1 :],
            whole[: k + 1] + whole[k:],
            [*whole[:k], *whole[k + 1 : k + 2], whole[k], *whole[k + 2 :]],
        ):
            if forged == whole:
                continue
            path.write_bytes(b"".join(forged))
            with pytest.raises((Untrusted, Malformed)):
                check_file(path, replay_world.hub.identity.hub_id)


@pytest.mark.parametrize("form", FORMS)
def test_no_bit_can_be_flipped(replay_world: Any, form: str) -> None:
    noon = replay_notary.NOON * 1000
    path = output(
        replay_world, by_time(["record/a"], noon + 1_000, noon + 3_000, with_proofs=True), form
    )
    raw, chance = path.read_bytes(), random.Random(11)
    head = len(records(path, form)[0])
    for _ in range(300):
        at = chance.randrange(head, len(raw))
        path.write_bytes(raw[:at] + bytes([raw[at] ^ 1 << chance.randrange(8)]) + raw[at + 1 :])
        with pytest.raises(VeenError):
            check_file(path, replay_world.hub.identity.hub_id, replay_world.checkpoint)


@pytest.mark.parametrize("form", FORMS)
def test_an_output_cut_anywhere_is_not_whole(replay_world: Any, form: str) -> None:
    path = output(replay_world, by_place("record/c", None, None, with_proofs=True), form)
    raw, chance = path.read_bytes(), random.Random(3)
    for cut in {0, 1, *(chance.randrange(len(raw)) for _ in range(40)), len(raw) - 1}:
        path.write_bytes(raw[:cut])
        with pytest.raises(VeenError):
            check_file(path, replay_world.hub.identity.hub_id)
    path.write_bytes(raw + b"{")
    with pytest.raises(VeenError):
        check_file(path, replay_world.hub.identity.hub_id)


def test_fields_that_differ_from_the_message_are_refused(replay_world: Any) -> None:
    path = output(replay_world, by_place("record/a", 1, 3, with_proofs=True), "jsonl")
    lines = path.read_text().splitlines()
    for field, value in (
        ("subject_id", "somebody else"), ("event_time", "2030-03-17T17:46:41.000Z"),
        ("payload", {}), ("principal_id", "00" * 32), ("hub_commit_seq", 9),
        ("hub_commit_time", "2030-03-17T17:46:49.000Z"), ("receipt_id", "rcpt-00"),
        ("proven", False), ("checkpoint_id", None), ("kind", "receipt"), ("origin", "line-2"),
        ("extra", 1), ("body_key", None), ("body_key", "00" * 32), ("stream", "record/b"),
    ):  # fmt: skip
        forged = {**json.loads(lines[3]), field: value}
        text = json.dumps(forged, ensure_ascii=False, separators=(",", ":"))
        path.write_text("\n".join([*lines[:3], text, *lines[4:], ""]))
        with pytest.raises((Untrusted, Malformed)) as caught:
            check_file(path, replay_world.hub.identity.hub_id)
        assert "byte" in "".join([str(caught.value), *getattr(caught.value, "__notes__", [])])


def test_a_narrower_plan_does_not_hide_what_lies_in_the_window(replay_world: Any) -> None:
    """The plan says from 4 on, and the place before lies within the window all the same."""
    noon = replay_notary.NOON * 1000
    narrow = output(
        replay_world, by_time(["record/a"], noon + 2_000, noon + 3_000, with_proofs=True), "jsonl"
    )
    lines = narrow.read_text().splitlines()
    plan = json.loads(lines[0])
    plan["requested"]["start"] -= 1
    forged = json.dumps(plan, ensure_ascii=False, separators=(",", ":"))
    narrow.write_text("\n".join([forged, *lines[1:], ""]))
    with pytest.raises(Untrusted, match=r"record/a, stream_seq 3: .* was left out"):
        check_file(narrow, replay_world.hub.identity.hub_id)


def test_a_plan_with_the_names_of_earlier_versions_is_read(replay_world: Any) -> None:
    path = output(replay_world, by_place("record/a", None, None, with_proofs=True), "jsonl")
    first, *rest = path.read_text().splitlines()
    plan = json.loads(first)
    plan["wanted"], plan["stretches"] = plan.pop("requested"), plan.pop("stream_ranges")
    earlier = json.dumps(plan, ensure_ascii=False, separators=(",", ":"))
    path.write_text("\n".join([earlier, *rest, ""]))
    check_file(path, replay_world.hub.identity.hub_id)


def test_another_hub_or_checkpoint_is_refused(replay_world: Any) -> None:
    path = output(replay_world, by_place("record/a", None, None, with_proofs=True), "cbor")
    with pytest.raises(Untrusted, match="of hub"):
        check_file(path, bytes(32))
    other = replay_notary.checkpoint_of(replay_world.hub, ("record/a",))
    with pytest.raises(Untrusted, match="another checkpoint"):
        check_file(path, replay_world.hub.identity.hub_id, other)


def test_an_output_without_proofs_is_distinguished(replay_world: Any, tmp_path: Path) -> None:
    path = output(replay_world, by_place("record/a", None, None), "jsonl")
    with pytest.raises(NotCheckable, match="--with-proofs"):
        check_file(path, replay_world.hub.identity.hub_id)
    with pytest.raises(NotCheckable, match="Parquet"):
        check_file(tmp_path, replay_world.hub.identity.hub_id)
