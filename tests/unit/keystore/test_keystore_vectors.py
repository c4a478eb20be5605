"""The files of a client against vectors that another program made."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable

import pytest

from support.paths import VECTORS
from support.vectors import load_vectors
from veen.crypto import SigningKey
from veen.keystore.card import IdentityCard, SignedPrekey, identity_of
from veen.keystore.sealed import Cost, SealedSecrets, Secrets, generate_secrets, seal

CASES = load_vectors("keystore.json")
KEYS = {name: bytes.fromhex(value) for name, value in CASES["keys"].items()}
FIRST = ("id_sign", "id_dh", "client", "prekey", "outbox")
YEAR = 365 * 86_400


def given(*names: str) -> Callable[[int], bytes]:
    """The named keys one after the other, in place of chance."""
    keys = [KEYS[name] for name in reversed(names)]
    return lambda _: keys.pop()


def first_secrets() -> Secrets:
    return generate_secrets(CASES["created_at"], given(*FIRST))


def test_committed_vectors_are_what_the_script_makes() -> None:
    script = [sys.executable, "-B", str(VECTORS / "make_keystore.py"), "--check"]
    done = subprocess.run(script, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_prekey_is_signed_as_in_the_vector() -> None:
    (prekey,) = identity_of(first_secrets(), is_plain=False).card.prekeys
    assert prekey.encode().hex() == CASES["prekey"]
    SignedPrekey.decode(bytes.fromhex(CASES["prekey"])).verify(SigningKey(KEYS["id_sign"]).public)


def test_card_is_signed_as_in_the_vector() -> None:
    assert identity_of(first_secrets(), is_plain=False).card.encode().hex() == CASES["card"]


def test_rotated_card_is_signed_as_in_the_vector() -> None:
    rotated = first_secrets().rotated(CASES["rotated_at"], given("client_2", "prekey_2"))
    assert identity_of(rotated, is_plain=False).card.encode().hex() == CASES["rotated_card"]


@pytest.mark.parametrize("name", ["card", "rotated_card"])
def test_a_card_of_the_vectors_verifies(name: str) -> None:
    card = IdentityCard.decode(bytes.fromhex(CASES[name]))
    card.verify()
    assert card.recipient(card.created_at + YEAR) == card.prekeys[0].prekey


def test_secrets_are_laid_out_as_in_the_vector() -> None:
    rotated = first_secrets().rotated(CASES["rotated_at"], given("client_2", "prekey_2"))
    assert rotated.encode().hex() == CASES["secrets"]


@pytest.mark.parametrize(
    ("name", "passphrase"), [("keystore", "passphrase"), ("plain_keystore", None)]
)
def test_keystore_of_the_vectors_opens(name: str, passphrase: str | None) -> None:
    sealed = SealedSecrets.decode(bytes.fromhex(CASES[name]))
    result = sealed.open(bytes.fromhex(CASES[passphrase]) if passphrase else None)
    assert result.hex() == CASES["secrets"]
    assert sealed.is_plain == (passphrase is None)


def test_keystore_is_sealed_as_in_the_vector() -> None:
    sealed = seal(
        bytes.fromhex(CASES["secrets"]),
        bytes.fromhex(CASES["passphrase"]),
        random=lambda size: bytes(range(size)),
        cost=Cost(2, 65_536),
    )
    assert sealed.encode().hex() == CASES["keystore"]
