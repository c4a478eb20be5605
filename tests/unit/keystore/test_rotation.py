"""Rotation: another client_id and prekey, a past that only the keystore knows."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from veen.crypto import HpkeRecipient, HpkeSender, SigningKey, hpke_public_key
from veen.errors import Untrusted
from veen.keystore.directory import ClientDir
from veen.keystore.sealed import LEAST, WrongPassphrase

NOW = 1_700_000_000
PASSPHRASE = b"correct horse battery staple"
Create = Callable[..., ClientDir]
Chance = Callable[[int], bytes]


def test_a_rotation_changes_client_id_and_prekey_and_nothing_else(
    create_client_dir: Create, seeded_random: Chance
) -> None:
    client = create_client_dir()
    before = client.open(PASSPHRASE)
    after = client.rotate(NOW + 60, seeded_random, PASSPHRASE)
    assert client.open(PASSPHRASE).card == client.read_card() == after.card
    assert after.client_id != before.client_id
    assert after.card.prekeys != before.card.prekeys
    assert after.id_sign.public == before.id_sign.public
    assert after.card.id_dh == before.card.id_dh
    assert after.outbox_key == before.outbox_key
    assert (after.card.created_at, after.is_plain) == (NOW + 60, False)
    assert client.sealed().cost == LEAST


def test_what_was_sealed_to_an_old_prekey_still_opens(
    create_client_dir: Create, seeded_random: Chance
) -> None:
    client = create_client_dir()
    cards = [client.read_card()]
    cards += [client.rotate(NOW + turn, seeded_random, PASSPHRASE).card for turn in (1, 2, 3)]
    readers = client.open(PASSPHRASE).readers()
    publics = [hpke_public_key(private) for private in readers]
    assert publics == [*(card.recipient(NOW) for card in reversed(cards)), cards[0].id_dh]
    sender = HpkeSender(cards[0].recipient(NOW), bytes(32))
    sealed = sender.seal(b"", b"old news")
    assert HpkeRecipient(sender.enc, readers[3]).open(b"", sealed) == b"old news"


def test_retired_client_ids_are_reported_with_their_time(
    create_client_dir: Create, seeded_random: Chance
) -> None:
    client = create_client_dir()
    ids = [client.open(PASSPHRASE).client_id]
    ids += [client.rotate(NOW + 60 * turn, seeded_random, PASSPHRASE).client_id for turn in (1, 2)]
    retired_client_ids = client.open(PASSPHRASE).retired_client_ids
    assert [
        (client.client_id, client.created_at, client.retired_at) for client in retired_client_ids
    ] == [
        (ids[0], NOW, NOW + 60),
        (ids[1], NOW + 60, NOW + 120),
    ]


def test_the_key_of_a_retired_client_id_is_gone(
    create_client_dir: Create, seeded_random: Chance
) -> None:
    client = create_client_dir(passphrase=None)
    seed = client._opened(None).secrets.client.seed
    client.rotate(NOW + 60, seeded_random, None)
    secrets = client.sealed().open(None)
    assert SigningKey(seed).public in secrets
    assert seed not in secrets


def test_nothing_that_others_see_links_old_and_new(
    create_client_dir: Create, seeded_random: Chance
) -> None:
    client = create_client_dir()
    before = client.read_card()
    client.rotate(NOW + 60, seeded_random, PASSPHRASE)
    shown = client.card.read_bytes()
    assert before.client_id not in shown
    assert all(prekey.prekey not in shown for prekey in before.prekeys)
    assert before.client_id not in client.keystore.read_bytes()


def test_a_prekey_lives_as_long_as_the_one_before(
    create_client_dir: Create, seeded_random: Chance
) -> None:
    client = create_client_dir(prekey_sec=3600)
    (prekey,) = client.rotate(NOW + 60, seeded_random, PASSPHRASE).card.prekeys
    assert prekey.expires_at == NOW + 60 + 3600


def test_a_clock_that_went_back_does_not_end_a_client_id_before_it_began(
    create_client_dir: Create, seeded_random: Chance
) -> None:
    (retired,) = create_client_dir().rotate(NOW - 5, seeded_random, PASSPHRASE).retired_client_ids
    assert (retired.created_at, retired.retired_at) == (NOW, NOW)


def test_a_plain_identity_stays_plain(create_client_dir: Create, seeded_random: Chance) -> None:
    client = create_client_dir(passphrase=None)
    assert client.rotate(NOW, seeded_random, None).is_plain
    assert client.open(None).is_plain


def test_another_passphrase_rotates_nothing(
    create_client_dir: Create, seeded_random: Chance
) -> None:
    client = create_client_dir()
    before = client.keystore.read_bytes(), client.card.read_bytes()
    with pytest.raises(WrongPassphrase):
        client.rotate(NOW, seeded_random, b"guess")
    assert (client.keystore.read_bytes(), client.card.read_bytes()) == before


def test_a_card_from_before_a_rotation_is_made_again(
    create_client_dir: Create, seeded_random: Chance
) -> None:
    client = create_client_dir()
    old = client.card.read_bytes()
    after = client.rotate(NOW + 60, seeded_random, PASSPHRASE)
    client.card.write_bytes(old)
    assert client.open(PASSPHRASE).card == after.card
    assert client.read_card() == after.card


def test_an_old_copy_of_the_keystore_is_noticed(
    create_client_dir: Create, seeded_random: Chance
) -> None:
    client = create_client_dir()
    old = client.keystore.read_bytes()
    client.rotate(NOW + 60, seeded_random, PASSPHRASE)
    client.keystore.write_bytes(old)
    with pytest.raises(Untrusted, match="an old copy"):
        client.open(PASSPHRASE)
