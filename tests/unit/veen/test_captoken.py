"""Capabilities: every link is the issuer's, over this grant and the link before (spec 6)."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from veen.captoken import CapToken, Rate, issue
from veen.crypto import SigningKey
from veen.errors import Malformed, Untrusted
from veen.wire import cbor

ISSUER = SigningKey(b"issuer".ljust(32, b"."))
OTHER = SigningKey(b"other".ljust(32, b"."))
STREAMS = (b"a" * 32, b"b" * 32)


def a_token(**changes: Any) -> CapToken:
    grant = {"subject_pk": OTHER.public, "stream_ids": STREAMS, "ttl": 60, "rate": None}
    return issue(ISSUER, **{**grant, **changes})


@given(
    st.sets(st.binary(min_size=32, max_size=32), min_size=1, max_size=4),
    st.integers(0, 2**64 - 1),
    st.none() | st.builds(Rate, per_sec=st.integers(0, 9), burst=st.integers(0, 9)),
    st.integers(0, 7),
)
def test_an_issued_token_verifies_after_it_travelled(
    streams: set[bytes], ttl: int, rate: Rate | None, links: int
) -> None:
    token = a_token(stream_ids=streams, ttl=ttl, rate=rate)
    for _ in range(links):
        token = token.resigned(ISSUER)
    cap_token = CapToken.decode(token.encode())
    cap_token.verify_chain()
    assert len(cap_token.sig_chain) == links + 1
    assert cap_token.auth_ref() == token.auth_ref()


@given(st.permutations([bytes([n]) * 32 for n in range(6)]))
def test_minting_depends_on_what_is_granted_alone(streams: list[bytes]) -> None:
    again = [*streams, streams[0]]
    assert a_token(stream_ids=again) == a_token(stream_ids=sorted(streams))


@pytest.mark.parametrize(
    "changed",
    [
        replace(a_token(), subject_pk=ISSUER.public),
        replace(a_token(), issuer_pk=OTHER.public),
        replace(a_token(), allow=replace(a_token().allow, ttl=61)),
        replace(a_token(), allow=replace(a_token().allow, stream_ids=STREAMS[:1])),
        replace(a_token(), allow=replace(a_token().allow, stream_ids=(*STREAMS, b"c" * 32))),
        replace(a_token(), allow=replace(a_token().allow, rate=Rate(per_sec=1, burst=1))),
        replace(a_token(), sig_chain=(bytes(64),)),
        replace(a_token(), sig_chain=a_token(ttl=61).sig_chain),
        replace(a_token(), sig_chain=a_token().sig_chain * 2),
    ],
    ids=["subject", "issuer", "ttl", "fewer streams", "more streams", "rate", "zero", "other grant",
         "doubled link"],
)  # fmt: skip
def test_refuses_a_grant_that_was_not_signed(changed: CapToken) -> None:
    with pytest.raises(Untrusted):
        CapToken.decode(changed.encode()).verify_chain()


def test_refuses_links_dropped_at_the_start_or_out_of_order() -> None:
    chain = a_token().resigned(ISSUER).resigned(ISSUER).sig_chain
    for wrong in (chain[1:], chain[:1] + chain[2:], chain[::-1], (*chain, bytes(64))):
        with pytest.raises(Untrusted):
            replace(a_token(), sig_chain=wrong).verify_chain()


def test_a_prefix_of_the_chain_is_the_token_before_it_was_signed_again() -> None:
    token = a_token()
    again = token.resigned(ISSUER)
    assert replace(again, sig_chain=again.sig_chain[:1]) == token
    assert again.auth_ref() != token.auth_ref()


def test_refuses_every_flipped_bit_of_a_link(
    flips: Callable[[bytes], Iterator[bytes]],
) -> None:
    token = a_token()
    for bad in flips(token.sig_chain[0]):
        with pytest.raises(Untrusted):
            replace(token, sig_chain=(bad,)).verify_chain()


def test_refuses_a_chain_without_a_link() -> None:
    with pytest.raises((Untrusted, Malformed)):
        replace(a_token(), sig_chain=()).verify_chain()


def test_only_the_issuer_signs_again() -> None:
    with pytest.raises(Untrusted):
        a_token().resigned(OTHER)


def test_refuses_a_ninth_link() -> None:
    token = a_token()
    for _ in range(7):
        token = token.resigned(ISSUER)
    with pytest.raises(Malformed):
        token.resigned(ISSUER).encode()


@pytest.mark.parametrize("count", [0, 9, 100])
def test_refuses_a_chain_of_another_length_on_the_wire(count: int) -> None:
    plain = a_token().plain()
    with pytest.raises(Malformed):
        CapToken.decode(cbor.encode({**plain, 5: [bytes(64)] * count}))


@pytest.mark.parametrize(
    "allow",
    [
        pytest.param({1: [], 2: 1}, id="no stream"),
        pytest.param({1: [STREAMS[1], STREAMS[0]], 2: 1}, id="unsorted"),
        pytest.param({1: [STREAMS[0], STREAMS[0]], 2: 1}, id="doubled"),
        pytest.param({1: [b"a" * 31], 2: 1}, id="short stream_id"),
        pytest.param({1: [STREAMS[0]]}, id="no ttl"),
        pytest.param({1: [STREAMS[0]], 2: True}, id="bool ttl"),
        pytest.param({1: [STREAMS[0]], 2: 1, 3: None}, id="null rate"),
        pytest.param({1: [STREAMS[0]], 2: 1, 3: {1: 1}}, id="half a rate"),
        pytest.param({1: [STREAMS[0]], 2: 1, 3: {1: 1, 2: 1, 3: 1}}, id="unknown key in rate"),
        pytest.param({1: [STREAMS[0]], 2: 1, 4: 1}, id="unknown key"),
    ],
)
def test_refuses_an_allow_that_is_not_one(allow: dict[int, Any]) -> None:
    with pytest.raises(Malformed):
        CapToken.decode(cbor.encode({**a_token().plain(), 4: allow}))


def test_a_grant_for_no_stream_is_not_minted() -> None:
    with pytest.raises(Malformed):
        a_token(stream_ids=())


def test_a_token_allows_its_streams_alone() -> None:
    token = a_token()
    assert all(token.allows_stream(stream) for stream in STREAMS)
    assert not token.allows_stream(b"c" * 32)
    assert not token.allows_stream(STREAMS[0][:31])


@given(st.integers(0, 2**64 - 1), st.integers(0, 2**64 - 1))
def test_a_token_holds_up_to_and_with_issued_at_plus_ttl(issued_at: int, ttl: int) -> None:
    assert a_token(ttl=ttl).expires_at(issued_at) == issued_at + ttl


def test_the_reference_covers_the_signatures() -> None:
    token = a_token()
    assert replace(token, sig_chain=(bytes(64),)).auth_ref() != token.auth_ref()
