"""A hub that rewrites what lies below a checkpoint, and signs all of it anew, is found out (I2)."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from recorder.replay.output import form_named
from recorder.replay.plan import by_place, by_time
from support.recorder import replay_notary
from veen.errors import Untrusted, VeenError
from veen.events import RECORD_SCHEMA
from veen.msg import Msg
from veen.proofs import RangeProof
from veen.wire import api

STREAM = "record/a"
PLACES = range(12)


def omit(msgs: list[Msg], k: int, _new: Msg) -> list[Msg]:
    return msgs[:k] + msgs[k + 1 :]


def omit_and_fill(msgs: list[Msg], k: int, new: Msg) -> list[Msg]:
    return [*msgs[:k], *msgs[k + 1 :], new]


def change(msgs: list[Msg], k: int, new: Msg) -> list[Msg]:
    return [*msgs[:k], new, *msgs[k + 1 :]]


def insert(msgs: list[Msg], k: int, new: Msg) -> list[Msg]:
    return [*msgs[:k], new, *msgs[k:]]


def swap(msgs: list[Msg], k: int, _new: Msg) -> list[Msg]:
    other = (k + 1) % len(msgs)
    result = list(msgs)
    result[k], result[other] = result[other], result[k]
    return result


@pytest.mark.parametrize("rewrite", [omit, omit_and_fill, change, insert, swap])
def test_no_place_below_a_checkpoint_can_be_rewritten(
    replay_world: Any, quick_path: Path, rewrite: Callable[..., list[Msg]]
) -> None:
    log = replay_world.hub.log(STREAM)
    msgs = [Msg.decode(raw) for raw, _ in log.pairs]
    mine = replay_world.client.session.identity.card.recipient(replay_notary.NOON)
    stranger = replay_notary.Author(b"stranger")
    new = stranger.msg(log, mine, replay_notary.an_event(stranger.key.public).encode())
    replay_world.client.close()
    for k in PLACES:
        replay_notary.rebuilt(replay_world.hub, STREAM, rewrite(msgs, k, new))
        message = refusal(replay_world, quick_path / f"{k}", by_place(STREAM, None, None))
        assert f"{STREAM}, stream_seq " in message


def test_what_was_rewritten_shows_at_every_other_place_too(
    replay_world: Any, quick_path: Path
) -> None:
    log = replay_world.hub.log(STREAM)
    msgs = [Msg.decode(raw) for raw, _ in log.pairs]
    twin = a_twin(replay_world, msgs[5])
    replay_world.client.close()
    replay_notary.rebuilt(replay_world.hub, STREAM, change(msgs, 5, twin))
    for seq in range(1, 13):
        message = refusal(replay_world, quick_path / f"{seq}", by_place(STREAM, seq, seq))
        assert f"{STREAM}, stream_seq {seq}: " in message


def a_twin(world: Any, msg: Msg) -> Msg:
    """Another message of the same author and number: author and hub lie together."""
    mine = world.client.session.identity.card.recipient(replay_notary.NOON)
    (author,) = (
        author
        for author in (replay_notary.Author(b"p"), replay_notary.Author(b"q"))
        if author.key.public == msg.client_id
    )
    body = replay_notary.an_event(msg.client_id, 99).encode()
    return replay_notary.a_msg(author.key, msg.label, msg.client_seq, mine, body, RECORD_SCHEMA)


def test_times_of_hub_that_go_back_are_refused(replay_world: Any, quick_path: Path) -> None:
    log = replay_world.hub.log(STREAM)
    msgs = [Msg.decode(raw) for raw, _ in log.pairs]
    replay_world.client.close()
    new = replay_notary.TheLog(log.label, 0, None)
    for k, msg in enumerate(msgs):
        new.hub_ts = replay_notary.NOON + (0 if k == 6 else 5)
        new.append(msg, replay_world.hub.key)
    replay_world.hub.logs[log.label] = new
    message = refusal(replay_world, quick_path / "reader-2", by_place(STREAM, None, None))
    assert f"{STREAM}, stream_seq 7" in message


@pytest.mark.parametrize("off", range(-4, 5))
def test_an_index_that_lies_about_time_hides_nothing(
    replay_world: Any, quick_path: Path, off: int
) -> None:
    noon = replay_notary.NOON
    expected = by_time([STREAM], (noon + 2) * 1000, (noon + 4) * 1000)
    replay_world.job(expected).to_file(quick_path / "honest", form_named("jsonl"), resume=False)

    for which in (noon + 2, noon + 5):

        def lie(path: str, asked: Any, answer: Any, which: int = which) -> Any:
            if path != "/tooling/locate" or asked.hub_ts != which:
                return answer
            place = answer.places[0]
            moved = api.EntryPlace(label=place.label, stream_seq=place.stream_seq + off)
            return api.LocateResponse(places=(moved,))

        replay_world.hub.lie = lie
        out = quick_path / f"told-{which}"
        if off == 0:
            replay_world.job(expected).to_file(out, form_named("jsonl"), resume=False)
            assert out.read_bytes() == (quick_path / "honest").read_bytes()
        else:
            with pytest.raises(Untrusted, match=f"{STREAM}, stream_seq "):
                replay_world.job(expected).to_file(out, form_named("jsonl"), resume=False)


def test_an_index_that_has_nothing_hides_nothing(replay_world: Any, quick_path: Path) -> None:
    def lie(path: str, _asked: Any, answer: Any) -> Any:
        return api.LocateResponse(places=()) if path == "/tooling/locate" else answer

    replay_world.hub.lie = lie
    expected = by_time([STREAM], replay_notary.NOON * 1000, None)
    with pytest.raises(Untrusted, match=f"{STREAM}, stream_seq 12"):
        replay_world.job(expected).to_file(quick_path / "out", form_named("jsonl"), resume=False)


def test_a_wrong_proof_names_the_first_place_that_is_not_proven(
    replay_world: Any, quick_path: Path
) -> None:
    """The entries were changed and the tree was not: the place is found by halves."""
    log = replay_world.hub.log(STREAM)
    msgs = [Msg.decode(raw) for raw, _ in log.pairs]
    replay_world.client.close()

    def lie(path: str, asked: Any, answer: Any) -> Any:
        if path != "/tooling/range_proof":
            return answer
        proof = RangeProof.build(log, asked.from_seq, asked.to_seq, asked.size)
        return api.RangeProofResponse(proof=proof)

    replay_world.hub.lie = lie
    for k in PLACES:
        replay_notary.rebuilt(
            replay_world.hub, STREAM, change(msgs, k, a_twin(replay_world, msgs[k]))
        )
        message = refusal(replay_world, quick_path / f"{k}", by_place(STREAM, None, None))
        assert f"{STREAM}, stream_seq {k + 1}: does not match the checkpoint" in message


def refusal(world: Any, folder: Path, requested: Any) -> str:
    """What a reader says who has never seen this hub before, but has the checkpoint."""
    home = world.folder / "reader"
    (home / "state.json").unlink(missing_ok=True)
    shutil.copytree(home, folder / "reader")
    with replay_notary.a_reader(folder / "reader", world.hub.url) as client:
        job = replay_notary.a_job(client, requested, world.checkpoint)
        with pytest.raises(VeenError) as caught:
            job.to_file(folder / "out.jsonl", form_named("jsonl"), resume=False)
    return "; ".join([str(caught.value), *getattr(caught.value, "__notes__", [])])
