"""The invariants of a log: a true history passes, and each breach is named (spec 7)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from hashlib import sha256
from typing import Any

import pytest

from veen.captoken import CapToken, Rate, TokenBucket, issue
from veen.crypto import SigningKey
from veen.hub_identity import new_identity
from veen.invariants import (
    NEW_CLIENT,
    After,
    Before,
    ClientCursor,
    Grant,
    Rules,
    Violation,
    verify_pair,
)
from veen.label import EpochLabels, Profile, routing_key, stream_id
from veen.limits import Limits
from veen.mmr import EMPTY
from veen.msg import Msg
from veen.receipt import Receipt

HUB, ISSUER, THIEF = (SigningKey(name.ljust(32, b".")) for name in (b"hub", b"issuer", b"thief"))
CLIENTS = [SigningKey((b"client %d" % n).ljust(32, b".")) for n in range(3)]
STREAM = stream_id("record/test")
PROFILE = Profile(epoch_sec=100)
IDENTITY = new_identity(HUB.public, 0, "pinned")
LABELS = EpochLabels(routing_key(IDENTITY.hub_id), STREAM, PROFILE)
RULES = Rules(
    hub=IDENTITY,
    profiles={PROFILE.profile_id(): PROFILE},
    limits=Limits(max_epoch_skew_sec=100),
    stream=LABELS,
)
EPOCH, START = 10, 1000
CIPHERTEXT = b"e" * 32 + bytes(8)


@dataclass(frozen=True)
class Pair:
    """One pair of a history with what its verifier knew before it."""

    msg: Msg
    receipt: Receipt
    before: Before


def a_grant(client: SigningKey, **changes: Any) -> Grant:
    terms = {"stream_ids": [STREAM], "ttl": 50, "rate": Rate(per_sec=1, burst=2)}
    token = issue(ISSUER, subject_pk=client.public, **{**terms, **changes})
    return Grant(
        token, START, TokenBucket.full(token.allow.rate or Rate(per_sec=0, burst=0), START)
    )


GRANTS = [a_grant(client) for client in CLIENTS]


def a_signed_msg(client: SigningKey, token: CapToken, **changes: Any) -> Msg:
    ciphertext = changes.get("ciphertext", CIPHERTEXT)
    plain = Msg(
        profile_id=PROFILE.profile_id(), label=LABELS.at(EPOCH), client_id=client.public,
        client_seq=1, prev_ack=0, auth_ref=token.auth_ref(),
        ct_hash=sha256(ciphertext).digest(), ciphertext=ciphertext,
    )  # fmt: skip
    return replace(plain, **changes).signed(client)


def a_history(length: int) -> tuple[list[Pair], After]:
    """Three clients by turns, each true to its own sequence and rate."""
    peaks, cursors = EMPTY, dict.fromkeys(range(3), NEW_CLIENT)
    grants, pairs = dict(enumerate(GRANTS)), []
    for seq in range(1, length + 1):
        turn = seq % 3
        before = Before(peaks=peaks, client=cursors[turn], grant=grants[turn])
        number = cursors[turn].client_seq + 1
        body = {"ciphertext": CIPHERTEXT + bytes(seq), "prev_ack": seq - 1, "client_seq": number}
        msg = a_signed_msg(CLIENTS[turn], GRANTS[turn].token, **body)
        pair = Pair(msg, a_true_receipt(msg, before, hub_ts=START + seq), before)
        after = verify_pair(pair.msg, pair.receipt, before, RULES)
        peaks, cursors[turn] = after.peaks, after.client
        grants[turn] = after.grant or GRANTS[turn]
        pairs.append(pair)
    return pairs, after


def a_true_receipt(msg: Msg, before: Before, **changes: Any) -> Receipt:
    after = before.peaks.append(msg.leaf_hash())
    plain = Receipt(
        label=msg.label, stream_seq=after.size, leaf_hash=msg.leaf_hash(), mmr_root=after.root(),
        hub_ts=START,
    )  # fmt: skip
    return replace(plain, **changes).signed(HUB)


PAIRS, _ = a_history(12)
LAST = PAIRS[-1]
CLIENT, TOKEN = CLIENTS[0], GRANTS[0].token


def test_a_true_history_of_several_clients_passes() -> None:
    pairs, after = a_history(40)
    assert after.peaks.size == 40
    assert after.peaks.root() == pairs[-1].receipt.mmr_root


def test_the_verdict_depends_on_the_arguments_alone() -> None:
    item, two = (verify_pair(LAST.msg, LAST.receipt, LAST.before, RULES) for _ in range(2))
    assert item == two


Change = Callable[[Pair], tuple[Msg, Receipt, Before, Rules]]


def with_msg(**changes: Any) -> Change:
    """The same place for a changed message, signed and truly receipted."""

    def change(pair: Pair) -> tuple[Msg, Receipt, Before, Rules]:
        msg = replace(pair.msg, **changes).signed(CLIENT)
        return msg, a_true_receipt(msg, pair.before, hub_ts=pair.receipt.hub_ts), pair.before, RULES

    return change


def with_receipt(**changes: Any) -> Change:
    return lambda p: (p.msg, replace(p.receipt, **changes).signed(HUB), p.before, RULES)


def with_before(**changes: Any) -> Change:
    return lambda p: (p.msg, p.receipt, replace(p.before, **changes), RULES)


def with_limits(**changes: Any) -> Change:
    limits = replace(RULES.limits, **changes)
    return lambda p: (p.msg, p.receipt, p.before, replace(RULES, limits=limits))


def with_rules(**changes: Any) -> Change:
    return lambda p: (p.msg, p.receipt, p.before, replace(RULES, **changes))


EMPTY_BUCKET = Grant(TOKEN, START, TokenBucket(0, LAST.receipt.hub_ts))
OTHER_LABELS = EpochLabels(LABELS.routing_key, STREAM, Profile(epoch_sec=7))


@pytest.mark.parametrize(
    ("invariant", "change"),
    [
        pytest.param("I1", with_msg(ct_hash=b"x" * 32), id="I1 ct_hash"),
        pytest.param("I1", with_msg(ciphertext=CIPHERTEXT + b"\x00"), id="I1 ciphertext"),
        pytest.param("I2", with_receipt(leaf_hash=b"x" * 32), id="I2 leaf"),
        pytest.param("I2", with_receipt(label=b"x" * 32), id="I2 label"),
        pytest.param("I2", lambda p: (p.msg, PAIRS[0].receipt, p.before, RULES), id="I2 receipt"),
        pytest.param("I3", with_receipt(mmr_root=b"x" * 32), id="I3 root"),
        pytest.param("I3", with_receipt(stream_seq=11), id="I3 repeated seq"),
        pytest.param("I3", with_receipt(stream_seq=13), id="I3 gap"),
        pytest.param("I3", with_receipt(stream_seq=0), id="I3 zero"),
        pytest.param("I3", with_before(peaks=PAIRS[5].before.peaks), id="I3 other prefix"),
        pytest.param("I4", with_msg(profile_id=b"x" * 32), id="I4 unknown profile"),
        pytest.param("I4", with_rules(profiles={}), id="I4 no profile"),
        pytest.param("I4", with_rules(stream=OTHER_LABELS), id="I4 profile of another stream"),
        pytest.param("I6", with_msg(prev_ack=12), id="I6 own place"),
        pytest.param("I6", with_msg(prev_ack=2**64 - 1), id="I6 far ahead"),
        pytest.param("I6", with_before(client=ClientCursor(3, 12)), id="I6 regression"),
        pytest.param("I7", with_before(grant=EMPTY_BUCKET), id="I7 rate"),
        pytest.param("I7", with_before(grant=replace(GRANTS[0], issued_at=961)), id="I7 ttl"),
        pytest.param("I7", with_before(grant=GRANTS[1]), id="I7 of another client"),
        pytest.param("I7", with_before(grant=a_grant(CLIENT, ttl=51)), id="I7 another token"),
        pytest.param("I7", with_msg(auth_ref=None), id="I7 no auth_ref"),
        pytest.param("I8", with_before(client=ClientCursor(4, 0)), id="I8 same number"),
        pytest.param("I8", with_before(client=ClientCursor(9, 0)), id="I8 older number"),
        pytest.param("I9", with_before(client=ClientCursor(2, 0)), id="I9 gap"),
        pytest.param("I9", with_msg(client_seq=2**64 - 1), id="I9 far ahead"),
        pytest.param("I11", with_limits(max_msg_bytes=250), id="I11 message"),
        pytest.param("I11", with_msg(ciphertext=bytes(39)), id="I11 no frame"),
        pytest.param("I11", with_msg(ciphertext=b"\xff" * 60), id="I11 lengths"),
        pytest.param("I12", with_receipt(hub_ts=1300), id="I12 late"),
        pytest.param("I12", with_receipt(hub_ts=899), id="I12 early"),
        pytest.param("I12", with_msg(label=LABELS.at(EPOCH + 2)), id="I12 label"),
        pytest.param("I12", with_msg(label=b"x" * 32), id="I12 unknown label"),
    ],
)
def test_names_the_invariant_that_is_broken(invariant: str, change: Change) -> None:
    msg, receipt, before, rules = change(LAST)
    if invariant == "I12":  # the capability has its own clock
        before = replace(before, grant=None)
    with pytest.raises(Violation) as breach:
        verify_pair(msg, receipt, before, rules)
    assert breach.value.invariant == invariant
    assert breach.value.stream_seq == receipt.stream_seq
