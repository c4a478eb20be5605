"""Hub identity: the chain from a pinned name to each key, and each key's time (spec 8.4)."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from veen.checkpoint import Checkpoint
from veen.crypto import SigningKey
from veen.errors import Malformed, Untrusted
from veen.hub_identity import HubIdentity, HubKey, key_id, new_identity
from veen.label import DEFAULT_PROFILE, Profile, hub_id
from veen.receipt import Receipt

KEYS = [SigningKey(f"hub key {n}".ljust(32, ".").encode()) for n in range(5)]
THIEF = SigningKey(b"thief".ljust(32, b"."))
OVERLAP = 10
# Key n begins at 100 * n and ends with the overlap into the next one.
STARTS = [100 * n for n in range(4)]


def an_identity(rotations: int = 3, keys: list[SigningKey] = KEYS) -> HubIdentity:
    identity = new_identity(keys[0].public, 0, "pinned")
    for n in range(1, rotations + 1):
        identity = identity.rotated(keys[n - 1], keys[n].public, STARTS[n], OVERLAP)
    return identity


IDENTITY = an_identity()


def a_receipt(key: SigningKey, hub_ts: int) -> Receipt:
    plain = Receipt(
        label=b"l" * 32, stream_seq=1, leaf_hash=b"h" * 32, mmr_root=b"h" * 32, hub_ts=hub_ts
    )
    return plain.signed(key)


def a_checkpoint(key: SigningKey, epoch: int) -> Checkpoint:
    plain = Checkpoint(
        label_prev=b"l" * 32, label_curr=b"l" * 32, upto_seq=1, mmr_root=b"h" * 32, epoch=epoch
    )
    return plain.signed(key)


def with_keys(*keys: HubKey) -> HubIdentity:
    return replace(IDENTITY, hub_keys=keys)


@pytest.mark.parametrize("rotations", range(4))
def test_a_chain_of_rotations_verifies_after_it_travelled(rotations: int) -> None:
    identity = an_identity(rotations)
    signature = identity.signature_by(KEYS[rotations])
    HubIdentity.decode(identity.encode()).verify(signature)
    assert identity.hub_id == hub_id(KEYS[0].public)


def test_only_the_current_key_signs_the_document() -> None:
    for key in (*KEYS[:3], KEYS[4], THIEF):
        with pytest.raises(Untrusted):
            IDENTITY.verify(IDENTITY.signature_by(key))
    for signature in (b"", bytes(64), IDENTITY.signature_by(KEYS[3])[:-1]):
        with pytest.raises(Untrusted):
            IDENTITY.verify(signature)


def test_only_the_current_key_endorses_the_next() -> None:
    for key in (*KEYS[:3], THIEF):
        with pytest.raises(Untrusted):
            IDENTITY.rotated(key, KEYS[4].public, 400, OVERLAP)


def changed_chains() -> Iterator[Any]:
    first, second, third, fourth = IDENTITY.hub_keys
    forged = replace(second, endorsement=bytes(64))
    stolen = HubKey(key_id=key_id(THIEF.public), hub_pk=THIEF.public, valid_from=300)
    other = an_identity(3, [THIEF, *KEYS[1:]]).hub_keys[1]
    yield pytest.param(with_keys(first, forged, third, fourth), id="forged endorsement")
    yield pytest.param(
        with_keys(first, replace(second, endorsement=None), third, fourth), id="no endorsement"
    )
    yield pytest.param(
        with_keys(first, replace(second, endorsement=third.endorsement), third, fourth),
        id="another key's endorsement",
    )
    yield pytest.param(with_keys(first, third, fourth), id="dropped key")
    yield pytest.param(with_keys(first, second, fourth), id="another dropped key")
    yield pytest.param(with_keys(second, third, fourth), id="dropped first key")
    yield pytest.param(with_keys(second, first, third, fourth), id="reordered keys")
    yield pytest.param(with_keys(first, third, second, fourth), id="more reordered keys")
    yield pytest.param(with_keys(first, second, third, third, fourth), id="doubled key")
    yield pytest.param(with_keys(first, second, third, stolen), id="unendorsed key")
    yield pytest.param(with_keys(first, other, third, fourth), id="key endorsed for another hub")
    yield pytest.param(
        with_keys(first, second, third, replace(fourth, valid_from=301)), id="moved start"
    )
    yield pytest.param(replace(IDENTITY, hub_id=hub_id(THIEF.public)), id="another hub's name")
    yield pytest.param(with_keys(), id="no key")
    yield pytest.param(
        with_keys(first, second, third, replace(fourth, key_id=third.key_id)), id="wrong key_id"
    )


@pytest.mark.parametrize("changed", list(changed_chains()))
def test_refuses_a_broken_chain_whoever_signs_it(changed: HubIdentity) -> None:
    for key in (KEYS[3], THIEF):
        with pytest.raises((Untrusted, Malformed)):
            HubIdentity.decode(changed.encode()).verify(changed.signature_by(key))


@pytest.mark.parametrize(
    "change", [{"anchoring": "none"}, {"hub_keys": an_identity(2).hub_keys}], ids=["anchor", "keys"]
)
def test_refuses_a_document_that_was_changed_after_signing(change: dict[str, Any]) -> None:
    signature = IDENTITY.signature_by(KEYS[3])
    with pytest.raises(Untrusted):
        replace(IDENTITY, **change).verify(signature)


def test_refuses_longer_lives_of_retired_keys_after_signing() -> None:
    first, *rest = IDENTITY.hub_keys
    longer = with_keys(replace(first, valid_until=None), *rest)
    with pytest.raises(Untrusted):
        longer.verify(IDENTITY.signature_by(KEYS[3]))


def test_refuses_every_flipped_bit_of_the_signature(
    flips: Callable[[bytes], Iterator[bytes]],
) -> None:
    for bad in flips(IDENTITY.signature_by(KEYS[3])):
        with pytest.raises(Untrusted):
            IDENTITY.verify(bad)


@given(st.integers(0, 3), st.integers(0, 450))
def test_a_receipt_holds_while_its_key_is_valid(index: int, hub_ts: int) -> None:
    ends = [*(start + OVERLAP for start in STARTS[1:]), 2**64]
    receipt = a_receipt(KEYS[index], hub_ts)
    if STARTS[index] <= hub_ts <= ends[index]:
        assert IDENTITY.verify_receipt(receipt).hub_pk == KEYS[index].public
    else:
        with pytest.raises(Untrusted):
            IDENTITY.verify_receipt(receipt)


@given(st.integers(0, 450))
def test_refuses_the_receipt_of_a_key_that_is_not_the_hubs(hub_ts: int) -> None:
    with pytest.raises(Untrusted):
        IDENTITY.verify_receipt(a_receipt(THIEF, hub_ts))


@given(st.integers(0, 3), st.integers(0, 12))
def test_a_checkpoint_holds_in_the_epochs_in_which_its_key_is_valid(index: int, epoch: int) -> None:
    # Epochs of 40 seconds: no key begins with an epoch but the first and the third.
    first, last = 40 * epoch, 40 * epoch + 39
    ends = [*(start + OVERLAP for start in STARTS[1:]), 2**64]
    checkpoint = a_checkpoint(KEYS[index], epoch)
    if last + 1 == STARTS[index]:
        return  # the test below
    if STARTS[index] <= last and ends[index] >= first:
        verify_checkpoint = IDENTITY.verify_checkpoint(
            checkpoint, Profile(epoch_sec=40), not_before=first
        )
        assert verify_checkpoint.hub_pk == KEYS[index].public
    else:
        with pytest.raises(Untrusted):
            IDENTITY.verify_checkpoint(checkpoint, Profile(epoch_sec=40), not_before=first)


def test_refuses_a_checkpoint_of_the_epoch_that_ended_when_its_key_began() -> None:
    # Epoch 4 of 40 seconds ends with second 199; the third key begins with second 200.
    with pytest.raises(Untrusted):
        IDENTITY.verify_checkpoint(a_checkpoint(KEYS[2], 4), Profile(epoch_sec=40), not_before=199)


@given(st.integers(0, 3), st.integers(0, 450))
def test_h03_without_epochs_no_key_retired_before_the_last_entry_signs(
    index: int, hub_ts: int
) -> None:
    ends = [*(start + OVERLAP for start in STARTS[1:]), 2**64]
    checkpoint = a_checkpoint(KEYS[index], 0)
    for item in KEYS[:4]:
        checkpoint = checkpoint.witnessed(item)
    if hub_ts <= ends[index]:
        verify_checkpoint = IDENTITY.verify_checkpoint(
            checkpoint, DEFAULT_PROFILE, not_before=hub_ts
        )
        assert verify_checkpoint.hub_pk == KEYS[index].public
    else:
        with pytest.raises(Untrusted, match="still valid at hub_ts"):
            IDENTITY.verify_checkpoint(checkpoint, DEFAULT_PROFILE, not_before=hub_ts)


def test_h03_without_epochs_a_key_begins_before_the_checkpoint_is_known() -> None:
    checkpoint = a_checkpoint(KEYS[2], 0)
    IDENTITY.verify_checkpoint(checkpoint, DEFAULT_PROFILE, not_before=50, not_after=450)
    with pytest.raises(Untrusted):
        IDENTITY.verify_checkpoint(checkpoint, DEFAULT_PROFILE, not_before=50, not_after=199)


def test_without_epochs_a_checkpoint_of_no_key_of_the_hub_is_refused() -> None:
    for key in (KEYS[4], THIEF):
        with pytest.raises(Untrusted):
            IDENTITY.verify_checkpoint(a_checkpoint(key, 0), DEFAULT_PROFILE, not_before=0)


WITNESSES: list[tuple[list[int], bool]] = [
    ([], False), ([0], False), ([1], False), ([0, 1], True), ([1, 0], True), ([1, 1], False),
]  # fmt: skip


@pytest.mark.parametrize(("witnesses", "is_enough"), WITNESSES)
@pytest.mark.parametrize(
    ("signer", "hub_ts", "seen"),
    [
        pytest.param(0, 101, None, id="the old key, after the new one began"),
        pytest.param(1, 101, 110, id="the new key, seen in the overlap"),
        pytest.param(1, 50, 110, id="the new key over an old entry, seen in the overlap"),
    ],
)
def test_h03_a_checkpoint_of_the_overlap_needs_both_witnesses(
    signer: int, hub_ts: int, seen: int | None, witnesses: list[int], is_enough: bool
) -> None:
    checkpoint = a_checkpoint(KEYS[signer], 0)
    for witness in witnesses:
        checkpoint = checkpoint.witnessed(KEYS[witness])
    if is_enough:
        IDENTITY.verify_checkpoint(checkpoint, DEFAULT_PROFILE, not_before=hub_ts, not_after=seen)
        return
    with pytest.raises(Untrusted, match="expected witness_sigs of both"):
        IDENTITY.verify_checkpoint(checkpoint, DEFAULT_PROFILE, not_before=hub_ts, not_after=seen)


@pytest.mark.parametrize(
    ("signer", "hub_ts", "seen"),
    [
        pytest.param(0, 100, 105, id="in the second of the rotation the old key may be first"),
        pytest.param(0, 50, 105, id="made before the rotation"),
        pytest.param(1, 105, 111, id="the old key has retired by now"),
        pytest.param(1, 105, None, id="nobody says when it was made"),
    ],
)
def test_h03_outside_of_the_overlap_the_hubs_signature_is_enough(
    signer: int, hub_ts: int, seen: int | None
) -> None:
    checkpoint = a_checkpoint(KEYS[signer], 0)
    IDENTITY.verify_checkpoint(checkpoint, DEFAULT_PROFILE, not_before=hub_ts, not_after=seen)


def test_h03_entries_that_came_after_their_epoch_are_signed_for_by_the_key_of_then() -> None:
    """Epoch 2 of 40 seconds ends with 119; its last entry came at 205, by the third key."""
    rolling = Profile(epoch_sec=40)
    late = a_checkpoint(KEYS[2], 2).witnessed(KEYS[1]).witnessed(KEYS[2])
    assert IDENTITY.verify_checkpoint(late, rolling, not_before=205).hub_pk == KEYS[2].public
    with pytest.raises(Untrusted):
        IDENTITY.verify_checkpoint(a_checkpoint(KEYS[0], 2), rolling, not_before=205)


def test_a_rotation_into_the_past_is_refused() -> None:
    with pytest.raises(Malformed):
        IDENTITY.rotated(KEYS[3], KEYS[4].public, 299, OVERLAP).encode()
