"""Signatures and unknowns of the invariants: who signed, and what a verifier does not hold."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from veen.captoken import TokenBucket, issue
from veen.crypto import SigningKey
from veen.errors import Untrusted
from veen.hub_identity import new_identity
from veen.invariants import NEW_CLIENT, Before, Grant, Rules, Violation, verify_pair
from veen.label import DEFAULT_PROFILE, EpochLabels, Profile, routing_key, stream_id
from veen.limits import Limits
from veen.mmr import EMPTY
from veen.msg import Msg
from veen.receipt import Receipt

THIEF = SigningKey(b"thief".ljust(32, b"."))
BEFORE = Before(peaks=EMPTY, client=NEW_CLIENT, grant=None)


@pytest.fixture
def rules(hub_key: SigningKey) -> Rules:
    identity = new_identity(hub_key.public, 1_000_000_000, "pinned")
    stream = stream_id("record/test")
    return Rules(
        hub=identity,
        profiles={DEFAULT_PROFILE.profile_id(): DEFAULT_PROFILE},
        limits=Limits(),
        stream=EpochLabels(routing_key(identity.hub_id), stream, DEFAULT_PROFILE),
    )


Msgs = Callable[..., Msg]
Receipts = Callable[..., Receipt]


def broken_by(msg: Msg, receipt: Receipt, rules: Rules, **before: Any) -> str:
    with pytest.raises(Violation) as breach:
        verify_pair(msg, receipt, replace(BEFORE, **before), rules)
    assert breach.value.stream_seq == receipt.stream_seq
    return breach.value.invariant


def test_refuses_a_receipt_that_the_hub_did_not_sign(
    a_msg: Msgs, a_receipt: Receipts, rules: Rules
) -> None:
    msg = a_msg()
    verify_pair(msg, a_receipt(msg), BEFORE, rules)
    unsigned = replace(a_receipt(msg), hub_sig=bytes(64))
    for receipt in (a_receipt(msg, key=THIEF), unsigned, a_receipt(msg, hub_ts=999_999_999)):
        assert broken_by(msg, receipt, rules) == "SIG"


def test_refuses_a_message_that_its_client_did_not_sign(
    a_msg: Msgs, a_receipt: Receipts, rules: Rules
) -> None:
    msg = a_msg()
    forged = a_msg(key=THIEF, client_id=msg.client_id)
    for bad in (forged, replace(msg, sig=bytes(64)), replace(msg, sig=a_receipt(msg).hub_sig)):
        assert broken_by(bad, a_receipt(bad), rules) == "SIG"


def test_refuses_a_receipt_shown_for_another_hub(
    a_msg: Msgs, a_receipt: Receipts, rules: Rules
) -> None:
    msg = a_msg()
    other = replace(rules, hub=new_identity(THIEF.public, 0, "pinned"))
    assert broken_by(msg, a_receipt(msg), other) == "SIG"


def test_what_a_verifier_does_not_hold_is_not_checked(
    a_msg: Msgs, a_receipt: Receipts, rules: Rules
) -> None:
    msg = a_msg(client_seq=77, auth_ref=b"r" * 32, label=b"x" * 32)
    blind = replace(rules, stream=None)
    after = verify_pair(msg, a_receipt(msg), replace(BEFORE, client=None), blind)
    assert after.client.client_seq == 77
    assert after.grant is None


def test_refuses_client_seq_0_for_a_new_client(
    a_msg: Msgs, a_receipt: Receipts, rules: Rules
) -> None:
    msg = a_msg(client_seq=0)
    assert broken_by(msg, a_receipt(msg), rules) in {"I8", "I9"}


def test_refuses_client_seq_0_also_where_the_history_is_unknown(
    a_msg: Msgs, a_receipt: Receipts, rules: Rules
) -> None:
    msg = a_msg(client_seq=0)
    assert broken_by(msg, a_receipt(msg), rules, client=None) == "I9"


def test_a_capability_without_a_rate_is_never_too_fast(
    a_msg: Msgs, a_receipt: Receipts, rules: Rules
) -> None:
    subject = a_msg().client_id
    token = issue(THIEF, subject_pk=subject, stream_ids=[stream_id("record/test")], ttl=5)
    grant = Grant(token, 1_700_000_000, TokenBucket(0, 0))
    msg = a_msg(auth_ref=token.auth_ref())
    after = verify_pair(msg, a_receipt(msg), replace(BEFORE, grant=grant), rules)
    assert after.grant == grant


@pytest.mark.parametrize(("late", "holds"), [(0, True), (5, True), (6, False)])
def test_a_capability_holds_up_to_and_with_its_last_second(
    a_msg: Msgs, a_receipt: Receipts, rules: Rules, late: int, holds: bool
) -> None:
    streams = [stream_id("record/test")]
    token = issue(THIEF, subject_pk=a_msg().client_id, stream_ids=streams, ttl=5)
    grant = Grant(token, 1_700_000_000, TokenBucket(0, 0))
    msg = a_msg(auth_ref=token.auth_ref())
    receipt = a_receipt(msg, hub_ts=1_700_000_000 + late)
    if holds:
        verify_pair(msg, receipt, replace(BEFORE, grant=grant), rules)
    else:
        assert broken_by(msg, receipt, rules, grant=grant) == "I7"


def test_refuses_a_capability_for_another_stream(
    a_msg: Msgs, a_receipt: Receipts, rules: Rules
) -> None:
    token = issue(THIEF, subject_pk=a_msg().client_id, stream_ids=[b"o" * 32], ttl=5)
    grant = Grant(token, 1_700_000_000, TokenBucket(0, 0))
    msg = a_msg(auth_ref=token.auth_ref())
    assert broken_by(msg, a_receipt(msg), rules, grant=grant) == "I7"


def test_a_forged_time_at_the_end_of_all_epochs_is_refused_and_does_not_crash(
    a_msg: Msgs, a_receipt: Receipts, rules: Rules
) -> None:
    profile = Profile(epoch_sec=1)
    msg = a_msg(profile_id=profile.profile_id())
    assert rules.stream is not None
    every_second = replace(
        rules,
        profiles={profile.profile_id(): profile},
        stream=replace(rules.stream, profile=profile),
    )
    with pytest.raises(Untrusted):
        verify_pair(msg, a_receipt(msg, key=THIEF, hub_ts=2**64 - 1), BEFORE, every_second)


def test_a_violation_says_where_and_why(a_msg: Msgs, a_receipt: Receipts, rules: Rules) -> None:
    msg = a_msg()
    cases = {
        "signed": (msg, a_receipt(msg, key=THIEF)),
        "client_id": (replace(msg, sig=bytes(64)), a_receipt(msg)),
        "expected client_seq from 1": ((first := a_msg(client_seq=0)), a_receipt(first)),
    }
    for reason, (wrong, receipt) in cases.items():
        with pytest.raises(Violation) as breach:
            verify_pair(wrong, receipt, BEFORE, rules)
        violation = breach.value
        assert violation.stream_seq == receipt.stream_seq
        assert reason in violation.reason
        place = f"{violation.invariant} at stream_seq {receipt.stream_seq}: "
        assert str(violation) == place + violation.reason


def test_a_message_may_be_as_large_as_the_limit(
    a_msg: Msgs, a_receipt: Receipts, rules: Rules
) -> None:
    msg = a_msg()
    size = len(msg.encode())
    exact = replace(rules, limits=replace(rules.limits, max_msg_bytes=size))
    verify_pair(msg, a_receipt(msg), BEFORE, exact)
    smaller = replace(rules, limits=replace(rules.limits, max_msg_bytes=size - 1))
    assert broken_by(msg, a_receipt(msg), smaller) == "I11"


def test_a_wrong_frame_is_reported_with_its_reason(
    a_msg: Msgs, a_receipt: Receipts, rules: Rules
) -> None:
    msg = a_msg(ciphertext=bytes(39))
    with pytest.raises(Violation) as breach:
        verify_pair(msg, a_receipt(msg), BEFORE, rules)
    assert breach.value.invariant == "I11"
    assert breach.value.reason == str(breach.value.__cause__)
