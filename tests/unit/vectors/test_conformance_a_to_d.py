"""The four minimal conformance vectors, played through the pure library alone."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from support.vectors import load_vectors
from veen import captoken
from veen.captoken import CapToken, Rate, TokenBucket
from veen.crypto import SigningKey
from veen.digest import h
from veen.errors import Untrusted
from veen.invariants import Grant, Violation
from veen.label import DEFAULT_PROFILE, EpochLabels, Profile, hub_id, routing_key
from veen.msg import Msg
from veen.receipt import Receipt

CASES = load_vectors("veen.json")
HUB, ALICE, BOB = (SigningKey(bytes([n]) * 32) for n in (0x77, 0x42, 0x43))
STREAM = h(b"test")
FOREVER = EpochLabels(routing_key(hub_id(HUB.public)), STREAM, DEFAULT_PROFILE)
MINUTES = replace(FOREVER, profile=Profile(epoch_sec=60))
NOW = 1_700_000_000
EPOCH = NOW // 60
TTL, RATE = 600, Rate(per_sec=1, burst=2)


def violated(log: Any, msg: Msg, hub_ts: int = NOW) -> str:
    """The invariant that a refused message breaks."""
    with pytest.raises(Violation) as refusal:
        log.append(msg, hub_ts)
    return refusal.value.invariant


def test_a_message_of_the_vector_upholds_the_invariants(new_label_log: Any, revived: Any) -> None:
    vector = CASES["sealed_messages"][0]
    log = new_label_log(HUB, replace(FOREVER, routing_key=bytes(32)))
    receipt = log.append(Msg.decode(revived(vector["msg"])), NOW)
    assert (receipt.stream_seq, receipt.leaf_hash.hex()) == (1, vector["leaf_hash"])


def test_a_leaf_hash_is_the_msg_id_and_the_first_root(new_label_log: Any) -> None:
    log = new_label_log(HUB, FOREVER)
    receipt = log.append(log.msg(ALICE, 1), NOW)
    assert receipt.leaf_hash == receipt.mmr_root == log.msg(ALICE, 1).leaf_hash()


@pytest.mark.parametrize(
    ("changes", "invariant"),
    [
        ({"ct_hash": bytes(32)}, "I1"),
        ({"profile_id": bytes(32)}, "I4"),
        ({"prev_ack": 1}, "I6"),
        ({"client_seq": 2}, "I9"),
        ({"label": bytes(32)}, "I12"),
        ({"sig": bytes(64)}, "SIG"),
    ],
)
def test_a_message_changed_in_one_field_breaks_an_invariant(
    new_label_log: Any, changes: dict[str, Any], invariant: str
) -> None:
    log = new_label_log(HUB, FOREVER)
    assert violated(log, replace(log.msg(ALICE, 1), **changes)) == invariant


def alternating(log: Any) -> list[tuple[Msg, Receipt]]:
    writers = ((ALICE, 1), (BOB, 1), (ALICE, 2), (BOB, 2))
    msgs = [log.msg(who, seq, ack) for ack, (who, seq) in enumerate(writers)]
    return [(msg, log.append(msg, NOW)) for msg in msgs]


def test_b_stream_seq_increases_over_two_writers(new_label_log: Any) -> None:
    receipts = [receipt for _, receipt in alternating(new_label_log(HUB, FOREVER))]
    assert [receipt.stream_seq for receipt in receipts] == [1, 2, 3, 4]


def test_b_client_and_client_seq_are_unique(new_label_log: Any) -> None:
    pairs = alternating(new_label_log(HUB, FOREVER))
    assert len({(msg.client_id, msg.client_seq) for msg, _ in pairs}) == len(pairs)


@pytest.mark.parametrize("index", range(4))
def test_b_replay_of_an_accepted_message_is_refused(new_label_log: Any, index: int) -> None:
    log = new_label_log(HUB, FOREVER)
    replayed, _ = alternating(log)[index]
    assert violated(log, replayed) == "I8"


def test_b_gap_in_client_seq_is_refused(new_label_log: Any) -> None:
    log = new_label_log(HUB, FOREVER)
    alternating(log)
    assert violated(log, log.msg(ALICE, 4, 4)) == "I9"


def test_b_message_moved_to_another_stream_is_refused(new_label_log: Any) -> None:
    moved, _ = alternating(new_label_log(HUB, FOREVER))[0]
    assert violated(new_label_log(HUB, replace(FOREVER, stream_id=h(b"other"))), moved) == "I12"


def filled(new_log: Any, epoch: int) -> Any:
    log = new_log(HUB, MINUTES, epoch)
    for seq in range(1, 6):
        log.append(log.msg(ALICE, seq, seq - 1), epoch * 60 + seq)
    return log


def test_c_checkpoint_closes_the_epoch(new_label_log: Any) -> None:
    log = filled(new_label_log, EPOCH)
    closing = log.checkpoint(label_prev=MINUTES.at(EPOCH))
    closing.verify_labels(MINUTES)
    closing.verify_root(5, log.peaks.root())
    signer = log.hub.verify_checkpoint(
        closing, MINUTES.profile, not_before=MINUTES.profile.epoch_sec * EPOCH
    )
    assert signer.hub_pk == HUB.public


def test_c_label_rolls_with_the_epoch() -> None:
    assert MINUTES.at(EPOCH + 1) != MINUTES.at(EPOCH)
    assert MINUTES.accepted(EPOCH * 60 + 60, 0) == {MINUTES.at(EPOCH + 1): EPOCH + 1}


def test_c_stream_seq_starts_anew_under_the_new_label(new_label_log: Any) -> None:
    filled(new_label_log, EPOCH)
    following = new_label_log(HUB, MINUTES, EPOCH + 1)
    assert following.append(following.msg(ALICE, 1), EPOCH * 60 + 60).stream_seq == 1


def test_c_first_checkpoint_of_an_epoch_names_the_label_before(new_label_log: Any) -> None:
    filled(new_label_log, EPOCH + 1).checkpoint(label_prev=MINUTES.at(EPOCH)).verify_labels(MINUTES)


@pytest.mark.parametrize(
    "changes",
    [
        pytest.param({"label_prev": MINUTES.at(EPOCH - 1)}, id="an epoch is skipped"),
        pytest.param({"label_prev": bytes(32)}, id="a label of no epoch"),
        pytest.param({"epoch": EPOCH}, id="the epoch of the label before"),
        pytest.param({"label_curr": MINUTES.at(EPOCH)}, id="no label of the new epoch"),
    ],
)
def test_c_checkpoint_of_other_labels_is_refused(
    new_label_log: Any, changes: dict[str, Any]
) -> None:
    tied = filled(new_label_log, EPOCH + 1).checkpoint(label_prev=MINUTES.at(EPOCH))
    with pytest.raises(Untrusted):
        replace(tied, **changes).verify_labels(MINUTES)


def test_c_label_of_an_epoch_beyond_the_skew_is_refused(new_label_log: Any) -> None:
    log = new_label_log(HUB, MINUTES, EPOCH)
    assert violated(log, log.msg(ALICE, 1), (EPOCH + 2) * 60) == "I12"


def a_token(subject: SigningKey = ALICE, stream: bytes = STREAM) -> CapToken:
    issuer = SigningKey(b"\x10" * 32)
    return captoken.issue(
        issuer, subject_pk=subject.public, stream_ids=[stream], ttl=TTL, rate=RATE
    )


TOKEN, FOR_BOB, ELSEWHERE = a_token(), a_token(BOB), a_token(stream=h(b"other"))


def gated(new_log: Any, token: CapToken) -> Any:
    return new_log(HUB, FOREVER, grant=Grant(token, NOW, TokenBucket.full(RATE, NOW)))


def test_d_capability_holds_to_its_last_second(new_label_log: Any) -> None:
    log = gated(new_label_log, TOKEN)
    assert log.append(log.msg(ALICE, 1, auth_ref=TOKEN.auth_ref()), NOW + TTL).stream_seq == 1


def test_d_expired_capability_is_refused(new_label_log: Any) -> None:
    log = gated(new_label_log, TOKEN)
    assert violated(log, log.msg(ALICE, 1, auth_ref=TOKEN.auth_ref()), NOW + TTL + 1) == "I7"


def test_d_message_above_the_rate_is_refused_until_the_next_second(new_label_log: Any) -> None:
    log, ref = gated(new_label_log, TOKEN), TOKEN.auth_ref()
    for seq in (1, 2):
        log.append(log.msg(ALICE, seq, auth_ref=ref), NOW)
    third = log.msg(ALICE, 3, auth_ref=ref)
    assert violated(log, third, NOW) == "I7"
    assert log.append(third, NOW + 1).stream_seq == 3


@pytest.mark.parametrize(
    ("token", "auth_ref"),
    [
        pytest.param(TOKEN, None, id="no auth_ref"),
        pytest.param(TOKEN, bytes(32), id="another auth_ref"),
        pytest.param(FOR_BOB, FOR_BOB.auth_ref(), id="another client's token"),
        pytest.param(ELSEWHERE, ELSEWHERE.auth_ref(), id="other streams"),
    ],
)
def test_d_capability_that_does_not_cover_the_message_is_refused(
    new_label_log: Any, token: CapToken, auth_ref: bytes | None
) -> None:
    log = gated(new_label_log, token)
    assert violated(log, log.msg(ALICE, 1, auth_ref=auth_ref)) == "I7"
