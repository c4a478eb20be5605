"""Identity cards, signed prekeys and the opened identity of a client (spec 15, 3, KEX0.2).

``identity_card.pub`` is what others need to seal to a client and to grant it capabilities. Both
keys on the card sign it, so no one can put another's client_id on a card. Prekeys are X25519 keys
that others seal to, each for a time. The card is derived from the keystore and written again when
it is out of date.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Final

from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey

from veen.crypto import SigningKey, hpke_public_key, signature_is_valid
from veen.digest import ht, u64be
from veen.errors import Malformed, Untrusted, VeenError
from veen.keystore.sealed import PRIVATE_WRITE_FLAGS, RetiredClient, Secrets, read_private_file
from veen.system import durable
from veen.wire import cbor
from veen.wire.objects import WireMap
from veen.wire.schema import Bytes32, Bytes64, Version

_ANY_PRIVATE: Final = X25519PrivateKey.from_private_bytes(b"\x01" * 32)
MAX_PREKEYS: Final = 16
_SIGNATURES: Final = (7, 8)


@dataclass(frozen=True, slots=True, kw_only=True)
class SignedPrekey(WireMap):
    """A prekey and the last second at which it may be sealed to, signed by id_sign."""

    prekey: Bytes32
    expires_at: int
    sig: Bytes64 = bytes(64)

    def signed(self, id_sign: SigningKey) -> SignedPrekey:
        return replace(self, sig=id_sign.sign(self._digest(id_sign.public)))

    def verify(self, id_sign: bytes) -> None:
        if not signature_is_valid(id_sign, self.sig, self._digest(id_sign)):
            raise Untrusted(f"prekey {self.prekey.hex()} is not signed by its owner")
        verify_dh_key(self.prekey)

    def is_expired(self, now: int) -> bool:
        return now > self.expires_at

    def _digest(self, id_sign: bytes) -> bytes:
        return ht("veen/prekey", id_sign, self.prekey, u64be(self.expires_at))


def verify_dh_key(public: bytes) -> None:
    """Raise Untrusted for an X25519 key of low order: anyone can open what is sealed to it."""
    try:
        _ANY_PRIVATE.exchange(X25519PublicKey.from_public_bytes(public))
    except ValueError:
        raise Untrusted(f"X25519 key {public.hex()} is of low order") from None


class CardExpired(VeenError):
    """A valid card whose prekeys have all expired."""


@dataclass(frozen=True, slots=True, kw_only=True)
class IdentityCard(WireMap):
    ver: Version = 1
    id_sign: Bytes32
    id_dh: Bytes32
    client_id: Bytes32
    prekeys: tuple[SignedPrekey, ...]
    """The newest first."""
    created_at: int
    """The time at which client_id was created."""
    client_sig: Bytes64 = bytes(64)
    sig: Bytes64 = bytes(64)

    def rule(self) -> None:
        if not 1 <= len(self.prekeys) <= MAX_PREKEYS:
            raise Malformed(
                f"identity card: expected 1 to {MAX_PREKEYS} prekeys, got {len(self.prekeys)}"
            )
        if self.id_sign == self.client_id:
            raise Malformed(
                "identity card: expected a client_id other than id_sign, got the same key"
            )
        dh_keys = [self.id_dh, *(prekey.prekey for prekey in self.prekeys)]
        if len(set(dh_keys)) != len(dh_keys):
            raise Malformed("identity card: duplicate X25519 key")

    def verify(self) -> None:
        """Raise Untrusted unless both keys signed the card and no key is of low order."""
        digest = self.signed_digest()
        if not signature_is_valid(self.id_sign, self.sig, digest):
            raise Untrusted(f"the card is not signed by its id_sign {self.id_sign.hex()}")
        if not signature_is_valid(self.client_id, self.client_sig, digest):
            raise Untrusted(f"the card is not signed by its client_id {self.client_id.hex()}")
        verify_dh_key(self.id_dh)
        for prekey in self.prekeys:
            prekey.verify(self.id_sign)

    def recipient(self, now: int) -> bytes:
        """The X25519 key to seal to: the newest prekey that has not expired."""
        self.verify()
        for prekey in self.prekeys:
            if not prekey.is_expired(now):
                return prekey.prekey
        last = max(prekey.expires_at for prekey in self.prekeys)
        raise CardExpired(
            f"every prekey of client {self.client_id.hex()} has expired, the last at {last}: "
            "ask its owner for a new identity_card.pub (veen id rotate makes one)"
        )

    def signed_digest(self) -> bytes:
        """The digest that both signatures cover: the card without them."""
        values = self.plain()
        for key in _SIGNATURES:
            del values[key]
        return ht("veen/identity-card", cbor.dump(values))


def issue(
    id_sign: SigningKey,
    client: SigningKey,
    *,
    id_dh: bytes,
    prekeys: Iterable[SignedPrekey],
    created_at: int,
) -> IdentityCard:
    """Issue the card of these keys; deterministic."""
    bare = IdentityCard(
        id_sign=id_sign.public,
        id_dh=id_dh,
        client_id=client.public,
        prekeys=tuple(prekeys),
        created_at=created_at,
    )
    digest = bare.signed_digest()
    return replace(bare, client_sig=client.sign(digest), sig=id_sign.sign(digest))


@dataclass(frozen=True, slots=True, kw_only=True)
class Identity:
    """The keys a client signs and reads with, and its card."""

    client: SigningKey
    id_sign: SigningKey
    card: IdentityCard
    retired_client_ids: tuple[RetiredClient, ...]
    """The oldest first; only their public keys are left."""
    is_plain: bool
    outbox_key: bytes = field(repr=False)
    _readers: tuple[bytes, ...] = field(repr=False)

    @property
    def client_id(self) -> bytes:
        return self.client.public

    def readers(self) -> tuple[bytes, ...]:
        """Private X25519 keys to open with: prekeys, the newest first, then id_dh."""
        return self._readers

    def opening_also(self, keys: Iterable[bytes]) -> Identity:
        """The identity with more reader keys, which are tried before its own."""
        return replace(self, _readers=tuple(dict.fromkeys((*keys, *self._readers))))


def identity_of(secrets: Secrets, *, is_plain: bool) -> Identity:
    """The identity of opened secrets; deterministic."""
    secrets.check()
    id_sign, client = SigningKey(secrets.id_sign), SigningKey(secrets.client.seed)
    newest = secrets.prekeys[-1]
    prekey = SignedPrekey(prekey=hpke_public_key(newest.private), expires_at=newest.expires_at)
    return Identity(
        client=client,
        id_sign=id_sign,
        card=issue(
            id_sign,
            client,
            id_dh=hpke_public_key(secrets.id_dh),
            prekeys=[prekey.signed(id_sign)],
            created_at=secrets.client.created_at,
        ),
        retired_client_ids=secrets.retired,
        is_plain=is_plain,
        outbox_key=secrets.outbox_key,
        _readers=secrets.readers(),
    )


def read_card(path: Path) -> IdentityCard:
    """The verified card of a directory; others may read the file, but not write it."""
    raw = read_private_file(path, PRIVATE_WRITE_FLAGS)
    try:
        card = IdentityCard.decode(raw)
        card.verify()
    except (Malformed, Untrusted) as error:
        raise Untrusted(
            f"{path}: {error}. Delete it, and the next command that opens the keystore "
            "makes it again"
        ) from error
    return card


def repair_card_file(path: Path, identity: Identity) -> None:
    """Write the card of ``identity`` if it is missing or from before a rotation."""
    try:
        card = read_card(path)
    except FileNotFoundError:
        card = None
    if card == identity.card:
        return
    if card is not None:
        _verify_outdated(path, card, identity)
    durable.write(path, identity.card.encode())


def _verify_outdated(path: Path, card: IdentityCard, identity: Identity) -> None:
    if card.id_sign != identity.card.id_sign:
        raise Untrusted(
            f"{path} belongs to another identity: delete it; the next command that opens the "
            "keystore writes it again"
        )
    if card.client_id not in {client.client_id for client in identity.retired_client_ids}:
        raise Untrusted(
            f"{path} names client_id {card.client_id.hex()}, which the keystore beside it does "
            "not know: that is an old copy. Put the newest one back; to go on with the old copy "
            "all the same, delete the card and run veen id rotate"
        )
