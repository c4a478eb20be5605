"""The audit of a pair goes by the rules of the one verifier, and tells all that it would."""

from __future__ import annotations

import random
from dataclasses import replace
from typing import Any

import pytest

from support.audit.audit_history import HOURLY, HUB, IDENTITY, START, STREAMS, a_key
from support.long_form import LONG
from veen import captoken
from veen.audit.context import Context, Depth, LoggedControl, begin
from veen.audit.entries import PairCheck
from veen.captoken import TokenBucket
from veen.crypto import SigningKey
from veen.digest import h
from veen.invariants import Before, Grant, Rules, Violation, verify_pair
from veen.label import EpochLabels, routing_key
from veen.limits import Limits
from veen.log.entry import AUTHORIZE, ControlRecord
from veen.mmr import EMPTY
from veen.msg import Msg
from veen.receipt import Receipt

TTL = 100
# What follows from the state before a pair is not a matter of the pair itself.
OF_STATE = {"I3", "I6", "I8", "I9"}


@pytest.fixture(scope="module")
def issued() -> captoken.CapToken:
    return captoken.issue(
        a_key("issuer"),
        subject_pk=a_key("client").public,
        stream_ids=[STREAMS[0].stream_id()],
        ttl=TTL,
    )


@pytest.fixture(scope="module")
def context(issued: captoken.CapToken) -> Context:
    bare = begin(
        hub=IDENTITY, limits=Limits(max_msg_bytes=2_000, max_hdr_bytes=9),
        profiles=(HOURLY,), streams=STREAMS, depth=Depth.FULL,
    )  # fmt: skip
    record = ControlRecord(kind=AUTHORIZE, body=issued.encode())
    return bare.with_control_records([LoggedControl(record, 1, START)], is_whole=True)


def a_pair(chance: random.Random, context: Context) -> tuple[Msg, Receipt]:
    """A pair of which any part may be wrong, signed or not by who should have."""

    def odd(right: Any, *wrong: Any) -> Any:
        return right if chance.random() < 0.8 else chance.choice(wrong)

    stream, client = chance.choice(STREAMS), a_key("client")
    labels = EpochLabels(routing_key(context.hub.hub_id), stream.stream_id(), stream.profile)
    hub_ts = odd(START + 5, START - 1, START + TTL + 1, START + 90_000)
    ciphertext = odd(bytes(40), bytes(39), bytes(35) + b"\x0a" + bytes(50), bytes(3_000))
    (auth_ref,) = context.capabilities
    msg = Msg(
        profile_id=odd(stream.profile.profile_id(), HOURLY.profile_id(), bytes(32)),
        label=labels.at(stream.profile.epoch(START)),
        client_id=odd(client, a_key("other")).public,
        client_seq=1,
        prev_ack=0,
        auth_ref=odd(auth_ref, None, h(b"unknown")),
        ct_hash=odd(h(ciphertext), bytes(32)),
        ciphertext=ciphertext,
    ).signed(odd(client, SigningKey(bytes(32))))
    leaf = odd(msg.leaf_hash(), bytes(32))
    receipt = Receipt(
        label=msg.label, stream_seq=1, leaf_hash=leaf, mmr_root=leaf, hub_ts=hub_ts
    ).signed(odd(HUB, SigningKey(bytes(32))))  # fmt: skip
    return Msg.decode(msg.encode()), Receipt.decode(receipt.encode())


def codes(check: PairCheck, msg: Msg, receipt: Receipt, leaf: bytes) -> set[str]:
    at_once = {item.code for item in check.broken(msg, receipt, leaf, 0)}
    return at_once | {item.code for _, _, item in check.unsigned()}


def refused(msg: Msg, receipt: Receipt, context: Context) -> str | None:
    """The first rule that the one verifier finds broken, a capability looked up as the hub does."""
    origin = context.origin(msg.label, receipt.hub_ts)
    known = context.capabilities.get(msg.auth_ref or b"")
    if msg.auth_ref is not None and (known is None or receipt.hub_ts < known.issued_at):
        return "I7"
    grant = Grant(known.token, known.issued_at, TokenBucket(0, 0)) if known else None
    rules = Rules(
        hub=context.hub, profiles=context.profiles, limits=context.limits,
        stream=origin.labels if origin else None,
    )  # fmt: skip
    try:
        verify_pair(msg, receipt, Before(peaks=EMPTY, client=None, grant=grant), rules)
    except Violation as violation:
        return violation.invariant
    return None


@pytest.mark.parametrize("seed", range(20))
def test_whatever_the_verifier_refuses_is_reported(context: Context, seed: int) -> None:
    chance = random.Random(seed)
    seen = set()
    for _ in range(2_000 if LONG else 100):
        msg, receipt = a_pair(chance, context)
        check = PairCheck(context, msg.label, context.origin(msg.label, receipt.hub_ts))
        detail = codes(check, msg, receipt, msg.leaf_hash())
        first = refused(msg, receipt, context)
        assert first not in OF_STATE
        assert (first in detail) if first else not detail
        seen |= detail
    assert seen >= {"I1", "I2", "I4", "I7", "I11", "SIG"}


def test_a_pair_is_reported_for_every_rule_it_breaks(context: Context) -> None:
    msg, receipt = a_pair(random.Random(1), context)
    stream = STREAMS[2]
    far = replace(receipt, hub_ts=START + 900_000, leaf_hash=bytes(32))
    strange = replace(msg, ciphertext=bytes(40), ct_hash=bytes(32), auth_ref=h(b"unknown"))
    labels = EpochLabels(routing_key(context.hub.hub_id), stream.stream_id(), stream.profile)
    label = labels.at(stream.profile.epoch(START))
    check = PairCheck(context, label, context.origin(label, START))
    result = codes(check, replace(strange, label=label), far, b"leaf")
    assert result >= {"I1", "I2", "SIG", "I7", "I12"}
