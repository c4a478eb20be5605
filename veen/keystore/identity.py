"""An opened identity: the keys a client signs and reads with, and the card it shows."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace

from veen import hpke
from veen.keystore import card
from veen.keystore.card import IdentityCard
from veen.keystore.prekey import SignedPrekey
from veen.keystore.secrets import RetiredClient, Secrets
from veen.sign import PrivateKey


@dataclass(frozen=True, slots=True, kw_only=True)
class Identity:
    client: PrivateKey
    id_sign: PrivateKey
    card: IdentityCard
    retired_client_ids: tuple[RetiredClient, ...]
    """The oldest first; none of them can sign any more."""
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
        """The same identity; it tries these keys before its own when it opens a message."""
        return replace(self, _readers=tuple(dict.fromkeys((*keys, *self._readers))))


def identity_of(secrets: Secrets, *, is_plain: bool) -> Identity:
    """The identity behind opened secrets; the same secrets give the same card."""
    secrets.check()
    id_sign, client = PrivateKey(secrets.id_sign), PrivateKey(secrets.client.seed)
    newest = secrets.prekeys[-1]
    prekey = SignedPrekey(prekey=hpke.public_key(newest.private), expires_at=newest.expires_at)
    return Identity(
        client=client,
        id_sign=id_sign,
        card=card.issue(
            id_sign,
            client,
            id_dh=hpke.public_key(secrets.id_dh),
            prekeys=[prekey.signed(id_sign)],
            created_at=secrets.client.created_at,
        ),
        retired_client_ids=secrets.retired,
        is_plain=is_plain,
        outbox_key=secrets.outbox_key,
        _readers=secrets.readers(),
    )
