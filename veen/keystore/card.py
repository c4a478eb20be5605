"""identity_card.pub: what a client lets others know of it, to seal to it and to grant it (spec 15).

Both keys that the card names have signed it: id_sign speaks for the rest, and no one can put
another's client_id on a card of their own.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Final

from veen import cbor, sign
from veen.digest import ht
from veen.errors import Malformed, Untrusted, VeenError
from veen.keystore.prekey import SignedPrekey, verify_dh_key
from veen.schema import Bytes32, Bytes64, Version
from veen.wire import WireMap

MAX_PREKEYS: Final = 16
_SIGNATURES: Final = (7, 8)


class CardExpired(VeenError):
    """A sound card of which no prekey may be used any more."""


@dataclass(frozen=True, slots=True, kw_only=True)
class IdentityCard(WireMap):
    ver: Version = 1
    id_sign: Bytes32
    id_dh: Bytes32
    client_id: Bytes32
    prekeys: tuple[SignedPrekey, ...]
    """The newest first."""
    created_at: int
    """When client_id was made."""
    client_sig: Bytes64 = bytes(64)
    sig: Bytes64 = bytes(64)

    def rule(self) -> None:
        if not 1 <= len(self.prekeys) <= MAX_PREKEYS:
            raise Malformed(f"a card with {len(self.prekeys)} prekeys, 1 to {MAX_PREKEYS} are due")
        if self.id_sign == self.client_id:
            raise Malformed("a card whose client_id is its id_sign")
        dh_keys = [self.id_dh, *(prekey.prekey for prekey in self.prekeys)]
        if len(set(dh_keys)) != len(dh_keys):
            raise Malformed("an X25519 key stands twice on a card")

    def verify(self) -> None:
        """Refuse a card that its owner did not make; small-order keys verify nothing."""
        digest = self.signed_digest()
        if not sign.is_valid(self.id_sign, self.sig, digest):
            raise Untrusted(f"the card is not signed by its id_sign {self.id_sign.hex()}")
        if not sign.is_valid(self.client_id, self.client_sig, digest):
            raise Untrusted(f"the card is not signed by its client_id {self.client_id.hex()}")
        verify_dh_key(self.id_dh)
        for prekey in self.prekeys:
            prekey.verify(self.id_sign)

    def recipient(self, now: int) -> bytes:
        """The X25519 key to seal to: the newest prekey of a sound card that has not expired."""
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
        """What both signatures cover: the card without them."""
        values = self.plain()
        for key in _SIGNATURES:
            del values[key]
        return ht("veen/identity-card", cbor.dump(values))


def issue(
    id_sign: sign.PrivateKey,
    client: sign.PrivateKey,
    *,
    id_dh: bytes,
    prekeys: Iterable[SignedPrekey],
    created_at: int,
) -> IdentityCard:
    """The one card of these keys; the same inputs give the same bytes."""
    bare = IdentityCard(
        id_sign=id_sign.public,
        id_dh=id_dh,
        client_id=client.public,
        prekeys=tuple(prekeys),
        created_at=created_at,
    )
    digest = bare.signed_digest()
    return replace(bare, client_sig=client.sign(digest), sig=id_sign.sign(digest))
