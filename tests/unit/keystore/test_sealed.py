"""keystore.enc: nothing but the passphrase opens it, and no changed byte goes unnoticed."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from support.long_form import LONG
from veen.errors import Malformed, Untrusted, VeenError
from veen.keystore.sealed import (
    LEAST,
    MODERATE,
    MOST,
    Cost,
    PassphraseNeeded,
    SealedSecrets,
    WrongPassphrase,
    seal,
)

PASSPHRASE = b"correct horse battery staple"
SECRETS = bytes(range(256))
SAMPLES = 4000 if LONG else 200
RANDOM = random.Random(1).randbytes


def a_keystore(passphrase: bytes | None = PASSPHRASE, cost: Cost = LEAST) -> SealedSecrets:
    return seal(SECRETS, passphrase, random=RANDOM, cost=cost)


@settings(deadline=None, max_examples=25)
@given(st.binary(max_size=300), st.none() | st.binary(min_size=1, max_size=80))
def test_what_was_sealed_opens_after_it_lay_on_disk(
    secrets: bytes, passphrase: bytes | None
) -> None:
    sealed = seal(secrets, passphrase, random=RANDOM, cost=LEAST)
    assert SealedSecrets.decode(sealed.encode()).open(passphrase) == secrets


@pytest.mark.parametrize(
    "wrong", [b"x", PASSPHRASE + b" ", PASSPHRASE[:-1], PASSPHRASE.upper(), PASSPHRASE + b"\x00"]
)
def test_another_passphrase_does_not_open_it(wrong: bytes) -> None:
    with pytest.raises(WrongPassphrase, match="wrong passphrase"):
        a_keystore().open(wrong)


def test_the_default_cost_is_moderate_and_opens() -> None:
    sealed = seal(SECRETS, PASSPHRASE, random=RANDOM)
    assert sealed.cost == MODERATE
    assert sealed.open(PASSPHRASE) == SECRETS


@pytest.mark.parametrize("passphrase", [PASSPHRASE, None])
def test_every_flipped_bit_is_noticed(passphrase: bytes | None) -> None:
    raw = a_keystore(passphrase).encode()
    chosen = random.Random(2)
    for _ in range(SAMPLES):
        changed = bytearray(raw)
        changed[chosen.randrange(len(raw))] ^= 1 << chosen.randrange(8)
        with pytest.raises((Malformed, Untrusted)):
            SealedSecrets.decode(bytes(changed)).open(passphrase)


@pytest.mark.parametrize("passphrase", [PASSPHRASE, None])
def test_a_truncated_file_is_no_keystore(passphrase: bytes | None) -> None:
    raw = a_keystore(passphrase).encode()
    for size in range(len(raw)):
        with pytest.raises(Malformed):
            SealedSecrets.decode(raw[:size])


@pytest.mark.parametrize(
    ("passes", "memory"),
    [
        (MOST.passes + 1, MODERATE.memory),
        (2**64 - 1, MODERATE.memory),
        (MODERATE.passes, MOST.memory + 1),
        (MODERATE.passes, 2**64 - 1),
        (0, MODERATE.memory),
        (1, LEAST.memory - 1),
    ],
)
def test_a_file_cannot_ask_for_the_whole_machine(passes: int, memory: int) -> None:
    modest = a_keystore()
    asked = replace(modest, passes=passes, memory=memory)
    with pytest.raises(Malformed, match="Argon2id: expected"):
        asked.encode()
    raw = modest.encode().replace(
        b"\x04\x01\x05\x19\x20\x00", b"\x04" + _uint(passes) + b"\x05" + _uint(memory), 1
    )
    assert raw != modest.encode()
    with pytest.raises(Malformed, match="Argon2id: expected"):
        SealedSecrets.decode(raw)


@pytest.mark.parametrize(
    "change",
    [
        lambda item: replace(item, passes=2),
        lambda item: replace(item, memory=LEAST.memory * 2),
        lambda item: replace(item, salt=bytes(16)),
        lambda item: replace(item, nonce=bytes(24)),
    ],
)
def test_no_field_of_the_header_can_be_changed(
    change: Callable[[SealedSecrets], SealedSecrets],
) -> None:
    with pytest.raises(WrongPassphrase):
        change(a_keystore()).open(PASSPHRASE)


def test_a_sealed_keystore_does_not_become_a_plain_one() -> None:
    pretended = replace(a_keystore(), kdf="plain", passes=0, memory=0)
    with pytest.raises(Untrusted):
        pretended.open(None)


def test_an_unknown_kdf_is_refused() -> None:
    with pytest.raises(Malformed, match="expected argon2id or plain"):
        replace(a_keystore(), kdf="scrypt").encode()


def test_two_seals_of_one_secret_share_no_salt_and_no_nonce() -> None:
    item, other = a_keystore(), a_keystore()
    assert item.salt != other.salt
    assert item.nonce != other.nonce
    assert item.body != other.body


def test_a_sealed_keystore_needs_a_passphrase() -> None:
    for nothing in (None, b""):
        with pytest.raises(PassphraseNeeded, match="none was given"):
            a_keystore().open(nothing)


def test_a_plain_keystore_takes_none() -> None:
    with pytest.raises(PassphraseNeeded, match="it is plain"):
        a_keystore(None).open(PASSPHRASE)


def test_an_empty_passphrase_is_refused() -> None:
    with pytest.raises(VeenError, match="got an empty one"):
        a_keystore(b"")


def _uint(value: int) -> bytes:
    if value < 24:
        return bytes([value])
    width = next(i for i in range(4) if value < 1 << (8 << i))
    return bytes([24 + width]) + value.to_bytes(1 << width, "big")
