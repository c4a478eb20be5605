"""Identity cards and prekeys: forged, expired and hostile ones are refused."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from operator import itemgetter
from typing import Any

import pytest

from support.paths import VECTORS
from veen.crypto import SigningKey, hpke_public_key
from veen.errors import Malformed, Untrusted
from veen.keystore.card import MAX_PREKEYS, CardExpired, IdentityCard, SignedPrekey, issue

NOW = 1_700_000_000
OWNER, CLIENT, STRANGER = (SigningKey(bytes([n]) * 32) for n in (1, 2, 3))
ID_DH = hpke_public_key(b"\x04" * 32)
PUBLISHED = VECTORS / "published"
LOW_ORDER: list[dict[str, Any]] = json.loads((PUBLISHED / "x25519_low_order.json").read_text())[
    "cases"
]
SMALL_ORDER_ED25519 = [
    bytes(32),
    b"\x01" + bytes(31),
    b"\xec" + b"\xff" * 30 + b"\x7f",
    bytes.fromhex("26e8958fc2b227b045c3f489f2ef98f0d5dfac05d3c63339b13802886d53fc05"),
    bytes.fromhex("c7176a703d4dd84fba3c0b760d10670f2a2053fa2c39ccc64ec7fd7792ac037a"),
]


def a_prekey(number: int, expires_at: int = NOW + 100) -> SignedPrekey:
    public = hpke_public_key(bytes([100 + number]) * 32)
    return SignedPrekey(prekey=public, expires_at=expires_at).signed(OWNER)


def a_card(*prekeys: SignedPrekey, **changes: Any) -> IdentityCard:
    parts = {"id_dh": ID_DH, "prekeys": prekeys or (a_prekey(0),), "created_at": NOW}
    return issue(OWNER, CLIENT, **{**parts, **changes})


def test_a_card_verifies_after_it_travelled() -> None:
    card = IdentityCard.decode(a_card().encode())
    card.verify()
    assert card == a_card()
    assert IdentityCard.from_json(json.loads(json.dumps(card.to_json()))) == card


@pytest.mark.parametrize(
    ("now", "number"),
    [
        pytest.param(NOW, 2, id="the newest"),
        pytest.param(NOW + 10, 2, id="in its last second"),
        pytest.param(NOW + 11, 1, id="the one before when it has expired"),
        pytest.param(NOW + 21, 0, id="an older one that lives longer"),
    ],
)
def test_seals_to_the_newest_prekey_that_has_not_expired(now: int, number: int) -> None:
    card = a_card(a_prekey(2, NOW + 10), a_prekey(1, NOW + 20), a_prekey(0, NOW + 30))
    assert card.recipient(now) == a_prekey(number).prekey


def test_an_expired_card_says_whom_to_ask() -> None:
    with pytest.raises(CardExpired, match=r"ask its owner for a new identity_card\.pub"):
        a_card().recipient(NOW + 101)


@pytest.mark.parametrize(
    "change",
    [
        pytest.param(lambda item: replace(item, id_sign=STRANGER.public), id="id_sign"),
        pytest.param(lambda item: replace(item, id_dh=hpke_public_key(b"\x09" * 32)), id="id_dh"),
        pytest.param(lambda item: replace(item, client_id=STRANGER.public), id="client_id"),
        pytest.param(lambda item: replace(item, created_at=NOW + 1), id="created_at"),
        pytest.param(lambda item: replace(item, prekeys=(a_prekey(1),)), id="prekeys"),
        pytest.param(
            lambda item: replace(item, prekeys=(*item.prekeys, a_prekey(1))), id="another prekey"
        ),
        pytest.param(lambda item: replace(item, sig=bytes(64)), id="sig"),
        pytest.param(lambda item: replace(item, client_sig=bytes(64)), id="client_sig"),
        pytest.param(lambda item: replace(item, sig=item.client_sig), id="sig by the client"),
    ],
)
def test_a_changed_card_is_forged(change: Callable[[IdentityCard], IdentityCard]) -> None:
    forged = change(a_card())
    with pytest.raises(Untrusted):
        forged.verify()
    with pytest.raises(Untrusted):
        forged.recipient(NOW)


def test_every_flipped_bit_of_a_card_is_noticed() -> None:
    raw = a_card().encode()
    for at in range(len(raw)):
        changed = raw[:at] + bytes([raw[at] ^ 1 << at % 8]) + raw[at + 1 :]
        with pytest.raises((Malformed, Untrusted)):
            IdentityCard.decode(changed).verify()


def test_nobody_puts_a_strangers_client_id_on_a_card() -> None:
    claimed = replace(a_card(), client_id=STRANGER.public)
    digest = claimed.signed_digest()
    claimed = replace(claimed, sig=OWNER.sign(digest), client_sig=OWNER.sign(digest))
    with pytest.raises(Untrusted, match="not signed by its client_id"):
        claimed.verify()


@pytest.mark.parametrize(
    "prekey",
    [
        pytest.param(replace(a_prekey(0), expires_at=NOW + 10**6), id="prolonged"),
        pytest.param(replace(a_prekey(0), prekey=a_prekey(1).prekey), id="exchanged"),
        pytest.param(replace(a_prekey(0)).signed(STRANGER), id="of a stranger"),
        pytest.param(replace(a_prekey(0), sig=bytes(64)), id="unsigned"),
    ],
)
def test_a_card_with_a_forged_prekey_is_refused(prekey: SignedPrekey) -> None:
    with pytest.raises(Untrusted, match="is not signed by its owner"):
        a_card(a_prekey(5), prekey).verify()


@pytest.mark.parametrize("case", LOW_ORDER, ids=itemgetter("public_key"))
def test_low_order_keys_are_refused_wherever_they_stand(case: dict[str, Any]) -> None:
    low = bytes.fromhex(case["public_key"])
    prekey = SignedPrekey(prekey=low, expires_at=NOW + 100).signed(OWNER)
    for card in (a_card(id_dh=low), a_card(prekey)):
        with pytest.raises(Untrusted, match="is of low order"):
            card.recipient(NOW)


@pytest.mark.parametrize("small", SMALL_ORDER_ED25519, ids=bytes.hex)
def test_small_order_keys_sign_nothing(small: bytes) -> None:
    """With such a key, R of small order and S = 0 satisfy a lax verifier."""
    lax = b"\x01" + bytes(63)
    card = replace(a_card(), client_id=small)
    signed = replace(card, client_sig=lax, sig=OWNER.sign(card.signed_digest()))
    with pytest.raises(Untrusted, match="not signed by its client_id"):
        signed.verify()
    with pytest.raises(Untrusted, match="not signed by its id_sign"):
        replace(a_card(), id_sign=small, sig=lax).verify()
    with pytest.raises(Untrusted):
        replace(a_prekey(0), sig=lax).verify(small)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: replace(a_card(), prekeys=()), "got 0"),
        (lambda: a_card(*(a_prekey(n) for n in range(MAX_PREKEYS + 1))), "got 17"),
        (lambda: a_card(a_prekey(1), a_prekey(1)), "duplicate X25519 key"),
        (lambda: a_card(id_dh=a_prekey(0).prekey), "duplicate X25519 key"),
        (lambda: replace(a_card(), client_id=OWNER.public), "client_id other than id_sign"),
    ],
)
def test_keys_that_do_not_go_together_are_no_card(
    make: Callable[[], IdentityCard], message: str
) -> None:
    with pytest.raises(Malformed, match=message):
        make().encode()
