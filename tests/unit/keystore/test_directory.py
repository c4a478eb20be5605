"""A client directory: made whole, opened by its owner, and never taken for another."""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path

import pytest

from veen.crypto import hpke_public_key
from veen.errors import Malformed, Untrusted
from veen.keystore.card import IdentityCard
from veen.keystore.directory import ClientDir, IdentityExists, NoIdentity
from veen.keystore.sealed import MODERATE, PREKEY_SEC, PassphraseNeeded, WrongPassphrase

NOW = 1_700_000_000
PASSPHRASE = b"correct horse battery staple"
Create = Callable[..., ClientDir]
Chance = Callable[[int], bytes]


def test_what_was_made_opens_again(tmp_path: Path, seeded_random: Chance) -> None:
    client = ClientDir(tmp_path / "some" / "where" / "client")
    identity = client.create(now=NOW, random=seeded_random, passphrase=PASSPHRASE)
    result = client.open(PASSPHRASE)
    assert client.sealed().cost == MODERATE
    assert (result.client_id, result.id_sign.public) == (
        identity.client_id,
        identity.id_sign.public,
    )
    assert (result.card, result.outbox_key) == (identity.card, identity.outbox_key)
    assert (result.readers(), result.retired_client_ids) == (identity.readers(), ())
    assert not result.is_plain


def test_an_identity_is_what_its_card_says(create_client_dir: Create) -> None:
    client = create_client_dir()
    identity, card = client.open(PASSPHRASE), client.read_card()
    prekey, id_dh = map(hpke_public_key, identity.readers())
    assert card.client_id == identity.client_id == identity.client.public
    assert card.id_sign == identity.id_sign.public
    assert (card.recipient(NOW), card.id_dh, card.created_at) == (prekey, id_dh, NOW)
    assert card.prekeys[0].expires_at == NOW + PREKEY_SEC
    assert len(identity.outbox_key) == 32


def test_a_prekey_lives_as_long_as_asked(create_client_dir: Create) -> None:
    (prekey,) = create_client_dir(prekey_sec=3600).read_card().prekeys
    assert prekey.expires_at == NOW + 3600


def test_a_prekey_that_would_never_be_valid_is_refused(
    create_client_dir: Create, tmp_path: Path
) -> None:
    with pytest.raises(Malformed, match="an end after its start"):
        create_client_dir(prekey_sec=0)
    assert not (tmp_path / "client").exists()


def test_a_plain_identity_shows_it(create_client_dir: Create) -> None:
    client = create_client_dir(passphrase=None)
    assert client.open(None).is_plain
    assert client.sealed().is_plain


def test_an_identity_is_never_replaced(create_client_dir: Create) -> None:
    client = create_client_dir()
    before = client.keystore.read_bytes(), client.card.read_bytes()
    with pytest.raises(IdentityExists, match="never replaced"):
        create_client_dir()
    assert (client.keystore.read_bytes(), client.card.read_bytes()) == before


@pytest.mark.parametrize("name", ["state.json", "outbox.sqlite", "receipts.cborseq"])
def test_no_identity_is_put_over_what_another_left(
    name: str, create_client_dir: Create, tmp_path: Path
) -> None:
    root = tmp_path / "client"
    root.mkdir(mode=0o700)
    (root / name).write_bytes(b"{}")
    with pytest.raises(IdentityExists, match=r"keystore\.enc is missing"):
        create_client_dir()


def test_another_passphrase_is_reported_with_the_file(create_client_dir: Create) -> None:
    client = create_client_dir()
    with pytest.raises(WrongPassphrase, match=r"client/keystore\.enc: decryption failed"):
        client.open(b"guess")


def test_a_missing_or_needless_passphrase_is_reported(create_client_dir: Create) -> None:
    with pytest.raises(PassphraseNeeded, match="none was given"):
        create_client_dir().open(None)
    with pytest.raises(PassphraseNeeded, match="without a passphrase"):
        create_client_dir("other", passphrase=None).open(PASSPHRASE)


@pytest.mark.parametrize("passphrase", [PASSPHRASE, None])
def test_every_changed_byte_of_a_keystore_is_noticed(
    passphrase: bytes | None, create_client_dir: Create
) -> None:
    client = create_client_dir(passphrase=passphrase)
    whole, chosen = client.keystore.read_bytes(), random.Random(3)
    for at in chosen.sample(range(len(whole)), 100):
        flipped = bytes([whole[at] ^ chosen.randrange(1, 256)])
        client.keystore.write_bytes(whole[:at] + flipped + whole[at + 1 :])
        with pytest.raises((Malformed, Untrusted)):
            client.open(passphrase)
    for size in chosen.sample(range(len(whole)), 20):
        client.keystore.write_bytes(whole[:size])
        with pytest.raises(Malformed, match="is not a complete keystore"):
            client.open(passphrase)
    client.keystore.write_bytes(whole)
    client.open(passphrase)


def test_a_directory_without_identity_names_the_command(tmp_path: Path) -> None:
    for client in (ClientDir(tmp_path), ClientDir(tmp_path / "nowhere")):
        for action in (lambda c: c.open(None), ClientDir.sealed, ClientDir.read_card):
            with pytest.raises(NoIdentity, match="veen keygen --out"):
                action(client)
        with pytest.raises(NoIdentity):
            client.rotate(NOW, random.Random(1).randbytes, None)
        assert not client.lock.exists()


def test_a_lost_card_is_made_again(create_client_dir: Create) -> None:
    client = create_client_dir()
    card = client.card.read_bytes()
    client.card.unlink()
    with pytest.raises(NoIdentity, match="makes it again"):
        client.read_card()
    client.open(PASSPHRASE)
    assert client.card.read_bytes() == card


def test_a_strangers_card_is_not_ours(create_client_dir: Create) -> None:
    client, stranger = create_client_dir(), create_client_dir("stranger")
    client.card.write_bytes(stranger.card.read_bytes())
    with pytest.raises(Untrusted, match="belongs to another identity: delete it"):
        client.open(PASSPHRASE)


def test_a_damaged_card_is_reported_not_repaired(create_client_dir: Create) -> None:
    client = create_client_dir()
    whole = client.card.read_bytes()
    client.card.write_bytes(whole[:-1] + bytes([whole[-1] ^ 1]))
    for action in (lambda: client.open(PASSPHRASE), client.read_card):
        with pytest.raises(Untrusted, match="Delete it"):
            action()
    client.card.unlink()
    client.open(PASSPHRASE)
    IdentityCard.decode(client.card.read_bytes()).verify()


def test_a_place_that_cannot_be_written_is_named(create_client_dir: Create, tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"")
    for name in ("file", "file/client"):
        with pytest.raises(OSError, match="file") as refusal:
            create_client_dir(name)
        assert refusal.value.filename


def test_nothing_that_is_printed_tells_a_secret(create_client_dir: Create) -> None:
    client = create_client_dir()
    identity = client.open(PASSPHRASE)
    secrets = [identity.outbox_key, *identity.readers()]
    printed = repr(identity) + repr(client.sealed()) + repr(client._opened(PASSPHRASE))
    assert all(
        secret.hex() not in printed and repr(secret)[2:-1] not in printed for secret in secrets
    )
    opened = client._opened(PASSPHRASE).secrets
    for seed in (opened.id_sign, opened.id_dh, opened.client.seed):
        assert repr(seed)[2:-1] not in printed
