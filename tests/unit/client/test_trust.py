"""Which hub is believed: keys that follow on are taken over, anything else is refused."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from veen.crypto import SigningKey
from veen.digest import h
from veen.errors import Untrusted
from veen.hub_identity import HubIdentity, HubKey, followed_identity, new_identity, pinned_identity


def key(number: int) -> SigningKey:
    return SigningKey(h(b"hub key %d" % number))


def identity(keys: int, branch: int = 0) -> HubIdentity:
    """A hub that has had so many keys; branches differ in their last one."""
    hub_identity = new_identity(key(0).public, 1_000, "none")
    for number in range(1, keys):
        last = branch if number == keys - 1 else 0
        hub_identity = hub_identity.rotated(
            key(number - 1), key(number + last).public, 1_000 + number, 10
        )
    return hub_identity


@given(st.integers(1, 5), st.integers(0, 4))
def test_a_chain_that_goes_on_is_taken_over(known: int, more: int) -> None:
    offered = identity(known + more)
    assert followed_identity(identity(known), offered) is offered


@given(st.integers(2, 5), st.integers(1, 4))
def test_a_chain_that_was_put_back_is_refused(known: int, fewer: int) -> None:
    with pytest.raises(Untrusted, match="restored from a backup"):
        followed_identity(identity(known), identity(max(1, known - fewer)))


@pytest.mark.parametrize("keys", [2, 3, 4])
def test_two_chains_from_one_name_are_refused(keys: int) -> None:
    with pytest.raises(Untrusted, match="two chains"):
        followed_identity(identity(keys), identity(keys, branch=7))


def test_another_name_is_refused() -> None:
    other = new_identity(key(9).public, 1_000, "none")
    with pytest.raises(Untrusted, match="as pinned"):
        followed_identity(identity(1), other)
    with pytest.raises(Untrusted, match="as pinned"):
        pinned_identity(other, identity(1).hub_id)


@pytest.mark.parametrize(
    "change",
    [
        lambda item: replace(item, valid_from=item.valid_from + 1),
        lambda item: replace(item, valid_until=(item.valid_until or 0) + 1),
        lambda item: replace(item, endorsement=bytes(64)),
    ],
)
def test_a_key_that_is_not_what_it_was_is_refused(change: Callable[[HubKey], HubKey]) -> None:
    known = identity(3)
    keys = [*known.hub_keys]
    keys[1] = change(keys[1])
    with pytest.raises(Untrusted, match="differs from the one known here"):
        followed_identity(known, replace(known, hub_keys=tuple(keys)))


def test_the_end_of_the_current_key_is_learnt_and_then_kept() -> None:
    before, after = identity(1), identity(2)
    assert before.hub_keys[0].valid_until is None
    assert followed_identity(before, after).hub_keys[0].valid_until == 1_011
    reopened = replace(after.hub_keys[0], valid_until=None)
    with pytest.raises(Untrusted, match="differs from the one known here"):
        followed_identity(after, replace(after, hub_keys=(reopened, after.hub_keys[1])))
